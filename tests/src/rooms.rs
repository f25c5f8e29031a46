//! Gateways with a waiting room, from `envoy/waiting-room.yaml`, and visitors.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::http::{self, Method, Response};
use weir_stack::native::Host;
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{DataDir, ports, tools};

use crate::limiters::redis_in;
use crate::script_calls_of;

/// The secret with which gateways sign passes, under the ID `k1`.
pub const ROOM_SECRET: &str = "only for tests, of 32 bytes or more";

const SECRET_VARIABLE: &str = "WEIR_ROOM_SECRET";

/// The parameters of [`Rooms`].
#[derive(Clone, Copy, Debug)]
pub struct RoomSetup<'a> {
    /// The number of gateways.
    pub gateways: usize,
    /// Workers per gateway.
    pub workers: u32,
    /// Additional fields of the room, as JSON, each after a comma.
    pub room: &'a str,
}

/// Gateways with their own Redis, which has no persistence. The service behind them answers every request with 200.
#[derive(Debug)]
pub struct Rooms {
    // Fields are dropped in this order: clients before their servers.
    /// The gateways.
    pub envoys: Vec<Envoy>,
    /// Their Redis.
    pub redis: RedisServer,
    /// The data folder.
    pub data: DataDir,
}

/// A visitor with the browser's state.
#[derive(Clone, Debug, Default)]
pub struct Person {
    /// The room's cookie.
    pub cookie: RefCell<Option<String>>,
}

impl RoomSetup<'_> {
    /// Builds outdated programs, starts everything, and waits until the room is in use.
    ///
    /// # Errors
    /// A process does not start.
    pub async fn start(self) -> Result<Rooms> {
        let data = DataDir::open(None)?;
        let redis = redis_in(&data).await?;
        self.start_with(redis, data).await
    }

    /// As [`RoomSetup::start`], with this Redis.
    ///
    /// # Errors
    /// A process does not start.
    pub async fn start_with(self, redis: RedisServer, data: DataDir) -> Result<Rooms> {
        Host::of_run().ensure_built()?;
        let config = EnvoyConfig::waiting_room()?.redis("127.0.0.1", redis.port())?;
        let config = config.room_config(&self.config())?;
        let tool = tools::Envoy::find_or_get(&tools::Options::default(), &mut SilentReporter)?;
        let mut envoys = Vec::new();
        for number in 0..self.gateways {
            let config = config.clone().gateway_port(ports::free()?)?;
            let options = EnvoyOptions {
                clock_ahead_ms: None,
                drain_s: None,
                config: config.admin_port(ports::free()?)?,
                workers: self.workers,
                log_level: "info".to_owned(),
                variables: vec![(SECRET_VARIABLE.to_owned(), ROOM_SECRET.to_owned())],
                dir: data.path.join(format!("gateway-{number}")),
            };
            envoys.push(Envoy::start(&tool, &options).await?);
        }
        let rooms = Rooms {
            envoys,
            redis,
            data,
        };
        // No page is in this room, so it issues no position, but workers start to poll it.
        for gateway in 0..self.gateways {
            for _ in 0..8 {
                rooms.get(gateway, "/.weir/room/shop", &[]).await?;
            }
        }
        rooms.is_in_use().await?;
        Ok(rooms)
    }

    fn config(&self) -> String {
        // A deadline that a busy machine can meet, and frequent polls of the room.
        format!(
            r#"{{ "redis": {{ "deadline_ms": 3000 }}, "keys": [{{ "secret": {{ "env": "{}" }} }}],
               "poll_interval_ms": 200, "user_header": "x-user-id",
               "rooms": [{{ "name": "shop", "match": {{ "path": {{ "prefix": "/shop" }} }},
               "poll": {{ "min_ms": 500, "max_ms": 1000 }} {} }}] }}"#,
            SECRET_VARIABLE, self.room
        )
    }
}

impl Rooms {
    /// Waits until the gateways issue positions: for two seconds after Redis has lost the room, they do not.
    async fn is_in_use(&self) -> Result<()> {
        crate::until("the room is in use", async || {
            let state = self.state().await;
            state.is_ok_and(|state| {
                let numbers: Vec<u64> = state.split(' ').filter_map(|n| n.parse().ok()).collect();
                // Index 3 is the time at which it settles, index 5 the time of the last poll.
                numbers.get(5) >= numbers.get(3) && numbers.len() > 10
            })
        })
        .await
    }

    /// The room's numbers in Redis.
    ///
    /// # Errors
    /// Redis does not respond.
    pub async fn state(&self) -> Result<String> {
        let mut connection = self.redis.connection().await?;
        let key = "weir:room:{shop}:state";
        let state: Option<String> = redis::cmd("GET")
            .arg(key)
            .query_async(&mut connection)
            .await?;
        state.context("Redis does not know the room")
    }

    /// Sends a GET to a gateway.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn get(
        &self,
        gateway: usize,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response> {
        let url = format!("{}{path}", self.envoys[gateway].url());
        http::send(Method::GET, &url, headers, "").await
    }

    /// A visitor's browser requests a page of the shop. Returns whether the shop answered, and not the room.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn visit(&self, gateway: usize, person: &Person) -> Result<bool> {
        let answer = self.ask(gateway, person, "/shop", "text/html").await?;
        match answer.status {
            200 => Ok(true),
            503 => Ok(false),
            status => anyhow::bail!("{status}: {}", answer.text()),
        }
    }

    /// The room's status for a visitor's page.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn status(&self, gateway: usize, person: &Person) -> Result<Value> {
        let path = "/.weir/room/shop";
        self.ask(gateway, person, path, "application/json")
            .await?
            .json()
    }

    /// A visitor's queue position; 0 if the visitor may enter.
    ///
    /// # Errors
    /// There is no answer, or the visitor has no position.
    pub async fn position(&self, gateway: usize, person: &Person) -> Result<u64> {
        let status = self.status(gateway, person).await?;
        ensure!(
            status["state"] == "waiting" || status["state"] == "hold",
            "{status}"
        );
        Ok(status["position"].as_u64().unwrap_or(0))
    }

    /// Sends a visitor's request, and stores received cookies.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn ask(
        &self,
        gateway: usize,
        person: &Person,
        path: &str,
        accept: &str,
    ) -> Result<Response> {
        let mut headers = vec![("accept", accept)];
        let cookie = person.cookie.borrow().clone();
        headers.extend(cookie.as_deref().map(|cookie| ("cookie", cookie)));
        let answer = self.get(gateway, path, &headers).await?;
        if let Some(cookie) = answer.header("set-cookie") {
            person
                .cookie
                .replace(cookie.split(';').next().map(Into::into));
        }
        Ok(answer)
    }

    /// Script calls, as Redis counts them.
    ///
    /// # Errors
    /// Redis does not respond.
    pub async fn script_calls(&self) -> Result<u64> {
        Ok(script_calls_of(&self.redis.command_calls().await?))
    }

    /// A counter of the filter, by the end of its name, summed over all gateways.
    ///
    /// # Errors
    /// A gateway does not report it.
    pub async fn count(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for envoy in &self.envoys {
            let stats: BTreeMap<String, u64> = envoy.stats().await?;
            let name = format!("wasmcustom.weir_room_{name}");
            sum += stats.get(&name).copied().unwrap_or(0);
        }
        Ok(sum)
    }
}
