//! Typed calls of the scripts of vehicle fitment.
//!
//! Gateways use [`fit_query`], [`fit_route`], [`fit_vehicles`] and [`fit_browse`]; the origin uses the others.
//!
//! The Lua files are in `lua/`, one per script. Each documents its KEYS, ARGV and replies at the top.

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

/// All scripts of vehicle fitment.
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
