//! Vehicle fitment: which parts (SKUs) fit which vehicles.
//!
//! A vehicle has an id of at most seven digits and an [`Offset`], a small number that is never used twice. A SKU belongs to a
//! product (SPU) and fits a set of offsets. Redis keeps the set as a set of integers while it is small and as bitmaps of
//! [`SEGMENT_LEN`] offsets when it is not. A SKU that Redis does not know is *unknown*, which is not the same as "does not fit".
//!
//! | module | |
//! |---|---|
//! | [`id`] | names and numbers that come from outside |
//! | [`check`] | what a client may ask at once, and how it is answered |
//! | [`shape`] | a SKU's offsets as Redis keeps them |
//! | [`placement`] | in which Redis a product is, and the rules that say so |
//! | `model` | what the scripts in Redis do, in Rust (feature `model`) |
//! | [`engine`] | the engine of its filter: events in, effects out |
//! | [`redis`] | Redis keys, and typed calls of the scripts in `lua/` |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod check;
pub mod engine;
pub mod id;
#[cfg(feature = "model")]
pub mod model;
pub mod placement;
pub mod redis;
pub mod routes;
pub mod shape;

pub use check::Answer;
pub use id::{Merchant, Offset, ProductType, Sku, Spu, VehicleId};
pub use placement::{Cluster, Placement};
pub use shape::{Plan, Shape};

/// How many offsets a segment has: 1 to 50,000 are segment 0. A bitmap of all of them takes 6.3 KB, so that no key is large.
pub const SEGMENT_LEN: u32 = 50_000;

/// The most vehicles of one request.
pub const VEHICLES_MAX: usize = 5;

/// The most SKUs of one request.
pub const SKUS_MAX: usize = 200;

/// The most offsets of a SKU that are kept as a set of integers. Redis packs up to 512 of them (`set-max-intset-entries`), and
/// one of those is the sentinel.
pub const SPARSE_MAX: usize = 511;

/// The largest version: the largest whole number that Lua holds exactly.
pub const VERSION_MAX: u64 = 1 << 53;
