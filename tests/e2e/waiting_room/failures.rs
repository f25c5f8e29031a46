//! Crashes, and their effect on positions and sessions.

use std::time::Duration;

use anyhow::{Result, ensure};
use weir_tests::{Person, RoomSetup, Rooms, until};

use super::come;

async fn positions(rooms: &Rooms, gateway: usize, people: &[Person]) -> Result<Vec<u64>> {
    let mut positions = Vec::new();
    for person in people {
        positions.push(rooms.position(gateway, person).await?);
    }
    Ok(positions)
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_survive_gateway_crash_and_loss_of_redis_data() -> Result<()> {
    let setup = RoomSetup {
        gateways: 2,
        workers: 2,
        room: r#", "mode": "paused" "#,
    };
    let mut rooms = setup.start().await?;
    let (people, _) = come(&rooms, 12).await?;
    let before = positions(&rooms, 0, &people).await?;
    ensure!(before == (1..=12).collect::<Vec<_>>(), "{before:?}");
    rooms.envoys[0].process().kill();
    ensure!(positions(&rooms, 1, &people).await? == before);
    rooms.redis.kill();
    ensure!(
        positions(&rooms, 1, &people).await? == before,
        "Redis is away"
    );
    rooms.redis.start_again().await?;
    rooms.envoys[0].start_again().await?;
    // A new visitor gets a position once the room is in use again, behind all others.
    let late = Person::default();
    until("a newcomer has a place", async || {
        let requested = rooms.visit(1, &late).await;
        requested.is_ok() && rooms.position(1, &late).await.is_ok()
    })
    .await?;
    ensure!(
        rooms.position(0, &late).await? == 13,
        "{:?}",
        rooms.state().await?
    );
    ensure!(positions(&rooms, 0, &people).await? == before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_survive_redis_outage_and_entry_uses_local_pace() -> Result<()> {
    let setup = RoomSetup {
        gateways: 1,
        workers: 2,
        room: r#", "per_minute": 60, "without_redis": { "per_minute": 120 } "#,
    };
    let mut rooms = setup.start().await?;
    let inside = Person::default();
    until("somebody enters", async || {
        rooms.visit(0, &inside).await.unwrap_or(false)
    })
    .await?;
    let (people, _) = come(&rooms, 30).await?;
    rooms.redis.kill();
    ensure!(rooms.visit(0, &inside).await?, "who is inside stays inside");
    until("the gateway goes on by itself", async || {
        let local = rooms.count("requests_total.room.shop.outcome.local").await;
        for person in &people {
            let _ = rooms.visit(0, person).await;
        }
        local.is_ok_and(|local| local >= 3)
    })
    .await?;
    // In order of positions: all inside come before all who wait.
    let mut is_inside = Vec::new();
    for person in &people {
        is_inside.push(rooms.status(0, person).await?["state"] == "inside");
    }
    ensure!(
        is_inside.is_sorted_by(|before, next| before >= next),
        "{is_inside:?}"
    );
    rooms.redis.start_again().await?;
    until("Redis calls again", async || {
        let before = rooms
            .count("requests_total.room.shop.outcome.entered")
            .await
            .unwrap_or(0);
        for person in &people {
            let _ = rooms.visit(0, person).await;
        }
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let now = rooms
            .count("requests_total.room.shop.outcome.entered")
            .await
            .unwrap_or(0);
        now > before
    })
    .await
}
