//! Browse history: which products a user has seen last.
//!
//! A view is a product (SKU) and a time. A user's list has each product once, at its latest view, the newest first, and
//! at most [`VIEWS_MAX`] of them. Redis holds the lists of those who came within [`HOT_MS`] (hot); a store on disk holds all
//! of [`COLD_MS`] (cold). Whatever a user has deleted or cleared stays away: a view counts only if it is newer.
//!
//! | module | |
//! |---|---|
//! | [`owner`], [`sku`] | whose list it is, and what stands in it |
//! | [`list`] | lists merged, removals, pages, products shown once |
//! | [`cold`] | a list as the cold store keeps it |
//! | [`slot`] | which users share a slot of a Redis Cluster |
//! | `model` | what the scripts in Redis do, in Rust (feature `model`) |
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

/// The most products of a list.
pub const VIEWS_MAX: usize = 200;

/// A day, in milliseconds.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// How long a list stays in Redis after its last view. It is copied to the cold store on the day after that view; two
/// more days are for copying that failed, and for its repair.
pub const HOT_MS: u64 = 4 * DAY_MS;

/// How long a view is kept at all.
pub const COLD_MS: u64 = 62 * DAY_MS;

/// How long removals are kept: longer than any view that they cover.
pub const REMOVALS_MS: u64 = COLD_MS + DAY_MS;

/// The most deleted products that are remembered of one user. Who deletes more must clear the history, which forgets them.
pub const DELETIONS_MAX: usize = 2_000;

/// The latest time of a view: the largest whole number that Lua and Redis' scores hold exactly.
pub const AT_MS_MAX: u64 = 1 << 53;

/// The oldest time of a view that still counts at `now_ms`.
pub const fn oldest_ms(now_ms: u64) -> u64 {
    now_ms.saturating_sub(COLD_MS)
}
