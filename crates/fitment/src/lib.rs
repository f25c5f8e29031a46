//! Vehicle fitment: which parts (SKUs) fit which vehicles.
//!
//! A vehicle has an id of at most seven digits and an [`Offset`], a small number that is never reused. A SKU belongs to
//! a product (SPU) and fits a set of offsets. Redis stores a small set as integers, and a large one as bitmaps of
//! [`SEGMENT_LEN`] offsets. A SKU that is not in Redis is *unknown*, which differs from "does not fit".
//!
//! | module | |
//! |---|---|
//! | [`id`] | identifiers of vehicles and products |
//! | [`check`] | queries and their responses |
//! | [`shape`] | the layout of a SKU's offsets in Redis |
//! | [`placement`] | the location of products, and its rules |
//! | `model` | a Rust model of the scripts in Redis (feature `model`) |
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

/// Offsets per segment: 1 to 50,000 are in segment 0. A full bitmap takes 6.3 KB, so that no key is large.
pub const SEGMENT_LEN: u32 = 50_000;

/// Maximum vehicles of one request.
pub const VEHICLES_MAX: usize = 5;

/// Maximum SKUs of one request.
pub const SKUS_MAX: usize = 200;

/// Maximum offsets of a SKU that are stored as a set of integers. Redis packs up to 512 of them
/// (`set-max-intset-entries`), including the sentinel.
pub const SPARSE_MAX: usize = 511;

/// Maximum version: the largest integer that Lua represents exactly.
pub const VERSION_MAX: u64 = 1 << 53;
