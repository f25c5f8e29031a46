//! Operators' settings at the origin, as visitors observe them at the gateways.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weir_stack::http::{self, Method};
use weir_stack::origin::{Origin, OriginOptions, ensure_built};
use weir_stack::{Secrets, ports};
use weir_tests::{Person, RoomSetup, Rooms, until};

/// An origin next to the gateways, with an operator's token.
struct Operator {
    origin: Origin,
    token: String,
}

impl Operator {
    async fn of(rooms: &Rooms) -> Result<Self> {
        let secrets = Secrets::random()?;
        let token = format!("Bearer {}", secrets.admin_token);
        let options = OriginOptions {
            port: ports::free()?,
            admin_port: ports::free()?,
            database: rooms.data.path.join("weir.db"),
            redis_url: rooms.redis.url(),
            redis_ca: None,
            key_prefix: "weir".to_owned(),
            risk_rules: None,
            links: None,
            events_log: None,
            fitment: None,
            edge_secret: None,
            // No payments occur.
            provider_port: 9,
            flags: vec![],
            secrets,
        };
        let log = rooms.data.path.join("origin.log");
        let origin = Origin::start(&ensure_built()?, options, &log).await?;
        Ok(Self { origin, token })
    }

    async fn send(&self, method: Method, body: String) -> Result<Value> {
        let url = format!("{}/rooms/shop", self.origin.admin_url());
        let headers = [
            ("authorization", self.token.as_str()),
            ("content-type", "application/json"),
        ];
        let answer = http::send(method, &url, &headers, body).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
        answer.json()
    }

    async fn set(&self, setting: Value) -> Result<Value> {
        self.send(Method::PUT, setting.to_string()).await
    }

    async fn room(&self) -> Result<Value> {
        self.send(Method::GET, String::new()).await
    }
}

/// The room's state for a new visitor.
async fn state_of_newcomer(rooms: &Rooms) -> Result<String> {
    let answer = rooms.get(0, "/shop", &[]).await?;
    if answer.status == 200 {
        return Ok("passed".to_owned());
    }
    let body = answer.json()?;
    Ok(body["state"].as_str().unwrap_or_default().to_owned())
}

/// Waits until all workers show this state to new visitors.
async fn newcomers_are(rooms: &Rooms, state: &str) -> Result<()> {
    until(&format!("newcomers are told: {state}"), async || {
        for _ in 0..6 {
            if !state_of_newcomer(rooms)
                .await
                .is_ok_and(|reply| reply == state)
            {
                return false;
            }
        }
        true
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_see_operator_settings_after_redis_loss() -> Result<()> {
    let setup = RoomSetup {
        gateways: 1,
        workers: 2,
        room: r#", "per_address": { "places": 0 } "#,
    };
    let mut rooms = setup.start().await?;
    let operator = Operator::of(&rooms).await?;
    let inside = Person::default();
    ensure!(rooms.visit(0, &inside).await?, "there is no limit yet");

    operator.set(json!({ "mode": "closed" })).await?;
    newcomers_are(&rooms, "closed").await?;
    ensure!(rooms.visit(0, &inside).await?, "who is inside stays inside");

    let set = operator
        .set(json!({ "mode": "open", "per_minute": 1 }))
        .await?;
    ensure!(set["setting"]["per_minute"] == 1, "{set}");
    newcomers_are(&rooms, "waiting").await?;
    let waiting = Person::default();
    ensure!(!rooms.visit(0, &waiting).await?);
    let reply = operator.room().await?;
    ensure!(reply["queue"]["waiting"].as_u64() >= Some(1), "{reply}");
    operator
        .set(json!({ "mode": "open", "per_minute": 60_000 }))
        .await?;
    until("who waited enters", async || {
        rooms.visit(0, &waiting).await.unwrap_or(false)
    })
    .await?;

    // Set while Redis is down: the origin writes it to the empty Redis when it returns.
    rooms.redis.kill();
    operator.set(json!({ "mode": "closed" })).await?;
    rooms.redis.start_again().await?;
    newcomers_are(&rooms, "closed").await?;
    // Redis and the gateway, which could restore it, lose everything: only the origin has it.
    rooms.envoys[0].process().kill();
    rooms.redis.kill();
    rooms.redis.start_again().await?;
    rooms.envoys[0].start_again().await?;
    newcomers_are(&rooms, "closed").await?;
    ensure!(rooms.visit(0, &inside).await?, "its session is its own");
    let reply = operator.room().await?;
    ensure!(reply["setting"]["mode"] == "closed", "{reply}");
    Ok(())
}
