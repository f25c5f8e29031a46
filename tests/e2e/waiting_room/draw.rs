//! Before the opening.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use weir_room::draw::{Draw, Seed};
use weir_stack::native::Host;
use weir_tests::{Person, RoomSetup, until};

use super::come;

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn early_visitors_are_drawn_and_later_ones_queue_behind() -> Result<()> {
    // Built first, because that takes minutes and is not part of the wait.
    Host::of_run().ensure_built()?;
    let opens_at_ms = now_ms() + 25_000;
    let room = format!(r#", "opens_at_ms": {opens_at_ms}, "per_minute": 1 "#);
    let setup = RoomSetup {
        gateways: 2,
        workers: 1,
        room: &room,
    };
    let rooms = setup.start().await?;
    let (people, entered) = come(&rooms, 20).await?;
    ensure!(
        entered.is_empty() && now_ms() < opens_at_ms,
        "the machine is too slow for this test"
    );
    let status = rooms.status(1, &people[7]).await?;
    ensure!(
        status["state"] == "lobby" && status["opens_at_ms"] == opens_at_ms,
        "{status}"
    );
    tokio::time::sleep(Duration::from_millis(opens_at_ms - now_ms())).await;
    until("the room has opened", async || {
        let status = rooms.status(0, &people[0]).await;
        let other = rooms.status(1, &people[0]).await;
        status.is_ok_and(|status| status["state"] != "lobby")
            && other.is_ok_and(|status| status["state"] != "lobby")
    })
    .await?;
    let late = Person::default();
    rooms.visit(0, &late).await?;
    let mut order = Vec::new();
    for (number, person) in people.iter().enumerate() {
        let (position, same) = (
            rooms.position(0, person).await?,
            rooms.position(1, person).await?,
        );
        ensure!(position == same, "gateways agree: {position} {same}");
        order.push((position, number));
    }
    let last = rooms.position(0, &late).await?;
    ensure!(
        order.iter().all(|(position, _)| *position < last),
        "{last}: {order:?}"
    );
    order.sort_unstable();
    ensure!(
        !order.is_sorted_by_key(|(_, number)| *number),
        "nobody was drawn"
    );
    // The seed is published at the end, and allows anyone to verify each position.
    let state = rooms.state().await?;
    let fields: Vec<&str> = state.split(' ').collect();
    let seed = Seed::from_hex(fields[16].as_bytes()).context("no seed")?;
    ensure!(seed.commitment() == hex(&Sha256::digest(fields[16])));
    let draw = Draw::new(0, 20, seed).context("no draw")?;
    let waiting = order.iter().filter(|(position, _)| *position > 0);
    let drawn: BTreeSet<u64> = waiting
        .clone()
        .map(|(_, number)| draw.order(*number as u64 + 1))
        .collect();
    let head = 20 - drawn.len() as u64;
    for (position, number) in waiting {
        let order = draw.order(*number as u64 + 1);
        ensure!(
            order == head + position,
            "{number}: {order} is not {head} + {position}"
        );
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
