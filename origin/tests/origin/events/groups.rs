//! Consumer groups: order, retries, dead letters, outages, seeks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use weir_event::envelope::Envelope;
use weir_origin::background::Backoff;
use weir_origin::events::Settings;
use weir_origin::events::groups::{
    Delivery, HandleFuture, Handler, NewGroup, Outcome, RecomputeFuture, Unit,
};

use super::*;

/// A handler that records its events and fails as its test configures it.
#[derive(Debug, Default)]
pub(super) struct RecordingHandler {
    /// Handled event ids in order, by customer.
    handled: Mutex<BTreeMap<String, Vec<String>>>,
    /// Ids that fail.
    poisoned: Mutex<BTreeSet<String>>,
    /// Ids that are refused.
    refused: Mutex<BTreeSet<String>>,
    /// Ids that cause a panic.
    panics: Mutex<BTreeSet<String>>,
    /// Whether all events fail.
    is_down: AtomicBool,
    /// Whether calls never return.
    hangs: AtomicBool,
    /// Recomputed customers, with the ids of their events.
    recomputed: Mutex<BTreeMap<String, Vec<String>>>,
    /// Number of attempts by id.
    tries: Mutex<BTreeMap<String, usize>>,
}

impl RecordingHandler {
    pub(super) fn of(&self, customer: &str) -> Vec<String> {
        let handled = self.handled.lock().unwrap();
        handled.get(customer).cloned().unwrap_or_default()
    }

    fn all(&self) -> Vec<String> {
        let handled = self.handled.lock().unwrap();
        let mut all: Vec<String> = handled.values().flatten().cloned().collect();
        all.sort();
        all
    }

    fn tries(&self, id: &str) -> usize {
        self.tries.lock().unwrap().get(id).copied().unwrap_or(0)
    }

    pub(super) fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::Relaxed);
    }

    fn down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    fn poison(&self, id: &str) {
        self.poisoned.lock().unwrap().insert(id.to_owned());
    }

    fn cure(&self) {
        self.poisoned.lock().unwrap().clear();
    }

    fn one(&self, event: &Delivery) -> Outcome {
        let id = event.envelope.id.as_str().to_owned();
        *self.tries.lock().unwrap().entry(id.clone()).or_default() += 1;
        let is_poisoned = self.poisoned.lock().unwrap().contains(&id);
        if is_poisoned || self.is_down.load(Ordering::Relaxed) {
            return Outcome::Failed(format!("{id} cannot be handled"));
        }
        if self.refused.lock().unwrap().contains(&id) {
            return Outcome::Refused("never".to_owned());
        }
        let customer = event
            .envelope
            .customer
            .as_ref()
            .unwrap()
            .as_str()
            .to_owned();
        let mut handled = self.handled.lock().unwrap();
        handled.entry(customer).or_default().push(id);
        Outcome::Done
    }
}

impl Handler for RecordingHandler {
    fn handle<'a>(&'a self, events: &'a [Delivery]) -> HandleFuture<'a> {
        Box::pin(async move {
            if self.hangs.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let panics = self.panics.lock().unwrap().clone();
            if events
                .iter()
                .any(|event| panics.contains(event.envelope.id.as_str()))
            {
                panic!("as the test wants it");
            }
            let customers: BTreeSet<_> = events
                .iter()
                .map(|event| &event.envelope.customer)
                .collect();
            assert_eq!(
                customers.len(),
                events.len(),
                "two events of one customer at a time"
            );
            events.iter().map(|event| self.one(event)).collect()
        })
    }

    fn can_recompute(&self) -> bool {
        true
    }

    fn recompute<'a>(
        &'a self,
        unit: &'a Unit,
        events: &'a [Envelope],
    ) -> Option<RecomputeFuture<'a>> {
        let ids = events
            .iter()
            .map(|event| event.id.as_str().to_owned())
            .collect();
        let Unit::Customer(customer) = unit else {
            panic!("{unit:?}")
        };
        self.recomputed
            .lock()
            .unwrap()
            .insert(customer.clone(), ids);
        Some(Box::pin(async { Ok(()) }))
    }
}

/// Shortens all intervals.
pub(super) fn hurried(settings: &mut Settings) {
    settings.times.retries_after_ms = [20, 20, 20, 20, 20];
    settings.times.recompute_after_ms = 20;
    settings.times.look = Duration::from_millis(20);
    settings.times.handle_max = Duration::from_millis(300);
    settings.times.outage = Backoff::constant(Duration::from_millis(20));
}

/// Adds a group `noting`.
pub(super) async fn with_noting(
    change: impl FnOnce(&mut Settings),
) -> (World, Arc<RecordingHandler>) {
    let noting = Arc::new(RecordingHandler::default());
    let handler = noting.clone();
    let world = world(|settings| {
        hurried(settings);
        settings.groups.push(NewGroup::new("noting", handler));
        change(settings);
    })
    .await;
    (world, noting)
}

fn views(customer: &str, count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| view(&format!("{customer}-{n}"), customer))
        .collect()
}

fn names(customer: &str, range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("{customer}-{n}")).collect()
}

async fn post(world: &World, path: &str, body: &Value) -> Value {
    let answer = world.admin("POST", path, body).await;
    assert!(answer.status.is_success(), "{answer:?}");
    answer.body
}

async fn until_state(world: &World, name: &str, state: &str) {
    until(state, async || group(world, name).await["state"] == state).await;
}

#[tokio::test]
async fn customers_keep_their_order_behind_an_event_that_fails() {
    let (world, noting) = with_noting(|settings| {
        settings.times.retries_after_ms = [20, 20, 20, 3_600_000, 3_600_000];
    })
    .await;
    noting.poison("alice-1");
    let mut all = [views("alice", 4), views("bob", 30)].concat();
    send(&world, &server(), &json!(all)).await;
    until("bob", async || noting.of("bob").len() == 30).await;
    until("alice waits", async || {
        group(&world, "noting").await["retries"] == 3
    })
    .await;
    // Later events wait, too.
    all = vec![view("alice-4", "alice"), view("carol-0", "carol")];
    send(&world, &server(), &json!(all)).await;
    until("carol", async || noting.of("carol").len() == 1).await;
    until("tried three times again", async || {
        noting.tries("alice-1") == 4
    })
    .await;
    assert_eq!(noting.of("alice"), names("alice", 0..1));
    let waiting = world
        .admin("GET", "/groups/noting/retries", &Value::Null)
        .await
        .body;
    let waiting = waiting["retries"].as_array().unwrap();
    assert_eq!(waiting.len(), 4);
    assert_eq!(waiting[0]["error"], "alice-1 cannot be handled");
    assert!(waiting[1]["due_ms"].is_null());
    noting.cure();
    until("the last try is noted", async || {
        post(&world, "/groups/noting/retries/now", &Value::Null).await;
        noting.of("alice").len() == 5
    })
    .await;
    assert_eq!(noting.of("alice"), names("alice", 0..5));
    assert_eq!(noting.of("bob"), names("bob", 0..30));
    until_caught_up(&world, "noting").await;
    assert!(dead_letters(&world, "").await.is_empty());
}

#[tokio::test]
async fn failing_event_is_dead_lettered_and_its_customer_recomputed() {
    let (world, noting) = with_noting(|_| {}).await;
    noting.poison("alice-1");
    let all = [views("alice", 4), views("bob", 10)].concat();
    send(&world, &server(), &json!(all)).await;
    let letters = until_dead(&world, "group=noting", 1).await;
    assert_eq!(noting.tries("alice-1"), 6, "once, and five times again");
    assert_eq!(letters[0]["reason"], "tries");
    assert_eq!(letters[0]["message"], "alice-1 cannot be handled");
    assert_eq!(letters[0]["event"]["id"], "alice-1");
    until("those behind it", async || noting.of("alice").len() == 3).await;
    assert_eq!(noting.of("alice"), ["alice-0", "alice-2", "alice-3"]);
    until("computed anew", async || {
        noting
            .recomputed
            .lock()
            .unwrap()
            .get("alice")
            .is_some_and(|ids| *ids == names("alice", 0..4))
    })
    .await;
    until("and done", async || {
        group(&world, "noting").await["compensations"] == 0
    })
    .await;
    // The cause is fixed: the group retries the event once more.
    noting.cure();
    let id = letters[0]["id"].as_str().unwrap();
    let resent = post(
        &world,
        &format!("/events/dead-letters/{id}/resend"),
        &Value::Null,
    )
    .await;
    assert_eq!(resent, json!({"retried": true}));
    until("handled at last", async || noting.of("alice").len() == 4).await;
    assert!(dead_letters(&world, "").await.is_empty());
}

#[tokio::test]
async fn rejected_event_is_not_retried_and_blocks_no_other() {
    let (world, noting) = with_noting(|_| {}).await;
    noting.refused.lock().unwrap().insert("alice-0".to_owned());
    send(
        &world,
        &server(),
        &json!([views("alice", 2), views("bob", 5)].concat()),
    )
    .await;
    let letters = until_dead(&world, "group=noting", 1).await;
    assert_eq!(
        (&letters[0]["reason"], noting.tries("alice-0")),
        (&json!("refused"), 1)
    );
    until("the next", async || noting.of("alice") == ["alice-1"]).await;
}

#[tokio::test]
async fn outage_uses_no_retries_and_slows_no_other_group() {
    let other = Arc::new(RecordingHandler::default());
    let handler = other.clone();
    let (world, noting) = with_noting(|settings| {
        settings.groups.push(NewGroup::new("other", handler));
    })
    .await;
    noting.down(true);
    let customers = ["alice", "bob", "carol", "dave", "erin", "frank"];
    let all = customers.map(|customer| views(customer, 5)).concat();
    send(&world, &server(), &json!(all)).await;
    until_caught_up(&world, "other").await;
    assert_eq!(other.all().len(), 30);
    until_state(&world, "noting", "outage").await;
    until("tried many times", async || noting.tries("alice-0") > 10).await;
    let down = group(&world, "noting").await;
    assert!(
        down["error"]
            .as_str()
            .unwrap()
            .ends_with("cannot be handled"),
        "{down}"
    );
    assert!(
        down["oldest_age_ms"].is_u64() && down["lag_bytes"] != 0,
        "{down}"
    );
    noting.down(false);
    until_caught_up(&world, "noting").await;
    assert_eq!(noting.all(), other.all());
    for customer in ["alice", "frank"] {
        assert_eq!(noting.of(customer), names(customer, 0..5));
    }
    assert!(dead_letters(&world, "").await.is_empty());
    until_state(&world, "noting", "running").await;
}

#[tokio::test]
async fn event_that_panics_its_handler_affects_no_other() {
    let (world, noting) = with_noting(|_| {}).await;
    noting.panics.lock().unwrap().insert("alice-0".to_owned());
    let all = ["bob", "carol", "dave", "erin", "alice"]
        .map(|name| views(name, 2))
        .concat();
    send(&world, &server(), &json!(all)).await;
    let letters = until_dead(&world, "group=noting", 1).await;
    assert_eq!(letters[0]["message"], "the handler panicked");
    until("all others", async || noting.all().len() == 9).await;
}

#[tokio::test]
async fn group_is_paused_and_moved_and_dry_run_shows_the_distance() {
    let (world, noting) = with_noting(|_| {}).await;
    send(&world, &server(), &json!(views("alice", 3))).await;
    until("handled", async || noting.all().len() == 3).await;
    post(&world, "/groups/noting/pause", &Value::Null).await;
    until_state(&world, "noting", "paused").await;
    let between = now_ms() + 1;
    until("later", async || now_ms() > between).await;
    send(&world, &server(), &json!(views("bob", 2))).await;
    until_caught_up(&world, "store").await;
    assert_eq!(noting.all().len(), 3, "paused");

    let dry = |target: Value| {
        let mut body = target;
        body["dry_run"] = true.into();
        body
    };
    let path = "/groups/noting/seek";
    let back = post(&world, path, &dry(json!({"to": "start"}))).await;
    assert_eq!(
        (&back["sources"][0]["again"], &back["sources"][0]["skipped"]),
        (&json!(3), &json!(0))
    );
    let ahead = post(&world, path, &dry(json!({"to": "end"}))).await;
    assert_eq!(
        (
            &ahead["sources"][0]["again"],
            &ahead["sources"][0]["skipped"]
        ),
        (&json!(0), &json!(2))
    );
    let time = post(&world, path, &dry(json!({"time_ms": between}))).await;
    assert_eq!(time["sources"][0]["skipped"], 0, "{time}");
    let position = time["sources"][0]["to"].clone();
    assert_eq!(noting.all().len(), 3, "a dry run moves nothing");

    post(&world, path, &json!({"to": "end"})).await;
    post(&world, "/groups/noting/resume", &Value::Null).await;
    until_caught_up(&world, "noting").await;
    send(&world, &server(), &json!(views("carol", 1))).await;
    until("carol", async || noting.of("carol").len() == 1).await;
    assert_eq!(noting.all().len(), 4, "bob was skipped");

    // While it is running and idle.
    post(&world, path, &json!({"position": position})).await;
    until("bob", async || noting.of("bob").len() == 2).await;
    post(&world, path, &json!({"to": "start"})).await;
    until("all once more", async || noting.of("alice").len() == 6).await;
    until_caught_up(&world, "noting").await;
    assert_eq!(
        noting.of("alice"),
        [names("alice", 0..3), names("alice", 0..3)].concat()
    );
    for bad in [json!({}), json!({"to": "start", "time_ms": 1})] {
        assert_eq!(world.admin("POST", path, &bad).await.status, 422);
    }
    assert_eq!(
        world
            .admin("GET", "/groups/none", &Value::Null)
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn seek_to_deleted_events_reports_the_first_position() {
    let (world, noting) = with_noting(|settings| {
        settings.limits.file_len = 1_000;
        settings.retention.age_ms = 0;
        settings.retention.bytes_max = 0;
    })
    .await;
    let before = now_ms();
    for round in 0..20 {
        send(
            &world,
            &server(),
            &json!(view(&format!("e{round}"), "alice")),
        )
        .await;
    }
    until("handled", async || noting.all().len() == 20).await;
    for name in ["noting", "store"] {
        until_caught_up(&world, name).await;
    }
    let log = world.origin.events().unwrap().log().clone();
    log.retain(now_ms() + 1).unwrap();
    let path = "/groups/noting/seek";
    let query = async |mut target: Value| {
        target["dry_run"] = true.into();
        post(&world, path, &target).await["sources"][0].clone()
    };
    // Keep one event, otherwise its time would be unknown.
    send(&world, &server(), &json!(view("last", "alice"))).await;
    let start = query(json!({"to": "start"})).await;
    assert_eq!(start["begins_ms"], Value::Null);
    assert_ne!(start["to"], 0, "{start}");
    for removed in [json!({"position": 1}), json!({"time_ms": 1})] {
        let reply = query(removed).await;
        assert_eq!(reply["to"], start["to"]);
        let begins_ms = reply["begins_ms"].as_u64().unwrap();
        assert!((before..=now_ms()).contains(&begins_ms), "{reply}");
    }
    let later = query(json!({"time_ms": now_ms() + 60_000})).await;
    assert_eq!(later["begins_ms"], Value::Null);
}

#[tokio::test]
async fn replay_of_all_events_stores_no_duplicates() {
    let (world, _) = with_noting(|_| {}).await;
    send(&world, &server(), &json!(views("alice", 20))).await;
    send(&world, &browser(), &json!({"type": "none"})).await;
    until_caught_up(&world, "store").await;
    until_dead(&world, "", 1).await;
    let before = stored(&world, "alice").await;
    post(&world, "/groups/store/seek", &json!({"to": "start"})).await;
    send(&world, &server(), &json!(view("last", "alice"))).await;
    until("the last", async || {
        stored(&world, "alice").await.len() == 21
    })
    .await;
    assert_eq!(stored(&world, "alice").await[..20], before);
    assert_eq!(dead_letters(&world, "").await.len(), 1);
}

#[tokio::test]
async fn next_process_resumes_at_the_last_group_position() {
    let (world, noting) = with_noting(|settings| {
        settings.times.retries_after_ms = [3_600_000; 5];
    })
    .await;
    noting.poison("alice-1");
    send(
        &world,
        &server(),
        &json!([views("alice", 3), views("bob", 9)].concat()),
    )
    .await;
    until("alice waits", async || {
        group(&world, "noting").await["retries"] == 2
    })
    .await;
    post(&world, "/groups/noting/pause", &Value::Null).await;
    until_state(&world, "noting", "paused").await;
    send(&world, &server(), &json!(views("carol", 1))).await;

    let next = Arc::new(RecordingHandler::default());
    let handler = next.clone();
    let world = world
        .with_events_again(|settings| {
            hurried(settings);
            settings.groups.push(NewGroup::new("noting", handler));
        })
        .await;
    until_state(&world, "noting", "paused").await;
    post(&world, "/groups/noting/resume", &Value::Null).await;
    until("carol", async || next.of("carol").len() == 1).await;
    post(&world, "/groups/noting/retries/now", &Value::Null).await;
    until("alice", async || next.of("alice").len() == 2).await;
    assert_eq!(
        next.all(),
        ["alice-1", "alice-2", "carol-0"],
        "nothing else comes again"
    );
    let types = world.admin("GET", "/events/types", &Value::Null).await.body;
    assert_eq!(types["types"][0]["name"], "view");
}

#[tokio::test]
async fn group_receives_only_its_topics() {
    let noting = Arc::new(RecordingHandler::default());
    let mut some = NewGroup::new("some", noting.clone());
    some.topics = Some(BTreeSet::from(["mail".to_owned()]));
    let world = world(|settings| {
        hurried(settings);
        settings.groups.push(some);
    })
    .await;
    let routes = json!([{"if": {"/attributes/from": "mail"}, "topics": ["events", "mail"]}]);
    put_type(&world, "view", &json!({"routes": routes})).await;
    let mut mail = view("a", "alice");
    mail["attributes"]["from"] = "mail".into();
    send(
        &world,
        &server(),
        &json!([view("b", "bob"), mail, view("c", "bob")]),
    )
    .await;
    until_caught_up(&world, "some").await;
    assert_eq!(noting.all(), ["a"]);
}

#[tokio::test]
async fn invalid_or_reserved_group_name_is_refused() {
    for name in ["store", "", "Upper", "a.b"] {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(dir.path().join("events"));
        settings
            .groups
            .push(NewGroup::new(name, Arc::new(RecordingHandler::default())));
        let world = World::on("redis://127.0.0.1:1").await;
        let refused = world
            .origin
            .with_events(settings)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("is not a valid consumer group name"),
            "{refused}"
        );
    }
}
