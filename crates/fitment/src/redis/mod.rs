//! Typed calls of the scripts of vehicle fitment.
//!
//! [`fit_query`], [`fit_route`], [`fit_vehicles`] and [`fit_browse`] are for gateways, the others for the origin.
//!
//! The Lua is in `lua/`, one file a script, with its KEYS, ARGV and replies documented at its top.

pub mod fit_add;
pub mod fit_browse;
pub mod fit_browse_fill;
pub mod fit_drop;
pub mod fit_put;
pub mod fit_query;
pub mod fit_route;
pub mod fit_route_put;
pub mod fit_vehicles;
pub mod fit_vehicles_put;
pub mod fit_verify;
pub mod keys;

use weir_scripts::Script;

/// Every script of this domain.
pub const SCRIPTS: &[&Script] = &[
    &fit_add::SCRIPT,
    &fit_browse::SCRIPT,
    &fit_browse_fill::SCRIPT,
    &fit_drop::SCRIPT,
    &fit_put::SCRIPT,
    &fit_query::SCRIPT,
    &fit_query::BITMAPS,
    &fit_route::SCRIPT,
    &fit_route_put::SCRIPT,
    &fit_vehicles::SCRIPT,
    &fit_vehicles_put::SCRIPT,
    &fit_verify::SCRIPT,
];
