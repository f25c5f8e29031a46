//! Waiting rooms: what operators set, and how the queues are.
//!
//! | module | does |
//! |---|---|
//! | [`http`] | the routes for operators |
//! | [`jobs`] | puts settings into Redis, where gateways read them, again and again |
//! | [`model`] | what an operator sets |
//! | [`store`] | settings in SQL, which is the truth |
//!
//! A queue itself is in Redis and in visitors' passes; the origin only looks at it. A room exists at gateways: what is set here
//! for one that no gateway has does nothing.

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
use weir_origin_core::redis::{CallError, Redis};
use weir_origin_core::sql::Database;

/// The tables of rooms.
pub const MIGRATIONS: weir_origin_core::sql::Migrations =
    weir_origin_core::migrations!("rooms", (1, "baseline", "0001_baseline"));

/// Everything about waiting rooms, put together. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Rooms(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    store: RoomStore,
    redis: Redis,
}

impl Rooms {
    /// Waiting rooms in this database and this Redis.
    pub fn new(database: Database, redis: Redis) -> Self {
        Self(Arc::new(Parts {
            store: RoomStore::new(database),
            redis,
        }))
    }

    /// Starts what runs in the background until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        vec![tokio::spawn(self.clone().run_publishing(stop.clone()))]
    }

    /// SQL.
    pub fn store(&self) -> &RoomStore {
        &self.0.store
    }

    /// Puts a setting into Redis, unless one as new is there. Whether it was newer.
    ///
    /// # Errors
    /// When Redis does not do it.
    pub async fn publish(&self, room: &RoomName, setting: &Setting) -> Result<bool, CallError> {
        let call = room_set::call(&self.keys(room), setting);
        Ok(room_set::parse(&self.0.redis.run(&call).await?)?)
    }

    /// How a room is; `None` if Redis does not know it.
    ///
    /// # Errors
    /// When Redis does not tell.
    pub async fn look(&self, room: &RoomName) -> Result<Option<RoomReading>, CallError> {
        let call = room_look::call(&self.keys(room));
        Ok(room_look::parse(&self.0.redis.run(&call).await?)?)
    }

    fn keys(&self, room: &RoomName) -> RoomKeys {
        RoomKeys::new(self.0.redis.prefix(), room)
    }
}
