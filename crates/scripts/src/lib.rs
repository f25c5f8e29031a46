//! Weir's Redis scripts, with typed keys, arguments and replies.
//!
//! The Lua is in `lua/`, one file a script, each with its KEYS, ARGV and replies documented at its
//! top. Filters and origin both call it through this crate, so that neither spells a key, counts an
//! argument or reads a reply by itself.
//!
//! - [`keys`]: every key Weir has in Redis.
//! - [`documents`], [`streams`], [`routes`]: what else two processes must agree on, writer beside reader.
//! - [`Call`]: one script call, ready to be sent with EVALSHA or EVAL.
//! - One module a script: builds a call, reads its reply. Of users: [`claim`], [`release`], [`settle`],
//!   [`charge`], [`cancel`], [`overdue`]. Of stock: [`warm`], [`lend`], [`deposit`],
//!   [`settle_transfer`], [`probe`], [`audit`], [`restock`], [`stock_change`]. After a loss: [`wipe`], [`restore`], [`correct`],
//!   [`recount`]. Of the catalogue: [`publish`]. Of checkouts: [`challenge_spend`].
//!   Of what gateways have decided: [`tally`]. Of rate limits: [`limit`], [`limit_back`]. Of short links: [`link_read`], [`link_back`],
//!   [`link_clicks`], [`link_uniques`]. Of browse history: [`history_view`], [`history_read`], [`history_fill`],
//!   [`history_count`], [`history_delete`], [`history_clear`], [`history_mark`].
//!   Of waiting rooms: [`room_ask`], [`room_tick`], [`room_set`], [`room_look`].
//!   Of vehicle fitment: [`fit_query`], [`fit_route`], [`fit_vehicles`], [`fit_browse`] for gateways; [`fit_put`], [`fit_add`],
//!   [`fit_drop`], [`fit_verify`], [`fit_route_put`], [`fit_vehicles_put`], [`fit_browse_fill`] for the origin.
//!
//! Each domain's keys and scripts are behind a feature of its name (`sale`, `limit`, `link`, `history`,
//! `fitment`, `room`), so that a filter
//! is built without the other domains.

#![no_std]
#![forbid(unsafe_code)]
// Without all domains, some of what they share has no caller.
#![cfg_attr(
    not(all(
        feature = "fitment",
        feature = "history",
        feature = "limit",
        feature = "link",
        feature = "room",
        feature = "sale"
    )),
    allow(dead_code, unused_macros)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// A script's source, after the files of what it shares with others.
#[cfg(any(feature = "limit", feature = "room", feature = "sale"))]
macro_rules! after {
    ($($prelude:literal),+ => $name:literal) => {
        concat!(
            $(include_str!(concat!("../lua/", $prelude, ".lua")),)+
            include_str!(concat!("../lua/", $name, ".lua"))
        )
    };
}

/// A script's source, after the reading and writing of a shard that it needs.
#[cfg(feature = "sale")]
macro_rules! with_shard {
    ($name:literal) => {
        after!("shard" => $name)
    };
}

/// The same, with the reading and writing of records.
#[cfg(feature = "sale")]
macro_rules! with_records {
    ($name:literal) => {
        after!("shard", "record" => $name)
    };
}

/// A script's source, after the counting of rate limits that it needs.
#[cfg(feature = "limit")]
macro_rules! with_limit_states {
    ($name:literal) => {
        after!("limit_state" => $name)
    };
}

/// A script's source, after the state of a waiting room that it needs.
#[cfg(feature = "room")]
macro_rules! with_room {
    ($name:literal) => {
        after!("room_state" => $name)
    };
}

#[cfg(feature = "sale")]
pub mod audit;
mod call;
#[cfg(feature = "sale")]
pub mod cancel;
#[cfg(feature = "sale")]
pub mod challenge_spend;
#[cfg(feature = "sale")]
pub mod charge;
#[cfg(feature = "sale")]
pub mod claim;
#[cfg(feature = "sale")]
pub mod correct;
#[cfg(feature = "sale")]
pub mod deposit;
pub mod documents;
#[cfg(feature = "fitment")]
pub mod fit_add;
#[cfg(feature = "fitment")]
pub mod fit_browse;
#[cfg(feature = "fitment")]
pub mod fit_browse_fill;
#[cfg(feature = "fitment")]
pub mod fit_drop;
#[cfg(feature = "fitment")]
pub mod fit_put;
#[cfg(feature = "fitment")]
pub mod fit_query;
#[cfg(feature = "fitment")]
pub mod fit_route;
#[cfg(feature = "fitment")]
pub mod fit_route_put;
#[cfg(feature = "fitment")]
pub mod fit_vehicles;
#[cfg(feature = "fitment")]
pub mod fit_vehicles_put;
#[cfg(feature = "fitment")]
pub mod fit_verify;
#[cfg(feature = "history")]
pub mod history;
#[cfg(feature = "history")]
pub mod history_clear;
#[cfg(feature = "history")]
pub mod history_count;
#[cfg(feature = "history")]
pub mod history_delete;
#[cfg(feature = "history")]
pub mod history_fill;
#[cfg(feature = "history")]
pub mod history_mark;
#[cfg(feature = "history")]
pub mod history_read;
#[cfg(feature = "history")]
pub mod history_view;
pub mod keys;
#[cfg(feature = "sale")]
pub mod lend;
#[cfg(feature = "limit")]
pub mod limit;
#[cfg(feature = "limit")]
pub mod limit_back;
#[cfg(feature = "link")]
pub mod link_back;
#[cfg(feature = "link")]
pub mod link_clicks;
#[cfg(feature = "link")]
pub mod link_read;
#[cfg(feature = "link")]
pub mod link_segment;
#[cfg(feature = "link")]
pub mod link_uniques;
#[cfg(feature = "sale")]
pub mod overdue;
#[cfg(feature = "sale")]
pub mod probe;
#[cfg(feature = "sale")]
pub mod publish;
#[cfg(feature = "sale")]
pub mod recount;
#[cfg(feature = "sale")]
pub mod release;
mod reply;
#[cfg(feature = "sale")]
pub mod restock;
#[cfg(feature = "sale")]
pub mod restore;
#[cfg(feature = "room")]
pub mod room;
#[cfg(feature = "room")]
pub mod room_ask;
#[cfg(feature = "room")]
pub mod room_look;
#[cfg(feature = "room-model")]
pub mod room_model;
#[cfg(feature = "room")]
pub mod room_set;
#[cfg(feature = "room")]
pub mod room_tick;
#[cfg(any(feature = "fitment", feature = "link"))]
pub mod routes;
#[cfg(feature = "sale")]
pub mod settle;
#[cfg(feature = "sale")]
pub mod settle_transfer;
#[cfg(feature = "sale")]
pub mod stock_change;
#[cfg(feature = "link")]
pub mod streams;
pub mod tally;
#[cfg(feature = "sale")]
pub mod warm;
#[cfg(feature = "sale")]
pub mod wipe;

pub use call::{Call, Script};
pub use reply::ReplyError;

/// Every script of the features that are on, for checks over all of them.
pub const SCRIPTS: &[&Script] = &[
    #[cfg(feature = "sale")]
    &audit::SCRIPT,
    #[cfg(feature = "sale")]
    &cancel::SCRIPT,
    #[cfg(feature = "sale")]
    &challenge_spend::SCRIPT,
    #[cfg(feature = "sale")]
    &charge::SCRIPT,
    #[cfg(feature = "sale")]
    &claim::SCRIPT,
    #[cfg(feature = "sale")]
    &correct::SCRIPT,
    #[cfg(feature = "sale")]
    &deposit::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_add::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_browse::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_browse_fill::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_drop::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_put::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_query::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_query::BITMAPS,
    #[cfg(feature = "fitment")]
    &fit_route::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_route_put::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_vehicles::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_vehicles_put::SCRIPT,
    #[cfg(feature = "fitment")]
    &fit_verify::SCRIPT,
    #[cfg(feature = "history")]
    &history_clear::SCRIPT,
    #[cfg(feature = "history")]
    &history_count::SCRIPT,
    #[cfg(feature = "history")]
    &history_delete::SCRIPT,
    #[cfg(feature = "history")]
    &history_fill::SCRIPT,
    #[cfg(feature = "history")]
    &history_mark::SCRIPT,
    #[cfg(feature = "history")]
    &history_read::SCRIPT,
    #[cfg(feature = "history")]
    &history_view::SCRIPT,
    #[cfg(feature = "sale")]
    &lend::SCRIPT,
    #[cfg(feature = "limit")]
    &limit::SCRIPT,
    #[cfg(feature = "limit")]
    &limit_back::SCRIPT,
    #[cfg(feature = "link")]
    &link_back::SCRIPT,
    #[cfg(feature = "link")]
    &link_clicks::SCRIPT,
    #[cfg(feature = "link")]
    &link_read::SCRIPT,
    #[cfg(feature = "link")]
    &link_segment::SCRIPT,
    #[cfg(feature = "link")]
    &link_uniques::SCRIPT,
    #[cfg(feature = "sale")]
    &overdue::SCRIPT,
    #[cfg(feature = "sale")]
    &probe::SCRIPT,
    #[cfg(feature = "sale")]
    &publish::SCRIPT,
    #[cfg(feature = "sale")]
    &recount::SCRIPT,
    #[cfg(feature = "sale")]
    &release::SCRIPT,
    #[cfg(feature = "sale")]
    &restock::SCRIPT,
    #[cfg(feature = "sale")]
    &restore::SCRIPT,
    #[cfg(feature = "room")]
    &room_ask::SCRIPT,
    #[cfg(feature = "room")]
    &room_look::SCRIPT,
    #[cfg(feature = "room")]
    &room_set::SCRIPT,
    #[cfg(feature = "room")]
    &room_tick::SCRIPT,
    #[cfg(feature = "sale")]
    &settle::SCRIPT,
    #[cfg(feature = "sale")]
    &settle_transfer::SCRIPT,
    #[cfg(feature = "sale")]
    &stock_change::SCRIPT,
    &tally::SCRIPT,
    #[cfg(feature = "sale")]
    &warm::SCRIPT,
    #[cfg(feature = "sale")]
    &wipe::SCRIPT,
];
