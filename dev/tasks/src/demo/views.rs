//! People view products before they buy; then checks each person's history.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use super::cast::Person;
use super::sql::EventBooks;
use super::teller::StoryPrinter;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::sleep;
use weir_stack::Stack;
use weir_stack::http::{self, Connection, Method, Response};

/// The number of products, and the views per person.
const PRODUCTS: u64 = 300;
const VIEWS_EACH: u64 = 4;

/// One in this many events has an unregistered type.
const WRONG_EVERY: usize = 1_000;

/// Events per request, as a shop's server sends them, and concurrent requests.
const BATCH: usize = 200;
const AT_ONCE: usize = 16;

/// The maximum wait until all events are handled, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
const RETRY: Duration = Duration::from_millis(100);

/// The products that a person viewed: each one's last view, in milliseconds since the Unix epoch.
type ViewedProducts = BTreeMap<String, u64>;

/// The results.
#[derive(Debug, Default)]
pub(super) struct Browsing {
    /// Events sent, acknowledged and refused.
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    pub(super) refused: u64,
    /// Events and dead letters in SQL.
    pub(super) balance: EventBooks,
    /// People, and those whose history matches their views exactly.
    pub(super) people: u64,
    pub(super) displayed: u64,
    /// The time until all events were acknowledged, and until all were handled.
    elapsed: Duration,
    handled_after: Duration,
}

/// The address of the events gateway.
struct CollectAddress {
    authority: String,
    key: String,
}

/// Lets `people` view products, with a gateway for events on `port`, and compares each history with the views.
pub(super) async fn play(
    stack: &Mutex<Stack>,
    port: u16,
    people: &[Person],
    teller: &mut StoryPrinter,
) -> Result<Browsing> {
    let gateway = stack.lock().await.start_event_gateway(port).await?;
    register(&*stack.lock().await).await?;
    let (events, model) = script(people)?;
    let route = Arc::new(CollectAddress {
        authority: gateway.trim_start_matches("http://").to_owned(),
        key: stack.lock().await.event_key.clone(),
    });
    // A kept data folder contains those of an earlier demo.
    let before = EventBooks::read(stack.lock().await.database_path()).await?;
    let began = Instant::now();
    let (acknowledged, refused) = send(&route, &events).await?;
    let elapsed = began.elapsed();
    let rate = acknowledged as f64 / elapsed.as_secs_f64().max(f64::EPSILON);
    let text = format!(
        "{acknowledged} views of {} people are on disk, {rate:.0}/s; {refused} invalid ones refused",
        people.len()
    );
    teller.tell("browsing", text);
    let balance = handled(stack, before, acknowledged).await?;
    let handled_after = began.elapsed();
    let model = Arc::new(model);
    let displayed = compare(stack, &model).await?;
    let text = format!("{displayed} of {} people see what they viewed", model.len());
    teller.tell("history", text);
    Ok(Browsing {
        sent: events.len() as u64,
        acknowledged,
        refused,
        balance,
        people: model.len() as u64,
        displayed,
        elapsed,
        handled_after,
    })
}

/// Registers the event type, or accepts that an earlier demo registered it.
async fn register(stack: &Stack) -> Result<()> {
    let sku = json!({ "type": "integer" });
    let schema = json!({ "type": "object", "required": ["sku"], "properties": { "sku": sku } });
    let body = json!({ "schema": schema }).to_string();
    let url = format!("{}/events/types/view", stack.origin_admin_url());
    let token = format!("Bearer {}", stack.admin_token);
    let headers = [
        ("authorization", token.as_str()),
        ("content-type", "application/json"),
    ];
    let answer = http::send(Method::PUT, &url, &headers, body).await?;
    ensure!(matches!(answer.status, 200 | 201), "{}", answer.text());
    Ok(())
}

/// The events in sending order, and the expected histories.
fn script(people: &[Person]) -> Result<(Vec<Value>, BTreeMap<String, ViewedProducts>)> {
    let now_ms = std::time::UNIX_EPOCH.elapsed()?.as_millis();
    let first_ms = u64::try_from(now_ms)? - 3_600_000;
    let mut model = BTreeMap::<String, ViewedProducts>::new();
    let mut events = Vec::new();
    for round in 0..VIEWS_EACH {
        for (number, person) in (0..).zip(people) {
            let at_ms = first_ms + round * 60_000 + number;
            // Some people return to viewed products.
            let sku = (number * 7 + round * round * 13) % PRODUCTS;
            if events.len() % WRONG_EVERY == WRONG_EVERY - 1 {
                events.push(json!({ "type": "veiw", "customer": person.name, "at_ms": at_ms }));
            }
            events.push(json!({
                "id": format!("demo-{first_ms}-{round}-{number}"),
                "type": "view",
                "customer": person.name,
                "at_ms": at_ms,
                "attributes": { "sku": sku },
            }));
            let observed = model.entry(person.name.clone()).or_default();
            observed.insert(sku.to_string(), at_ms);
        }
    }
    Ok((events, model))
}

/// Sends all events. Returns the numbers of acknowledged and refused events.
async fn send(route: &Arc<CollectAddress>, events: &[Value]) -> Result<(u64, u64)> {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut sending = JoinSet::new();
    for batch in events.chunks(BATCH) {
        let turn = room.clone().acquire_owned().await?;
        let (route, body) = (route.clone(), serde_json::to_string(batch)?);
        sending.spawn(async move {
            let reply = route.send(&body).await;
            drop(turn);
            reply
        });
    }
    let (mut acknowledged, mut refused) = (0, 0);
    while let Some(reply) = sending.join_next().await {
        let reply = reply??;
        let count = |name: &str| {
            reply[name]
                .as_u64()
                .with_context(|| format!("no {name}: {reply}"))
        };
        acknowledged += count("accepted")? + count("duplicates")?;
        refused += count("rejected")?;
    }
    Ok((acknowledged, refused))
}

impl CollectAddress {
    /// Retries like a client: sends the same events until there is an answer, which is idempotent.
    async fn send(&self, body: &str) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.send_once(body).await {
                Ok(answer) if answer.status == 202 => return answer.json(),
                Ok(answer) if !matches!(answer.status, 429 | 503 | 504) => {
                    anyhow::bail!(
                        "the answer to events was {}: {}",
                        answer.status,
                        answer.text()
                    )
                }
                Ok(_) | Err(_) => sleep(RETRY).await,
            }
            ensure!(Instant::now() < deadline, "events were not acknowledged");
        }
    }

    async fn send_once(&self, body: &str) -> Result<Response> {
        let headers = [
            ("content-type", "application/json"),
            ("x-weir-write-key", self.key.as_str()),
        ];
        let mut connection = Connection::open(&self.authority).await?;
        let sent = connection.send(Method::POST, "/events", &headers, body.to_owned());
        sent.await
    }
}

/// SQL's increase since `before`, once it has all events and no group is behind, or after a timeout.
async fn handled(stack: &Mutex<Stack>, before: EventBooks, events: u64) -> Result<EventBooks> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stack = stack.lock().await;
        let balance = EventBooks::read(stack.database_path()).await?.since(before);
        let groups = stack.admin(Method::GET, "/groups", "", 200).await?;
        let groups = groups["groups"].as_array().context("no groups")?;
        let behind = |group: &Value| group["lag_bytes"] != 0 || group["retries"] != 0;
        if (balance.events >= events && !groups.iter().any(behind)) || Instant::now() >= deadline {
            return Ok(balance);
        }
        drop(stack);
        sleep(POLL).await;
    }
}

/// The number of people whose history matches their views exactly, latest first. The operator's route is used, because
/// the gateway limits requests per address.
async fn compare(
    stack: &Mutex<Stack>,
    model: &Arc<BTreeMap<String, ViewedProducts>>,
) -> Result<u64> {
    let (authority, token) = {
        let stack = stack.lock().await;
        let url = stack.origin_admin_url();
        let authority = url.trim_start_matches("http://").to_owned();
        (authority, format!("Bearer {}", stack.admin_token))
    };
    // Sequential requests would take half a minute.
    let mut parts = JoinSet::new();
    for first in 0..AT_ONCE {
        let (model, authority, token) = (model.clone(), authority.clone(), token.clone());
        parts.spawn(async move { compare_every(&model, first, &authority, &token).await });
    }
    let mut right = 0;
    while let Some(part) = parts.join_next().await {
        right += part??;
    }
    Ok(right)
}

/// The same for the people `first`, `first + AT_ONCE` and so on, over one connection.
async fn compare_every(
    model: &BTreeMap<String, ViewedProducts>,
    first: usize,
    authority: &str,
    token: &str,
) -> Result<u64> {
    let mut connection = Connection::open(authority).await?;
    let mut right = 0;
    for (person, observed) in model.iter().skip(first).step_by(AT_ONCE) {
        let path = format!("/history?user={person}&limit=200");
        let headers = [("authorization", token)];
        let answer = connection.send(Method::GET, &path, &headers, "").await?;
        ensure!(answer.status == 200, "{}", answer.text());
        right += u64::from(is_shown(&answer.json()?, observed));
    }
    Ok(right)
}

fn is_shown(list: &Value, products: &ViewedProducts) -> bool {
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    let times: Vec<_> = items
        .iter()
        .map(|item| item["viewed_at_ms"].as_u64())
        .collect();
    let is_its = |item: &Value| {
        let at_ms = item["sku"].as_str().and_then(|sku| products.get(sku));
        at_ms.is_some() && at_ms.copied() == item["viewed_at_ms"].as_u64()
    };
    list["complete"] == true
        && items.len() == products.len()
        && items.iter().all(is_its)
        && times.is_sorted_by(|later, earlier| later >= earlier)
}

impl Browsing {
    /// The required results: whether each holds, and a description.
    pub(super) fn checks(&self) -> [(bool, String); 3] {
        let Self {
            sent,
            acknowledged,
            refused,
            balance,
            people,
            displayed,
            ..
        } = self;
        [
            (
                *sent == acknowledged + refused && balance.dead_letters == *refused,
                format!(
                    "events: {sent} sent = {acknowledged} acknowledged + {refused} refused (dead letters)"
                ),
            ),
            (
                balance.events == *acknowledged,
                format!(
                    "{} of {acknowledged} acknowledged events handled",
                    balance.events
                ),
            ),
            (
                displayed == people,
                format!("{displayed} of {people} people see what they viewed"),
            ),
        ]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "refused": self.refused,
            "handled": self.balance.events,
            "dead_letters": self.balance.dead_letters,
            "people": self.people,
            "people_shown_what_they_saw": self.displayed,
            "took_s": self.elapsed.as_secs_f64(),
            "handled_after_s": self.handled_after.as_secs_f64(),
        })
    }
}

#[cfg(test)]
impl Browsing {
    /// A successful result for tests.
    pub(super) fn good() -> Self {
        Self {
            sent: 101,
            acknowledged: 100,
            refused: 1,
            balance: EventBooks {
                events: 100,
                dead_letters: 1,
            },
            people: 10,
            displayed: 10,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_extra_event_or_person_is_reported() {
        type Fault = fn(&mut Browsing);
        let faults: [(Fault, [bool; 3]); 6] = [
            (|_| {}, [true, true, true]),
            (|b| b.sent = 102, [false, true, true]),
            (|b| b.balance.dead_letters = 0, [false, true, true]),
            (|b| b.balance.events = 99, [true, false, true]),
            (|b| b.balance.events = 101, [true, false, true]),
            (|b| b.displayed = 9, [true, true, false]),
        ];
        for (fault, expected) in faults {
            let mut browsing = Browsing::good();
            fault(&mut browsing);
            assert_eq!(browsing.checks().map(|(holds, _)| holds), expected);
        }
    }

    #[test]
    fn history_list_must_be_complete_and_latest_first() {
        let products = ViewedProducts::from([("7".to_owned(), 20), ("9".to_owned(), 10)]);
        let list = |items: &[(&str, u64)], complete: bool| {
            let item = |(sku, at_ms): &(&str, u64)| json!({ "sku": sku, "viewed_at_ms": at_ms });
            json!({ "items": items.iter().map(item).collect::<Vec<_>>(), "complete": complete })
        };
        assert!(is_shown(&list(&[("7", 20), ("9", 10)], true), &products));
        for wrong in [
            list(&[("7", 20), ("9", 10)], false),
            list(&[("9", 10), ("7", 20)], true),
            list(&[("7", 20)], true),
            list(&[("7", 20), ("9", 11)], true),
            list(&[("7", 20), ("8", 10)], true),
        ] {
            assert!(!is_shown(&wrong, &products), "{wrong}");
        }
    }
}
