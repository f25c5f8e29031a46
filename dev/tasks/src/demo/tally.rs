//! What the clients observed.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use super::client::EXCHANGE_LIMIT;
use super::room;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_sale::verdict::Verdict;
use weir_stack::http::Response;

/// Latencies are recorded in microseconds, with three digits, up to the longest exchange.
const LATENCY_MAX_US: u64 = EXCHANGE_LIMIT.as_micros() as u64;
const LATENCY_DIGITS: u8 = 3;

/// The label of an answer without a verdict or problem code.
const NO_WORD: &str = "none";

/// What one side observed.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    /// Started HTTP exchanges.
    pub(super) requests: u64,
    /// Exchanges with no answer.
    pub(super) broken: u64,
    /// Clients without a final answer after ten tries.
    pub(super) gave_up: u64,
    /// Answers by label.
    pub(super) words: BTreeMap<String, u64>,
    /// Answers by status.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Answers through edges.
    pub(super) at_edge: AtEdge,
    /// The latency of each answered exchange, in microseconds.
    pub(super) latency_us: Histogram<u64>,
}

/// Answers that came from edges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AtEdge {
    /// Answers of the edge itself.
    pub(super) own: u64,
    /// Forwarded answers of a gateway or the origin.
    pub(super) sent_on: u64,
    /// Forwarded answers with an order.
    pub(super) granted: u64,
}

impl AtEdge {
    pub(super) fn count(&mut self, is_own: bool, answer: &Response) {
        match is_own {
            true => self.own += 1,
            false => self.sent_on += 1,
        }
        let granted = Verdict::Granted.label();
        let is_granted = answer.header(weir_base::headers::VERDICT) == Some(granted);
        self.granted += u64::from(is_granted && answer.status < 300);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.own += other.own;
        self.sent_on += other.sent_on;
        self.granted += other.granted;
    }

    pub(super) fn all(self) -> u64 {
        self.own + self.sent_on
    }

    /// The required results for `granted` orders in total.
    pub(super) fn checks(self, granted: u64) -> Vec<(bool, String)> {
        let Self { own, sent_on, .. } = self;
        let (here, elsewhere) = (self.granted, granted.saturating_sub(self.granted));
        vec![
            (
                own > 0 && sent_on > 0,
                format!("the edge answered {own} itself and forwarded {sent_on}"),
            ),
            (
                here > 0 && elsewhere > 0,
                format!("orders: {here} through the edge, {elsewhere} through Envoy"),
            ),
        ]
    }

    pub(super) fn json(self) -> serde_json::Value {
        serde_json::json!({ "own": self.own, "sent_on": self.sent_on, "granted": self.granted })
    }
}

impl Tally {
    pub(super) fn empty() -> anyhow::Result<Self> {
        Ok(Self {
            requests: 0,
            broken: 0,
            gave_up: 0,
            words: BTreeMap::new(),
            statuses: BTreeMap::new(),
            at_edge: AtEdge::default(),
            latency_us: Histogram::new_with_max(LATENCY_MAX_US, LATENCY_DIGITS)?,
        })
    }

    pub(super) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.requests += other.requests;
        self.broken += other.broken;
        self.gave_up += other.gave_up;
        self.at_edge.add(other.at_edge);
        for (word, count) in &other.words {
            *self.words.entry(word.clone()).or_default() += count;
        }
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.latency_us.add(&other.latency_us)?;
        Ok(())
    }

    /// Counts an answer. `good` is the label of a successful answer of the origin, which has none.
    pub(super) fn count(&mut self, answer: &Response, good: &str, elapsed: Duration) {
        let word = answer_label(answer, good);
        match self.words.get_mut(word.as_str()) {
            Some(count) => *count += 1,
            None => _ = self.words.insert(word, 1),
        }
        *self.statuses.entry(answer.status).or_default() += 1;
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.latency_us.saturating_record(micros);
    }

    /// Answers with this verdict of the gate.
    pub(super) fn of(&self, verdict: Verdict) -> u64 {
        self.words.get(verdict.label()).copied().unwrap_or(0)
    }

    /// The latency at this quantile, in milliseconds.
    pub(super) fn latency_ms(&self, quantile: f64) -> f64 {
        self.latency_us.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// The gate's verdict; for an answer of the origin, `good` or the problem's code.
fn answer_label(answer: &Response, good: &str) -> String {
    if let Some(verdict) = answer.header(weir_base::headers::VERDICT) {
        return verdict.to_owned();
    }
    if answer.status < 300 {
        return good.to_owned();
    }
    let body = answer.json().unwrap_or_default();
    body["error"].as_str().unwrap_or(NO_WORD).to_owned()
}

/// What people observed, and what bots observed.
#[derive(Debug, Clone)]
pub(super) struct Tallies {
    pub(super) people: Tally,
    pub(super) bots: Tally,
}

/// One line of the table: a label, and its counts for people and bots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) word: String,
    pub(super) people: u64,
    pub(super) bots: u64,
}

impl Tallies {
    pub(super) fn empty() -> anyhow::Result<Self> {
        Ok(Self {
            people: Tally::empty()?,
            bots: Tally::empty()?,
        })
    }

    pub(super) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.people.add(&other.people)?;
        self.bots.add(&other.bots)
    }

    pub(super) fn requests(&self) -> u64 {
        self.people.requests + self.bots.requests
    }

    /// The gate's verdicts, in the order of its checks.
    pub(super) fn verdicts(&self) -> Vec<Row> {
        let received = |word: &&str| {
            self.people.words.contains_key(*word) || self.bots.words.contains_key(*word)
        };
        let words = Verdict::ALL.iter().map(|verdict| verdict.label());
        words.filter(received).map(|word| self.row(word)).collect()
    }

    /// The origin's answers by label.
    pub(super) fn origin(&self) -> Vec<Row> {
        let is_verdict = |word: &str| Verdict::ALL.iter().any(|verdict| verdict.label() == word);
        self.rows(|word| !is_verdict(word) && !room::is_word(word))
    }

    /// The waiting room's answers by label.
    pub(super) fn room(&self) -> Vec<Row> {
        self.rows(room::is_word)
    }

    fn rows(&self, is_asked_for: impl Fn(&str) -> bool) -> Vec<Row> {
        let mut words: Vec<_> = self
            .people
            .words
            .keys()
            .chain(self.bots.words.keys())
            .collect();
        words.sort();
        words.dedup();
        let words = words.into_iter().filter(|word| is_asked_for(word));
        words.map(|word| self.row(word)).collect()
    }

    fn row(&self, word: &str) -> Row {
        let of = |tally: &Tally| tally.words.get(word).copied().unwrap_or(0);
        Row {
            word: word.to_owned(),
            people: of(&self.people),
            bots: of(&self.bots),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_stack::http::{HeaderMap, HeaderValue};

    fn answer(status: u16, verdict: Option<&'static str>, body: &'static str) -> Response {
        let mut headers = HeaderMap::new();
        if let Some(verdict) = verdict {
            headers.insert("x-weir-verdict", HeaderValue::from_static(verdict));
        }
        Response {
            status,
            headers,
            body: body.into(),
        }
    }

    fn tally(answers: &[Response]) -> Tally {
        let mut tally = Tally::empty().unwrap();
        for answer in answers {
            tally.count(answer, "paid", Duration::from_millis(2));
        }
        tally
    }

    #[test]
    fn answers_are_counted_by_label_and_side_in_gate_order() {
        let sold_out = || answer(409, Some("sold_out"), "");
        let late = answer(409, None, r#"{"error":"order_expired"}"#);
        let people = [
            sold_out(),
            answer(201, Some("granted"), ""),
            answer(200, None, "{}"),
            late,
            answer(502, None, "what?"),
        ];
        let mut tallies = Tallies::empty().unwrap();
        let both = Tallies {
            people: tally(&people),
            bots: tally(&[sold_out()]),
        };
        tallies.add(&both).unwrap();
        tallies.add(&both).unwrap();
        let row = |word: &str, people, bots| Row {
            word: word.to_owned(),
            people,
            bots,
        };
        assert_eq!(
            tallies.verdicts(),
            [row("granted", 2, 0), row("sold_out", 2, 2)]
        );
        let origin = [
            row("none", 2, 0),
            row("order_expired", 2, 0),
            row("paid", 2, 0),
        ];
        assert_eq!(tallies.origin(), origin);
        assert_eq!(tallies.people.of(Verdict::SoldOut), 2);
        assert_eq!(tallies.people.statuses.get(&409), Some(&4));
        assert_eq!(tallies.people.latency_us.len(), 10);
    }
}
