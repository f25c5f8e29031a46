//! What a million people in the queue cost: a measurement, run by hand with `--ignored --nocapture`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use weir_base::key::{KeyRing, SigningKey};
use weir_room::{Mode, Pass, RoomName, Seen, Setting, Terms, Visitor};
use weir_scripts::keys::RoomKeys;
use weir_scripts::room::Brought;
use weir_scripts::room_ask::{self, Ask};
use weir_stack::http::{Connection, Method};
use weir_tests::{ROOM_SECRET, RoomSetup, Rooms, until};

const PEOPLE: u64 = 1_000_000;
const BATCH: u64 = 64;
const CONNECTIONS: u64 = 8;
const POLLS: u64 = 5_000;

async fn memory(rooms: &Rooms) -> Result<u64> {
    let mut connection = rooms.redis.connection().await?;
    let info: String = redis::cmd("INFO")
        .arg("memory")
        .query_async(&mut connection)
        .await?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    Ok(line.context("no used_memory")?.trim().parse()?)
}

/// A million people come, past the gateways.
async fn fill(rooms: &Rooms, keys: &RoomKeys) -> Result<()> {
    let brought = Brought {
        terms: Terms {
            session_ms: 600_000,
            claim_ms: 120_000,
            queue_max: 0,
            address_max: 100,
            address_ms: 3_600_000,
            life_ms: 86_400_000,
        },
        setting: Setting {
            mode: Mode::Paused,
            ..Setting::default()
        },
        seen: Seen::default(),
    };
    let mut connection = rooms.redis.connection().await?;
    for batch in 0..PEOPLE / BATCH {
        let ask = |at: u64| Ask {
            visitor: visitor(batch * BATCH + at),
            place: 0,
            order: 0,
            joined_ms: 0,
            address: Some(*visitor(batch * BATCH + at + (1 << 40)).as_bytes()),
        };
        let asks: Vec<Ask> = (0..BATCH).map(ask).collect();
        let call = room_ask::call(keys, &brought, &asks);
        let mut command = redis::cmd("EVAL");
        command.arg(call.script.source).arg(call.keys.len());
        call.words().for_each(|word| {
            command.arg(word);
        });
        command.exec_async(&mut connection).await?;
    }
    Ok(())
}

fn visitor(number: u64) -> Visitor {
    Visitor::of_user(&number.to_le_bytes())
}

/// Asks for positions on one connection. How long each answer took.
async fn poll(authority: String, passes: Vec<String>) -> Result<Vec<Duration>> {
    let mut connection = Connection::open(&authority).await?;
    let mut took = Vec::with_capacity(passes.len());
    for pass in passes {
        let headers = [("x-weir-room", pass.as_str())];
        let started = Instant::now();
        let answer = connection.send(Method::GET, "/shop", &headers, "").await?;
        took.push(started.elapsed());
        ensure!(
            answer.status == 503 && answer.json()?["position"].as_u64() > Some(0),
            "{answer:?}"
        );
    }
    Ok(took)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: a million places take a minute"]
async fn a_million_people_in_the_queue() -> Result<()> {
    let setup = RoomSetup {
        gateways: 1,
        workers: 2,
        room: r#", "mode": "paused" "#,
    };
    let rooms = setup.start().await?;
    let name = RoomName::new("shop").context("no name")?;
    let keys = RoomKeys::new("weir", &name);
    let empty = memory(&rooms).await?;
    let started = Instant::now();
    fill(&rooms, &keys).await?;
    let seconds = started.elapsed().as_secs_f64();
    let bytes = memory(&rooms).await? - empty;
    println!(
        "{PEOPLE} places of as many addresses: {:.1} MB in Redis, {:.0} places a second",
        bytes as f64 / 1e6,
        PEOPLE as f64 / seconds
    );
    let ring = KeyRing::from(SigningKey::new("k1", ROOM_SECRET.as_bytes())?);
    let now_ms = clock_ms();
    let pass = |number: u64| {
        let pass = Pass {
            place: number + 1,
            ..Pass::newcomer(visitor(number), now_ms)
        };
        pass.mint(&ring, &name)
    };
    until("the gateway knows how long the queue is", async || {
        rooms
            .state()
            .await
            .is_ok_and(|state| state.starts_with("1000000 "))
    })
    .await?;
    let before = rooms.script_calls().await?;
    let authority = rooms.envoys[0]
        .url()
        .trim_start_matches("http://")
        .to_owned();
    let started = Instant::now();
    let mut asked = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let passes =
            (0..POLLS).map(|poll| pass((poll * CONNECTIONS + connection) * 7_919 % PEOPLE));
        asked.spawn(poll(authority.clone(), passes.collect()));
    }
    let mut took = Vec::new();
    while let Some(polls) = asked.join_next().await {
        took.append(&mut polls??);
    }
    let seconds = started.elapsed().as_secs_f64();
    let calls = rooms.script_calls().await? - before;
    took.sort_unstable();
    let percentile = |percent: usize| {
        took.get(took.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{} positions: p50 {:?}, p99 {:?}, {:.0} a second, {:.5} Redis commands each",
        took.len(),
        percentile(50),
        percentile(99),
        took.len() as f64 / seconds,
        calls as f64 / took.len() as f64
    );
    ensure!(calls as f64 / took.len() as f64 <= 0.05);
    Ok(())
}

fn clock_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(0)
}
