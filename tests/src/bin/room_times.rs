//! `weir-room-times <rounds>`: the costs of a million people in a queue, as JSON: Redis memory, the rate of issued
//! positions, and position queries through Envoy. A part of `cargo xtask bench`.

#![allow(clippy::indexing_slicing)]

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_base::key::{KeyRing, SigningKey};
use weir_room::redis::keys::RoomKeys;
use weir_room::redis::room::CallContext;
use weir_room::redis::room_ask::{self, VisitorRequest};
use weir_room::{Mode, Pass, RoomName, RoomState, Setting, Terms, Visitor};
use weir_stack::http::{Connection, Method};
use weir_tests::{ROOM_SECRET, RoomSetup, Rooms, until};

const PEOPLE: u64 = 1_000_000;
/// New visitors per call.
const BATCH: u64 = 64;
const CONNECTIONS: u64 = 8;
/// Position queries per round and connection.
const POLLS: u64 = 2_500;

#[tokio::main]
async fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).context("how many rounds?")?;
    let rounds: u32 = rounds.parse().context("how many rounds?")?;
    println!("{}", measure(rounds).await?);
    Ok(())
}

async fn measure(rounds: u32) -> Result<Value> {
    let setup = RoomSetup {
        gateways: 1,
        workers: 1,
        room: r#", "mode": "paused" "#,
    };
    let rooms = setup.start().await?;
    let name = RoomName::new("shop").context("no name")?;
    let keys = RoomKeys::new("weir", &name);
    let empty = memory(&rooms).await?;
    let started = Instant::now();
    fill(&rooms, &keys).await?;
    let places_a_second = PEOPLE as f64 / started.elapsed().as_secs_f64();
    let redis_bytes = memory(&rooms).await? - empty;
    until("the gateway knows how long the queue is", async || {
        let state = rooms.state().await;
        state.is_ok_and(|state| state.starts_with(&format!("{PEOPLE} ")))
    })
    .await?;
    let mut measured = Vec::new();
    for round in 0..rounds {
        measured.push(positions(&rooms, &name, u64::from(round)).await?);
    }
    Ok(json!({
        "people": PEOPLE, "batch": BATCH, "connections": CONNECTIONS, "positions": POLLS * CONNECTIONS,
        "redis_bytes": redis_bytes, "places_a_second": places_a_second, "rounds": measured,
    }))
}

async fn memory(rooms: &Rooms) -> Result<u64> {
    let mut connection = rooms.redis.connection().await?;
    let mut ask = redis::cmd("INFO");
    let info: String = ask.arg("memory").query_async(&mut connection).await?;
    let mut lines = info.lines();
    let line = lines.find_map(|line| line.strip_prefix("used_memory:"));
    Ok(line.context("no used_memory")?.trim().parse()?)
}

/// A million people join, each from an own address: with the gateways' Redis calls, but without gateways.
async fn fill(rooms: &Rooms, keys: &RoomKeys) -> Result<()> {
    let context = CallContext {
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
        observed: RoomState::default(),
        asked_ms: 0,
    };
    let mut connection = rooms.redis.connection().await?;
    for batch in 0..PEOPLE / BATCH {
        let ask = |at: u64| VisitorRequest {
            visitor: visitor(batch * BATCH + at),
            place: 0,
            order: 0,
            joined_ms: 0,
            address: Some(*visitor(batch * BATCH + at + (1 << 40)).as_bytes()),
        };
        let asks: Vec<VisitorRequest> = (0..BATCH).map(ask).collect();
        let call = room_ask::call(keys, &context, &asks);
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

/// One round: people from the whole queue request their positions.
async fn positions(rooms: &Rooms, name: &RoomName, round: u64) -> Result<Value> {
    let ring = KeyRing::from(SigningKey::new("k1", ROOM_SECRET.as_bytes())?);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let now_ms = u64::try_from(now.as_millis())?;
    let pass = |number: u64| {
        let pass = Pass {
            place: number + 1,
            ..Pass::newcomer(visitor(number), now_ms)
        };
        pass.mint(&ring, name)
    };
    let url = rooms.envoys[0].url();
    let authority = url.trim_start_matches("http://");
    let before = rooms.script_calls().await?;
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    for connection in 0..CONNECTIONS {
        let number =
            |poll: u64| ((round * POLLS + poll) * CONNECTIONS + connection) * 7_919 % PEOPLE;
        let passes = (0..POLLS).map(|poll| pass(number(poll))).collect();
        tasks.spawn(poll(authority.to_owned(), passes));
    }
    let mut elapsed = Vec::new();
    while let Some(polls) = tasks.join_next().await {
        elapsed.append(&mut polls??);
    }
    let seconds = started.elapsed().as_secs_f64();
    let calls = rooms.script_calls().await? - before;
    elapsed.sort_unstable();
    let percentile_ms = |percent: usize| {
        let elapsed = elapsed.get(elapsed.len() * percent / 100);
        elapsed.map(|elapsed| elapsed.as_secs_f64() * 1e3)
    };
    Ok(json!({
        "p50_ms": percentile_ms(50), "p99_ms": percentile_ms(99),
        "rate": elapsed.len() as f64 / seconds, "commands": calls as f64 / elapsed.len() as f64,
    }))
}

/// Requests positions on one connection. Returns the latencies.
async fn poll(authority: String, passes: Vec<String>) -> Result<Vec<Duration>> {
    let mut connection = Connection::open(&authority).await?;
    let mut elapsed = Vec::with_capacity(passes.len());
    for pass in passes {
        let headers = [("x-weir-room", pass.as_str())];
        let started = Instant::now();
        let answer = connection.send(Method::GET, "/shop", &headers, "").await?;
        elapsed.push(started.elapsed());
        let position = answer.json()?["position"].as_u64();
        ensure!(answer.status == 503 && position > Some(0), "{answer:?}");
    }
    Ok(elapsed)
}
