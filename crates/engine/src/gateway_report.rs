//! Reports what an engine runs to operators, in Redis.
//!
//! [`Reporting`] is an engine around another one: on some ticks, it sends what the engine [describes](Engine::describe).
//! Requests never cause a report, and none waits for one.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_base::hash::stable_hash;
use weir_scripts::gateway_report::{self, BYTES_MAX};
use weir_scripts::{keys, tally};

use crate::effect::{BatchId, Effects, Level};
use crate::event::{Event, Request};
use crate::metrics::Metrics;
use crate::redis::read;
use crate::setup::{ConfiguredEngine, Host, shared_seed};
use crate::{EarlyDecision, Engine};

/// The time from the first tick to the first report, in milliseconds.
const FIRST_MS: u64 = 3_000;

/// The interval between reports, in milliseconds: less than a minute, so that every minute has one.
const INTERVAL_MS: u64 = 45_000;

/// The time from a change to its report, in milliseconds.
const CHANGE_MS: u64 = 1_000;

/// The timeout of a call, in milliseconds.
const TIMEOUT_MS: u64 = 1_000;

/// The maximum number of items in a report.
pub const ITEMS_MAX: usize = 64;

/// The maximum length of names and texts, in bytes.
const TEXT_MAX: usize = 96;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A rate limit.
    Rule,
    /// A waiting room.
    Room,
    /// Requests that the engine handles.
    Route,
    /// An item of a newer gateway.
    #[serde(other)]
    Other,
}

/// A named part of what an engine runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedItem {
    /// What it is.
    pub kind: ItemKind,
    /// Its name.
    pub name: String,
    /// Its most important settings, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Its most important numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, u64>,
    /// A hash of all its settings.
    pub digest: String,
}

impl ReportedItem {
    /// An item. Long names and texts are cut. `digest`: a hash of all its settings.
    pub fn new(kind: ItemKind, name: &str, text: &str, digest: u64) -> Self {
        Self {
            kind,
            name: bounded(name).into(),
            text: bounded(text).into(),
            numbers: BTreeMap::new(),
            digest: hex(digest),
        }
    }

    /// Adds numbers.
    #[must_use]
    pub fn with_numbers<'a>(mut self, numbers: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let named = numbers
            .into_iter()
            .map(|(name, value)| (name.into(), value));
        self.numbers.extend(named);
        self
    }
}

/// What an engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The prefix of its keys in Redis.
    pub key_prefix: String,
    /// Its items, the most important first.
    pub items: Vec<ReportedItem>,
}

/// The report of one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayReport {
    /// The gateway's name; empty if it has none.
    pub gateway: String,
    /// The gateway's process: two processes with one name differ here.
    pub process: String,
    /// The engine.
    pub filter: String,
    /// The version of the engine.
    pub version: String,
    /// A hash of the configuration as text.
    pub configuration: String,
    /// The time of the report, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What it runs.
    pub items: Vec<ReportedItem>,
    /// The number of items that did not fit.
    pub left_out: usize,
}

impl GatewayReport {
    /// The report's field in Redis.
    fn reporter(&self) -> String {
        let parts = [
            &self.gateway,
            &self.filter,
            &self.process,
            &self.configuration,
        ];
        tally::name(&parts.map(String::as_str))
    }

    /// Takes as many items as fit, and encodes the report.
    fn encode(mut self, mut items: Vec<ReportedItem>) -> Option<Vec<u8>> {
        let count = items.len();
        items.truncate(ITEMS_MAX);
        self.items = items;
        loop {
            self.left_out = count - self.items.len();
            let json = serde_json::to_vec(&self).ok()?;
            if json.len() + self.reporter().len() <= BYTES_MAX {
                return Some(json);
            }
            let half = self.items.len() / 2;
            if self.items.is_empty() {
                return None;
            }
            self.items.truncate(half);
        }
    }
}

/// An engine that reports what it runs.
#[derive(Debug)]
pub struct Reporting<E> {
    engine: E,
    /// Without time and items.
    report: GatewayReport,
    revision: u64,
    due_ms: Option<u64>,
    under_way: Option<BatchId>,
    is_failing: bool,
}

impl<E: Engine> Reporting<E> {
    /// Wraps an engine that was configured with `json`.
    pub fn wrap(
        configured: ConfiguredEngine<E>,
        json: &[u8],
        host: &impl Host,
    ) -> ConfiguredEngine<Self> {
        let report = GatewayReport {
            gateway: bounded(&host.gateway_name()).into(),
            process: hex(shared_seed(host, "gateway")),
            filter: E::NAME.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            configuration: hex(stable_hash(json)),
            at_ms: 0,
            items: Vec::new(),
            left_out: 0,
        };
        let engine = Self {
            revision: configured.engine.revision(),
            engine: configured.engine,
            report,
            due_ms: None,
            under_way: None,
            is_failing: false,
        };
        ConfiguredEngine {
            engine,
            redis_clusters: configured.redis_clusters,
            rules: configured.rules,
        }
    }

    /// The engine itself, for events of streams, which cause no report.
    pub fn inner(&mut self) -> &mut E {
        &mut self.engine
    }

    fn report_if_due(&mut self, now_ms: u64, effects: &mut Effects) {
        let revision = self.engine.revision();
        if revision != self.revision {
            self.revision = revision;
            let soon_ms = now_ms + CHANGE_MS;
            self.due_ms = self.due_ms.map(|due_ms| due_ms.min(soon_ms));
        }
        let due_ms = *self.due_ms.get_or_insert(now_ms + FIRST_MS);
        // A clock that was set back must not delay it.
        let is_due = now_ms >= due_ms || due_ms - now_ms > INTERVAL_MS;
        if !is_due || self.under_way.is_some() {
            return;
        }
        self.due_ms = Some(now_ms + INTERVAL_MS);
        let Some(description) = self.engine.describe() else {
            return;
        };
        let report = GatewayReport {
            at_ms: now_ms,
            ..self.report.clone()
        };
        let reporter = report.reporter();
        let Some(json) = report.encode(description.items) else {
            return;
        };
        let key = keys::gateways(&description.key_prefix, now_ms);
        let call = gateway_report::call(&key, &reporter, &json);
        let batch = effects.call(TIMEOUT_MS, now_ms, |body| call.encode_eval(body));
        self.under_way = Some(batch);
    }

    fn is_own(&mut self, batch: BatchId) -> bool {
        self.under_way.take_if(|sent| *sent == batch).is_some()
    }

    /// Logs the first failure in a row. The next report comes at its usual time.
    fn note(&mut self, failure: Option<String>, effects: &mut Effects) {
        let was_failing = core::mem::replace(&mut self.is_failing, failure.is_some());
        if let Some(failure) = failure.filter(|_| !was_failing) {
            let text = format!("cannot report this gateway to the console: {failure}");
            effects.log(Level::Info, text);
        }
    }
}

impl<E: Engine> Engine for Reporting<E> {
    const NAME: &'static str = E::NAME;

    fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        match event {
            Event::Tick { now_ms } => {
                self.engine.handle(event, effects);
                self.report_if_due(now_ms, effects);
            }
            Event::RedisReply { batch, reply, .. } if self.is_own(batch) => {
                self.note(failure(reply), effects);
            }
            Event::NotSent { batch } if self.is_own(batch) => {}
            event => self.engine.handle(event, effects),
        }
    }

    fn decide_early(&mut self, request: &dyn Request, trusts_user: bool) -> EarlyDecision {
        self.engine.decide_early(request, trusts_user)
    }

    fn tick_ms(&self) -> Option<u64> {
        self.engine.tick_ms()
    }

    fn metrics(&mut self) -> &mut Metrics {
        self.engine.metrics()
    }
}

fn failure(reply: crate::redis::Reply) -> Option<String> {
    use alloc::string::ToString;
    use weir_base::resp::Value;
    match read(reply, 1) {
        Ok(values) => match values.first() {
            Some(Value::Error(error)) => Some(String::from_utf8_lossy(error).into_owned()),
            Some(Value::Integer(0)) => Some("there are too many gateways".into()),
            _ => None,
        },
        Err(error) => Some(error.to_string()),
    }
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

/// The text, cut to [`TEXT_MAX`] bytes.
fn bounded(text: &str) -> &str {
    let end = (0..=TEXT_MAX.min(text.len())).rev();
    let mut cut = end.filter_map(|end| text.get(..end));
    cut.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use alloc::string::ToString;
    use alloc::vec;

    use weir_base::resp::{Value, decode};
    use weir_base::shared_data::LocalData;

    use crate::effect::Effect;

    #[derive(Default)]
    struct Plain {
        metrics: Metrics,
        items: Vec<ReportedItem>,
        revision: u64,
        replies: usize,
    }

    impl Engine for Plain {
        const NAME: &'static str = "plain";

        fn handle(&mut self, event: Event<'_>, _: &mut Effects) {
            if let Event::RedisReply { .. } = event {
                self.replies += 1;
            }
        }

        fn tick_ms(&self) -> Option<u64> {
            Some(500)
        }

        fn metrics(&mut self) -> &mut Metrics {
            &mut self.metrics
        }

        fn describe(&self) -> Option<Description> {
            Some(Description {
                key_prefix: "w".into(),
                items: self.items.clone(),
            })
        }

        fn revision(&self) -> u64 {
            self.revision
        }
    }

    struct Gateway;

    impl Host for Gateway {
        type Data = Rc<LocalData>;

        fn data(&self) -> Self::Data {
            Rc::default()
        }

        fn variable(&self, _name: &str) -> Option<Vec<u8>> {
            None
        }

        fn unique_name(&self) -> String {
            String::new()
        }

        fn unguessable(&self) -> u64 {
            0xabc
        }

        fn gateway_name(&self) -> String {
            "gw-1".into()
        }
    }

    fn reporting(items: Vec<ReportedItem>) -> Reporting<Plain> {
        let engine = Plain {
            items,
            ..Plain::default()
        };
        let configured = ConfiguredEngine {
            engine,
            redis_clusters: vec!["r".into()],
            rules: vec![],
        };
        Reporting::wrap(configured, b"{}", &Gateway).engine
    }

    /// The report of a tick, and its call.
    fn tick(engine: &mut Reporting<Plain>, now_ms: u64) -> Option<(BatchId, GatewayReport, usize)> {
        let mut effects = Effects::new();
        engine.handle(Event::Tick { now_ms }, &mut effects);
        match effects.as_slice() {
            [] => None,
            [Effect::Call { batch, body, .. }] => {
                let bytes = effects.bytes(body);
                let (Value::Array(words), _) = decode(bytes).unwrap() else {
                    panic!("not a command");
                };
                let [.., Value::Bulk(reporter), Value::Bulk(json)] = words.as_slice() else {
                    panic!("{words:?}");
                };
                let report = serde_json::from_slice(json).unwrap();
                Some((*batch, report, json.len() + reporter.len()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn reply(engine: &mut Reporting<Plain>, batch: BatchId, reply: &[u8]) -> Vec<Effect> {
        let mut effects = Effects::new();
        let reply = Ok(reply.to_vec());
        let event = Event::RedisReply {
            batch,
            reply,
            now_ms: 0,
        };
        engine.handle(event, &mut effects);
        effects.as_slice().to_vec()
    }

    fn room(name: &str) -> ReportedItem {
        ReportedItem::new(ItemKind::Room, name, "open", stable_hash(name.as_bytes()))
            .with_numbers([("per_minute", 600)])
    }

    #[test]
    fn report_is_sent_after_3_s_then_every_45_s_and_after_changes() {
        let mut engine = reporting(vec![room("shop")]);
        assert_eq!(tick(&mut engine, 10_000), None);
        assert_eq!(tick(&mut engine, 12_999), None);
        let (batch, report, _) = tick(&mut engine, 13_000).unwrap();
        assert_eq!((report.gateway.as_str(), report.at_ms), ("gw-1", 13_000));
        assert_eq!(report.version, env!("CARGO_PKG_VERSION"));
        assert_eq!(report.items, [room("shop")]);
        assert_eq!(tick(&mut engine, 90_000), None, "one is under way");
        reply(&mut engine, batch, b":1\r\n");
        assert_eq!(engine.engine.replies, 0, "the engine did not send it");
        let (batch, ..) = tick(&mut engine, 90_000).unwrap();
        reply(&mut engine, batch, b":1\r\n");
        assert_eq!(tick(&mut engine, 91_000), None);
        engine.engine.revision = 1;
        assert_eq!(tick(&mut engine, 92_000), None);
        let (batch, ..) = tick(&mut engine, 93_000).unwrap();
        reply(&mut engine, batch, b":1\r\n");
        assert!(tick(&mut engine, 1_000).is_some(), "the clock was set back");
    }

    #[test]
    fn other_replies_reach_the_engine() {
        let mut engine = reporting(vec![]);
        reply(&mut engine, BatchId(77), b":1\r\n");
        assert_eq!(engine.engine.replies, 1);
    }

    #[test]
    fn only_first_failure_is_logged() {
        let mut engine = reporting(vec![]);
        tick(&mut engine, 0);
        let (batch, ..) = tick(&mut engine, 3_000).unwrap();
        let logged = reply(&mut engine, batch, b"-NOPERM no\r\n");
        let text = "cannot report this gateway to the console: NOPERM no".to_string();
        assert_eq!(logged, [Effect::Log(Level::Info, text)]);
        let (batch, ..) = tick(&mut engine, 50_000).unwrap();
        assert_eq!(reply(&mut engine, batch, b"-NOPERM no\r\n"), []);
    }

    #[test]
    fn report_is_bounded_in_items_and_bytes() {
        let long = "ü".repeat(300);
        let items: Vec<_> = (0..500).map(|n| room(&format!("{n}{long}"))).collect();
        let mut engine = reporting(items);
        engine.report.gateway = "g".repeat(TEXT_MAX);
        tick(&mut engine, 0);
        let (_, report, bytes) = tick(&mut engine, 3_000).unwrap();
        assert!(bytes <= BYTES_MAX, "{bytes}");
        assert!(report.items.len() >= 16, "{}", report.items.len());
        assert_eq!(report.items.len() + report.left_out, 500);
        assert!(report.items.iter().all(|item| item.name.len() <= TEXT_MAX));
    }

    #[test]
    fn unknown_kind_of_a_newer_gateway_is_readable() {
        let item = r#"{"kind":"shard","name":"a","digest":"0"}"#;
        let item: ReportedItem = serde_json::from_str(item).unwrap();
        assert_eq!(item.kind, ItemKind::Other);
    }
}
