//! Each filter as WebAssembly in `host-test`. The tests are next to the filters, but in one executable: each executable
//! with a WebAssembly compiler takes 60 MB, and seconds to link.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

#[path = "../../filters/events/tests/filter/main.rs"]
mod events;
#[path = "../../filters/fitment/tests/filter/main.rs"]
mod fitment;
mod idle;
#[path = "../../filters/ratelimit/tests/filter/main.rs"]
mod ratelimit;
#[path = "../../filters/redis-bridge/tests/bridge.rs"]
mod redis_bridge;
#[path = "../../filters/seckill-gate/tests/filter/main.rs"]
mod seckill_gate;
#[path = "../../filters/shortlink-redirect/tests/filter/main.rs"]
mod shortlink_redirect;
#[path = "../../filters/waiting-room/tests/filter/main.rs"]
mod waiting_room;
