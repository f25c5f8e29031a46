//! Browse history: the products that a user has viewed last.
//!
//! A view is a product (SKU) and a time. A user's list contains each product once, at its latest view, the newest
//! first, and at most [`VIEWS_MAX`] of them. Redis contains the lists of users who were active within [`HOT_MS`] (hot).
//! A store on disk contains all views of the last [`COLD_MS`] (cold). Deleted and cleared views stay removed: only
//! newer views count.
//!
//! | module | |
//! |---|---|
//! | [`owner`], [`sku`] | owners of lists, and product names |
//! | [`list`] | merging, removals, pages, unique products |
//! | [`cold`] | the format of a list in the cold store |
//! | [`slot`] | slots of a Redis Cluster |
//! | `model` | a Rust model of the scripts in Redis (feature `model`) |
//! | [`redis`] | Redis keys, and typed calls of the scripts in `lua/` |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cold;
pub mod list;
#[cfg(feature = "model")]
pub mod model;
pub mod owner;
pub mod redis;
pub mod sku;
pub mod slot;

pub use list::{LoadedLists, Removals, ViewOutcome, ViewedProduct};
pub use owner::Owner;
pub use sku::Sku;

/// Maximum products of a list.
pub const VIEWS_MAX: usize = 200;

/// A day, in milliseconds.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// How long a list stays in Redis after its last view. It is copied to the cold store on the day after that view. Two
/// more days allow for a failed copy and its repair.
pub const HOT_MS: u64 = 4 * DAY_MS;

/// Retention of a view.
pub const COLD_MS: u64 = 62 * DAY_MS;

/// Retention of removals: longer than any view that they cover.
pub const REMOVALS_MS: u64 = COLD_MS + DAY_MS;

/// Maximum deleted products stored per user. To delete more, a user must clear the history, which resets them.
pub const DELETIONS_MAX: usize = 2_000;

/// Maximum time of a view: the largest integer that Lua and Redis scores represent exactly.
pub const AT_MS_MAX: u64 = 1 << 53;

/// The oldest time of a view that still counts at `now_ms`.
pub const fn oldest_ms(now_ms: u64) -> u64 {
    now_ms.saturating_sub(COLD_MS)
}
