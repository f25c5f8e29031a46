//! The queue without failures.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_room::redis::keys::RoomKeys;
use weir_room::redis::room_set;
use weir_room::{Mode, RoomName, Setting};
use weir_tests::{Person, RoomSetup, Rooms, until};

use super::{come, enter_all};
use crate::metrics::{Gateways, documented, scraped};

#[tokio::test(flavor = "multi_thread")]
async fn first_come_first_served_over_two_gateways() -> Result<()> {
    let setup = RoomSetup {
        gateways: 2,
        workers: 2,
        room: r#", "per_minute": 240 "#,
    };
    let rooms = setup.start().await?;
    let (people, entered) = come(&rooms, 24).await?;
    ensure!(entered.len() < 20, "there was no queue");
    let order = enter_all(&rooms, &people, entered, 24).await?;
    // Visitors admitted in one poll of the room enter in any order; there is no other overtaking.
    let late = order
        .iter()
        .enumerate()
        .map(|(at, number)| at.abs_diff(*number));
    ensure!(late.max() <= Some(3), "{order:?}");
    // Inside, no requests go to Redis.
    let before = rooms.count("redis_requests_total").await?;
    ensure!(rooms.visit(0, &people[5]).await? && rooms.visit(1, &people[5]).await?);
    ensure!(before > 0, "gateways count what they ask");
    Ok(())
}

/// The cost of polls in Redis: only the gateways' periodic polls of the room.
#[tokio::test(flavor = "multi_thread")]
async fn polls_cause_almost_no_redis_calls() -> Result<()> {
    let setup = RoomSetup {
        gateways: 2,
        workers: 1,
        room: r#", "mode": "paused" "#,
    };
    let rooms = setup.start().await?;
    let (people, _) = come(&rooms, 20).await?;
    let before = rooms.script_calls().await?;
    let started = tokio::time::Instant::now();
    let mut polls = 0;
    for round in 0..60 {
        for (number, person) in people.iter().enumerate() {
            let position = rooms.position((number + round) % 2, person).await?;
            ensure!(position == number as u64 + 1, "{number}: {position}");
            polls += 1;
        }
    }
    let calls = rooms.script_calls().await? - before;
    // Each gateway polls five times a second in tests, and its main thread may, too.
    let looks = 2.0 * 2.0 * (started.elapsed().as_secs_f64() * 5.0 + 2.0);
    println!("{calls} calls for {polls} polls");
    ensure!(
        calls as f64 <= looks,
        "{calls} calls for {polls} polls in {:?}",
        started.elapsed()
    );
    ensure!(
        calls as f64 / f64::from(polls) <= 0.05,
        "{calls} calls for {polls} polls"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_position_passes_to_the_next_and_idle_session_ends() -> Result<()> {
    let setup = RoomSetup {
        gateways: 2,
        workers: 1,
        room: r#", "active_max": 1, "session": "10s", "claim": "5s" "#,
    };
    let rooms = setup.start().await?;
    let (people, entered) = come(&rooms, 4).await?;
    ensure!(entered == [0], "{entered:?}");
    // The first one stays active, which renews its session.
    for _ in 0..13 {
        ensure!(
            rooms.visit(1, &people[0]).await?,
            "the session lives while it is used"
        );
        tokio::time::sleep(Duration::from_millis(1_000)).await;
    }
    ensure!(rooms.position(0, &people[1]).await? == 1);
    // It leaves; the second one never returns; so the third one enters.
    until("the third one enters", async || {
        rooms.visit(0, &people[2].clone()).await.unwrap_or(false)
    })
    .await?;
    ensure!(!rooms.visit(0, &people[0]).await?, "its session has ended");
    ensure!(!rooms.visit(1, &people[1]).await?, "it came too late");
    ensure!(rooms.position(1, &people[3]).await? == 1);
    ensure!(
        rooms.position(1, &people[1]).await? > 1,
        "it stands at the end"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_or_changed_pass_is_rejected() -> Result<()> {
    let setup = RoomSetup {
        gateways: 1,
        workers: 1,
        room: r#", "mode": "paused" "#,
    };
    let rooms = setup.start().await?;
    let (people, _) = come(&rooms, 3).await?;
    let cookie = people[0].cookie.borrow().clone().context("no cookie")?;
    let (head, tag) = cookie.rsplit_once('.').context("no tag")?;
    let mut changed = tag.to_owned();
    changed.replace_range(0..1, if tag.starts_with('A') { "B" } else { "A" });
    for forged in [
        format!("{head}.{changed}"),
        format!("{head}."),
        "weir-room-shop=x".to_owned(),
    ] {
        let mallory = Person {
            cookie: Some(forged.clone()).into(),
        };
        ensure!(!rooms.visit(0, &mallory).await?);
        let position = rooms.position(0, &mallory).await?;
        ensure!(position > 3, "{forged}: {position}");
    }
    ensure!(rooms.position(0, &people[0]).await? == 1);
    until("they are counted", async || {
        let count = rooms
            .count("passes_refused_total.room.shop.reason.bad_signature")
            .await;
        count.is_ok_and(|count| count >= 1)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_get_json_and_a_user_has_one_position() -> Result<()> {
    let setup = RoomSetup {
        gateways: 2,
        workers: 1,
        room: r#", "mode": "paused" "#,
    };
    let rooms = setup.start().await?;
    let user = [("x-user-id", "alice")];
    let first = rooms.get(0, "/shop/api", &user).await?;
    ensure!(
        first.status == 503 && first.header("retry-after").is_some(),
        "{first:?}"
    );
    ensure!(
        first.header("content-type") == Some("application/problem+json"),
        "{first:?}"
    );
    let body = first.json()?;
    ensure!(
        body["state"] == "waiting" && body["position"] == 1,
        "{body}"
    );
    let bob = rooms.get(1, "/shop/api", &[("x-user-id", "bob")]).await?;
    ensure!(bob.json()?["position"] == 2);
    // On another device, at another gateway.
    let again = rooms.get(1, "/shop/api", &user).await?;
    ensure!(again.json()?["position"] == 1, "{again:?}");
    let pass = body["pass"].as_str().context("no pass")?;
    let with_pass = rooms
        .get(1, "/shop/api", &[user[0], ("x-weir-room", pass)])
        .await?;
    ensure!(with_pass.json()?["position"] == 1);
    Ok(())
}

/// Writes a setting like the origin does for an operator.
async fn set(rooms: &Rooms, setting: Setting) -> Result<()> {
    let name = RoomName::new("shop").context("no name")?;
    let call = room_set::call(&RoomKeys::new("weir", &name), &setting);
    let mut connection = rooms.redis.connection().await?;
    let mut command = redis::cmd("EVAL");
    command.arg(call.script.source).arg(call.keys.len());
    call.words().for_each(|word| {
        command.arg(word);
    });
    Ok(command.query_async(&mut connection).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_changes_reach_all_gateways_within_one_poll() -> Result<()> {
    let setup = RoomSetup {
        gateways: 2,
        workers: 2,
        room: "",
    };
    let rooms = setup.start().await?;
    let inside = Person::default();
    ensure!(rooms.visit(0, &inside).await?);
    let change = |version, mode| Setting {
        version,
        mode,
        ..Setting::default()
    };
    let state_of_newcomer = async |gateway| -> Result<String> {
        let answer = rooms.get(gateway, "/shop", &[]).await?;
        match answer.status {
            200 => Ok("passed".to_owned()),
            _ => Ok(answer.json()?["state"]
                .as_str()
                .unwrap_or_default()
                .to_owned()),
        }
    };
    for (version, mode, state) in [
        (1, Mode::Closed, "closed"),
        (2, Mode::Paused, "waiting"),
        (3, Mode::Bypass, "passed"),
        (4, Mode::Draining, "closed"),
        (5, Mode::Open, "passed"),
    ] {
        set(&rooms, change(version, mode)).await?;
        for gateway in [0, 1] {
            until(&format!("it is {state}"), async || {
                let mut states = Vec::new();
                for _ in 0..6 {
                    states.push(state_of_newcomer(gateway).await.unwrap_or_default());
                }
                states.iter().all(|reply| reply == state)
            })
            .await?;
        }
        ensure!(rooms.visit(1, &inside).await?, "who is inside stays inside");
    }
    // The pace: none for a while, and then two a second.
    set(
        &rooms,
        Setting {
            per_minute: 1,
            ..change(6, Mode::Open)
        },
    )
    .await?;
    until("the pace is one a minute", async || {
        state_of_newcomer(0)
            .await
            .is_ok_and(|state| state == "waiting")
    })
    .await?;
    set(
        &rooms,
        Setting {
            per_minute: 60_000,
            ..change(7, Mode::Open)
        },
    )
    .await?;
    until("the pace is a thousand a second", async || {
        state_of_newcomer(0)
            .await
            .is_ok_and(|state| state == "passed")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_metrics_match_the_scrape() -> Result<()> {
    let setup = RoomSetup {
        gateways: 1,
        workers: 1,
        room: "",
    };
    let rooms = setup.start().await?;
    come(&rooms, 2).await?;
    let url = format!("{}/stats/prometheus", rooms.envoys[0].admin_url());
    until("the documented metrics are there", async || {
        let names = scraped(&url).await;
        names.is_ok_and(|names| names == documented(Gateways::Rooms))
    })
    .await
}
