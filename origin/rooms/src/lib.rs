//! Waiting rooms: settings and queue readings.
//!
//! | module | contents |
//! |---|---|
//! | [`http`] | the admin routes |
//! | [`jobs`] | periodic publishing of settings to Redis, where gateways read them |
//! | [`model`] | the setting of a room |
//! | [`store`] | settings in SQL, the source of truth |
//!
//! The queue itself is in Redis and in visitors' queue tokens; the origin only reads it. Rooms are defined in the
//! gateways' configuration: a setting for a room that no gateway defines has no effect.

#![forbid(unsafe_code)]

pub mod http;
pub mod jobs;
pub mod model;
pub mod store;

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_room::redis::keys::RoomKeys;
use weir_room::redis::room_look::RoomReading;
use weir_room::redis::{room_look, room_set};
use weir_room::{RoomName, Setting};

use store::RoomStore;
use weir_origin_core::clock::now_ms;
use weir_origin_core::gateways::{self, Report};
use weir_origin_core::redis::{CallError, Redis};
use weir_origin_core::sql::Database;

/// SQL migrations of waiting rooms.
pub const MIGRATIONS: weir_origin_core::sql::Migrations =
    weir_origin_core::migrations!("rooms", (1, "baseline", "0001_baseline"));

/// Waiting rooms: store and Redis. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Rooms(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    store: RoomStore,
    redis: Redis,
}

impl Rooms {
    /// Creates waiting rooms on this database and Redis.
    pub fn new(database: Database, redis: Redis) -> Self {
        Self(Arc::new(Parts {
            store: RoomStore::new(database),
            redis,
        }))
    }

    /// Spawns the background jobs, which run until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        vec![tokio::spawn(self.clone().run_publishing(stop.clone()))]
    }

    /// The SQL store.
    pub fn store(&self) -> &RoomStore {
        &self.0.store
    }

    /// Writes a setting to Redis unless Redis has one at least as new. Returns whether it was written.
    ///
    /// # Errors
    /// When the Redis call fails.
    pub async fn publish(&self, room: &RoomName, setting: &Setting) -> Result<bool, CallError> {
        let call = room_set::call(&self.keys(room), setting);
        Ok(room_set::parse(&self.0.redis.run(&call).await?)?)
    }

    /// Removes a setting from Redis, so that the setting in the gateways' configuration applies.
    ///
    /// # Errors
    /// When the Redis call fails.
    pub async fn unpublish(&self, room: &RoomName) -> Result<(), CallError> {
        let mut command = redis::cmd("DEL");
        command.arg(self.keys(room).setting());
        self.0.redis.send(&command).await.map(drop)
    }

    /// Reads a room's queue; `None` if Redis has no data of the room.
    ///
    /// # Errors
    /// When the Redis call fails.
    pub async fn look(&self, room: &RoomName) -> Result<Option<RoomReading>, CallError> {
        let call = room_look::call(&self.keys(room));
        Ok(room_look::parse(&self.0.redis.run(&call).await?)?)
    }

    /// What gateways report about themselves.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn reports(&self) -> Result<Vec<Report>, CallError> {
        gateways::read(&self.0.redis, now_ms()).await
    }

    fn keys(&self, room: &RoomName) -> RoomKeys {
        RoomKeys::new(self.0.redis.prefix(), room)
    }
}
