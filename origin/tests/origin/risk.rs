//! Risk checks: users with a reservation are scored, and high scores are blocked. The risk service misbehaves.

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
use weir_origin::clock::now_ms;
use weir_origin::sales::risk::{
    HttpScorer, HttpSettings, RiskScorer, RiskWorker, Round, Rules, ScoreError, ScoreFuture,
};
use weir_origin::sales::store::{UnscoredReservation, Visitor};
use weir_sale::redis::keys::ShardKeys;
use weir_sale::shard::{bucket, home_shard};

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

fn unscored(name: &str) -> UnscoredReservation {
    UnscoredReservation {
        sale: id("s"),
        user: user(name),
        at_ms: 0,
        failed_checks: 0,
        visitor: Visitor {
            address: "192.0.2.7".to_owned(),
            agent: "curl/8.0".to_owned(),
        },
    }
}

fn worker(world: &World, scorer: impl RiskScorer + 'static) -> RiskWorker {
    world.origin.sales().risk_worker(Arc::new(scorer), 80)
}

#[tokio::test]
async fn reservation_is_stored_in_redis_and_bot_is_blocked() {
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
    requested: Arc<AtomicU32>,
    /// The first requests fail, up to this number.
    failing: u32,
    status: u16,
}

async fn answer(State(service): State<Service>, body: Json<Value>) -> (StatusCode, Json<Value>) {
    if service.requested.fetch_add(1, Ordering::SeqCst) < service.failing {
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
    HttpScorer::new(&format!("http://{address}/score"), None, settings).unwrap()
}

#[tokio::test]
async fn failed_call_of_a_risk_service_is_retried() {
    for status in [0, 500, 429] {
        let service = Service {
            failing: 2,
            status,
            ..Service::default()
        };
        let scorer = serve(service.clone()).await;
        // A hanging request is aborted long before it answers.
        let user = unscored("mallory");
        let score = tokio::time::timeout(Duration::from_secs(30), scorer.score(&user)).await;
        assert_eq!(score.unwrap().unwrap(), 99);
        assert_eq!(service.requested.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test]
async fn definite_refusal_is_not_retried_at_once() {
    let service = Service {
        failing: 9,
        status: 400,
        ..Service::default()
    };
    let scorer = serve(service.clone()).await;
    assert!(scorer.score(&unscored("alice")).await.is_err());
    assert_eq!(service.requested.load(Ordering::SeqCst), 1);
}

/// An in-memory log of a test.
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
async fn sql_outage_is_logged_once_and_not_every_round() {
    let world = world().await;
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let worker = worker(&world, Rules::default());
    // SQL is unavailable from here on.
    world.origin.finish().await;
    let stop = CancellationToken::new();
    let task = tokio::spawn(worker.run(stop.clone()));
    // At least three rounds.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    stop.cancel();
    task.await.unwrap();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let warnings: Vec<&str> = text.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 1, "{text}");
    assert!(warnings[0].contains("checking risks: failed"), "{text}");
}

#[tokio::test]
async fn risk_outage_delays_scores_opens_breaker_and_loses_no_user() {
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
    let requests = service.requested.load(Ordering::SeqCst);
    assert!((4..=9).contains(&requests), "the breaker opens: {requests}");
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

/// Fails for all users except one.
#[derive(Debug)]
struct OnlyFor(&'static str);

impl RiskScorer for OnlyFor {
    fn score<'a>(&'a self, reservation: &'a UnscoredReservation) -> ScoreFuture<'a> {
        let is_known = reservation.user.as_str() == self.0;
        Box::pin(async move { is_known.then_some(1).ok_or(ScoreError::Status(400)) })
    }
}

#[tokio::test]
async fn unscorable_users_do_not_block_scores_of_others() {
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
fn risk_url_of_neither_http_nor_https_is_refused() {
    for url in ["x", "ftp://x", "http:///"] {
        assert!(
            HttpScorer::new(url, None, HttpSettings::default()).is_err(),
            "{url}"
        );
    }
}

/// A check that fails closed: gateways receive a reservation only after its user has passed.
#[tokio::test]
async fn risk_check_that_fails_closed_admits_no_unscored_user() {
    let world = World::with_risk_failing_closed().await;
    let window = json!({ "from_ms": 0, "until_ms": now_ms() + 600_000 });
    world
        .sale_with("s", 4, json!({ "reservation": window }))
        .await;
    let service = Service {
        failing: u32::MAX,
        status: 503,
        ..Service::default()
    };
    let broken = worker(&world, serve(service).await);
    let state = async |name: &str| {
        let answer = world.as_user(name, "POST", "/sales/s/reservations").await;
        answer.body["state"].as_str().unwrap().to_owned()
    };
    for name in ["alice", "mallory"] {
        assert_eq!(state(name).await, "checking");
    }
    broken.round().await.unwrap();
    broken.count_pending().await;
    let metrics = world.admin("GET", "/metrics", &Value::Null).await.body;
    assert!(
        metrics
            .as_str()
            .unwrap()
            .contains("weir_origin_risk_pending 2\n"),
        "{metrics}"
    );
    // A rebuilt Redis does not receive them either.
    world.admin("POST", "/sales/s/warm", &Value::Null).await;
    assert!(!is_listed(&world, "alice", false).await);

    let repaired = worker(&world, serve(Service::default()).await);
    let mut scored = 0;
    while scored < 2 {
        scored += repaired.round().await.unwrap().scored;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    repaired.count_pending().await;
    assert!(is_listed(&world, "alice", false).await);
    assert!(!is_listed(&world, "mallory", false).await);
    assert!(is_listed(&world, "mallory", true).await);
    assert_eq!(state("alice").await, "reserved");
    let retained = "SELECT COUNT(*) FROM reservations WHERE address <> '' OR agent <> ''";
    assert_eq!(
        world.number(retained).await,
        0,
        "what the check saw is forgotten with it"
    );
}

/// Requests that a risk service over TLS received.
#[tokio::test]
async fn risk_service_gets_address_and_agent_over_tls() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let dir = tempfile::tempdir().unwrap();
    let created = weir_stack::certificates::Certificates::kept_in(dir.path()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = acceptor(&created);
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust the certificate disconnects.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut bytes = vec![0; 4096];
            let mut read = 0;
            while !bytes[..read].ends_with(b"}") {
                read += stream.read(&mut bytes[read..]).await.unwrap();
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"score\":42}";
            stream.write_all(answer.as_bytes()).await.unwrap();
            return String::from_utf8_lossy(&bytes[..read]).into_owned();
        }
    });
    let url = format!("https://{address}/score");
    let settings = HttpSettings {
        tries: 1,
        ..HttpSettings::default()
    };
    let other = tempfile::tempdir().unwrap();
    let stranger = weir_stack::certificates::Certificates::kept_in(other.path()).unwrap();
    let distrusting = HttpScorer::new(&url, Some(&stranger.ca), settings).unwrap();
    let refused = distrusting.score(&unscored("alice")).await;
    assert!(
        matches!(refused, Err(ScoreError::Connection(_))),
        "{refused:?}"
    );
    let scorer = HttpScorer::new(&url, Some(&created.ca), settings).unwrap();
    assert_eq!(scorer.score(&unscored("alice")).await.unwrap(), 42);
    let task = task.await.unwrap();
    let body: Value = serde_json::from_str(task.rsplit("\r\n\r\n").next().unwrap()).unwrap();
    let expected =
        json!({ "sale": "s", "user": "alice", "address": "192.0.2.7", "agent": "curl/8.0" });
    assert_eq!(body, expected);
    for bad in ["ftp://x/", "score", "https://"] {
        assert!(HttpScorer::new(bad, None, settings).is_err(), "{bad}");
    }
}

fn acceptor(created: &weir_stack::certificates::Certificates) -> tokio_rustls::TlsAcceptor {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let certificate = CertificateDer::from_pem_file(&created.certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&created.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    tokio_rustls::TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn risk_check_receives_address_and_agent_of_a_user() {
    let world = world().await;
    let ring = weir_base::key::KeyRing::new(vec![crate::support::key()]).unwrap();
    let signed = weir_sale::identity::sign(&ring, &user("alice"), now_ms());
    let request = axum::http::Request::post("/sales/s/reservations")
        .header(weir_base::headers::USER, signed.value)
        .header(weir_base::headers::USER_SIGNATURE, signed.signature)
        // The client's own entry precedes the address that the gateway saw.
        .header("x-forwarded-for", "203.0.113.9, 192.0.2.7")
        .header("user-agent", "x".repeat(600));
    let document = world
        .public(request.body(axum::body::Body::empty()).unwrap())
        .await;
    assert_eq!(document.status, 201, "{document:?}");
    let waiting = world
        .origin
        .sales()
        .store()
        .reservations()
        .reservations_to_score(u64::MAX >> 1, 9);
    let visitor = waiting.await.unwrap()[0].visitor.clone();
    assert_eq!(visitor.address, "192.0.2.7");
    assert_eq!(visitor.agent.len(), 512);
}
