//! Who has reserved is scored; who scores too high is blocked. The risk service misbehaves.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use weir_base::breaker::Settings;
use weir_base::id::{SaleId, UserId};
use weir_origin::clock::now_ms;
use weir_origin::sales::risk::{
    HttpScorer, HttpSettings, RiskScorer, RiskWorker, Round, Rules, ScoreError, ScoreFuture,
};
use weir_sale::shard::{bucket, home_shard};
use weir_scripts::keys::ShardKeys;

use crate::support::{SHARDS, World, id, user};

async fn world() -> World {
    let world = World::new().await;
    let window = json!({ "from_ms": 0, "until_ms": now_ms() + 600_000 });
    world
        .sale_with("s", 4, json!({ "reservation": window }))
        .await;
    world
}

async fn reserve(world: &World, name: &str) -> u16 {
    let answer = world.as_user(name, "POST", "/sales/s/reservations").await;
    answer.status.as_u16()
}

/// Whether Redis has the user on this list.
async fn is_listed(world: &World, name: &str, is_blocked: bool) -> bool {
    let user = user(name);
    let keys = ShardKeys::new(&world.prefix, &id("s"), home_shard(&user, SHARDS));
    let set = match is_blocked {
        true => keys.blocked(bucket(&user)),
        false => keys.reserved(bucket(&user)),
    };
    let reply = world
        .redis(redis::cmd("SISMEMBER").arg(set).arg(name))
        .await;
    reply == redis::Value::Int(1)
}

fn worker(world: &World, scorer: impl RiskScorer + 'static) -> RiskWorker {
    world.origin.sales().risk_worker(Arc::new(scorer), 80)
}

#[tokio::test]
async fn a_reservation_is_in_redis_and_a_bot_is_blocked() {
    let world = world().await;
    let statuses = [
        reserve(&world, "bot-1").await,
        reserve(&world, "alice").await,
        reserve(&world, "alice").await,
    ];
    assert_eq!(statuses, [201, 201, 200]);
    assert!(is_listed(&world, "alice", false).await);
    let rules = Rules::parse(r#"{"rules":[{"glob":"bot-*","score":80}]}"#).unwrap();
    let round = worker(&world, rules).round().await.unwrap();
    assert_eq!(
        round,
        Round {
            scored: 2,
            failed: 0
        }
    );
    assert!(is_listed(&world, "bot-1", true).await);
    assert!(!is_listed(&world, "alice", true).await);
    let blocked = world.number("SELECT COUNT(*) FROM blocked_users").await;
    assert_eq!(blocked, 1);
}

#[derive(Clone, Default)]
struct Service {
    asked: Arc<AtomicU32>,
    /// So many first requests fail.
    failing: u32,
    status: u16,
}

async fn answer(State(service): State<Service>, body: Json<Value>) -> (StatusCode, Json<Value>) {
    if service.asked.fetch_add(1, Ordering::SeqCst) < service.failing {
        if service.status == 0 {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        return (
            StatusCode::from_u16(service.status).unwrap(),
            Json(json!({})),
        );
    }
    let score = if body["user"] == "mallory" { 99 } else { 1 };
    (StatusCode::OK, Json(json!({ "score": score })))
}

async fn serve(service: Service) -> HttpScorer {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new()
        .route("/score", post(answer))
        .with_state(service);
    let stop = CancellationToken::new();
    tokio::spawn(weir_origin::http::server::serve(listener, router, stop));
    let settings = HttpSettings {
        timeout: Duration::from_millis(200),
        pause: Duration::from_millis(5),
        breaker: Settings {
            min_requests: 4,
            open_ms: 60_000,
            ..Settings::default()
        },
        ..HttpSettings::default()
    };
    HttpScorer::new(&format!("http://{address}/score"), settings).unwrap()
}

#[tokio::test]
async fn a_service_that_stumbles_is_asked_again() {
    for status in [0, 500, 429] {
        let service = Service {
            failing: 2,
            status,
            ..Service::default()
        };
        let scorer = serve(service.clone()).await;
        let score = scorer.score(&id("s"), &user("mallory")).await;
        assert_eq!(score.unwrap(), 99);
        assert_eq!(service.asked.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test]
async fn a_definite_refusal_is_not_repeated_at_once() {
    let service = Service {
        failing: 9,
        status: 400,
        ..Service::default()
    };
    let scorer = serve(service.clone()).await;
    assert!(scorer.score(&id("s"), &user("alice")).await.is_err());
    assert_eq!(service.asked.load(Ordering::SeqCst), 1);
}

/// A file in memory that a test's log goes to.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn without_sql_the_worker_says_so_once_and_not_every_round() {
    let world = world().await;
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let worker = worker(&world, Rules::default());
    // From here on SQL does not answer.
    world.origin.finish().await;
    let stop = CancellationToken::new();
    let task = tokio::spawn(worker.run(stop.clone()));
    // Three rounds at least.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    stop.cancel();
    task.await.unwrap();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let warnings: Vec<&str> = text.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 1, "{text}");
    assert!(warnings[0].contains("checking risks: failed"), "{text}");
}

#[tokio::test]
async fn a_service_that_is_down_delays_scores_and_is_left_alone_and_nobody_is_lost() {
    let world = world().await;
    let service = Service {
        failing: u32::MAX,
        status: 503,
        ..Service::default()
    };
    let broken = worker(&world, serve(service.clone()).await);
    for name in ["mallory", "alice", "bob"] {
        assert_eq!(
            reserve(&world, name).await,
            201,
            "reservations do not wait for scores"
        );
    }
    for _ in 0..3 {
        assert_eq!(broken.round().await.unwrap().scored, 0);
    }
    let asked = service.asked.load(Ordering::SeqCst);
    assert!((4..=9).contains(&asked), "the breaker opens: {asked}");
    let repaired = worker(&world, serve(Service::default()).await);
    let mut scored = 0;
    while scored < 3 {
        let round = repaired.round().await.unwrap();
        assert_eq!(round.failed, 0);
        scored += round.scored;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(is_listed(&world, "mallory", true).await);
    assert!(!is_listed(&world, "bob", true).await);
}

/// Fails for everybody but one.
#[derive(Debug)]
struct OnlyFor(&'static str);

impl RiskScorer for OnlyFor {
    fn score<'a>(&'a self, _: &'a SaleId, user: &'a UserId) -> ScoreFuture<'a> {
        let is_known = user.as_str() == self.0;
        Box::pin(async move { is_known.then_some(1).ok_or(ScoreError::Status(400)) })
    }
}

#[tokio::test]
async fn users_who_cannot_be_scored_do_not_keep_others_from_it() {
    let world = world().await;
    for n in 0..40 {
        assert_eq!(reserve(&world, &format!("odd-{n}")).await, 201);
    }
    assert_eq!(reserve(&world, "alice").await, 201);
    let worker = worker(&world, OnlyFor("alice"));
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while worker.round().await.unwrap().scored == 0 {
        assert!(tokio::time::Instant::now() < until, "nobody gets to alice");
    }
    let pending = "SELECT COUNT(*) FROM reservations WHERE risk_state = 'pending'";
    assert_eq!(world.number(pending).await, 40, "they are not given up");
}

#[test]
fn a_url_that_is_not_http_is_refused() {
    for url in ["https://x/", "x", "ftp://x", "http:///"] {
        assert!(
            HttpScorer::new(url, HttpSettings::default()).is_none(),
            "{url}"
        );
    }
}
