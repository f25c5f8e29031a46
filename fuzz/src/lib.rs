//! Fuzz targets: one plain function for each parser of untrusted input.
//!
//! A target accepts any bytes and panics if a property of the parser does not hold. The same functions run under
//! libFuzzer (`fuzz_targets/`, by `cargo fuzz`) and under `cargo test` (`tests/replay.rs`: the corpus, and mutations of
//! it).
//!
//! | target | reads | first line or field of its input |
//! |---|---|---|
//! | [`resp_decode`] | one reply | |
//! | [`resp_framer`] | a stream of frames, both directions | how to cut it: see [`pieces::cut`] |
//! | [`script_replies`] | a reply, for each script's parser | |
//! | [`error_reply()`] | an error reply's text | |
//! | [`bridge`] | both directions of a connection | the limits, then steps: see [`bridge()`] |
//! | [`filter_config`] | a configuration, for each filter of the registry | |
//! | [`bridge_config`], [`gate_config`] | a filter's configuration | |
//! | [`catalogue()`] | the catalogue of sales | |
//! | [`challenge_solution`] | a solved challenge of a checkout | |
//! | [`click_tag`] | a signed click ID | |
//! | [`claim_ticket`] | claim header, line feed, signature header | |
//! | [`order_token`] | one order token | |
//! | [`signed_user`] | user header, line feed, signature header | |
//! | [`limit_rules`] | the limiter's configuration, then a request | see [`limit_rules`] |
//! | [`limit_slot`] | a slot of the table of limits, then requests | algorithm, rate and burst: see [`limit_slot`] |
//! | [`address()`] | one client address | |
//! | [`history_cold`] | a browse history in the cold store | |
//! | [`link_record`], [`click_batch`] | a short link in Redis, and a batch of clicks | |
//! | [`event_batch`], [`event_pixel`] | events from clients: a body, the query of an image | |
//! | [`events_config`] | the configuration of the filter for events | |
//! | [`event_envelope`] | an event in the log | |
//! | [`fitment_check`], [`fitment_browse`] | fitment queries: a body, a query string | |
//! | [`fitment_config`] | the configuration of the filter for fitment | |
//! | [`fitment_replies`] | a reply, for each fitment script's parser | |
//! | [`links_config`] | the configuration of the filter for short links | |
//! | [`link_click`] | a request for a link, one line per field | method |
//! | [`link_target`] | the requested target of a link | |
//! | [`link_domains`] | the domains of short links | |
//! | [`room_pass`] | a waiting room pass, line feed, the payload of a pass to sign | |
//! | [`room_request`] | a visitor's request, one line per field | the visitor's status in Redis, a digit |
//! | [`room_replies`] | a reply, for each waiting room script's parser and for a gateway | |
//! | [`room_config`] | the configuration of the filter for waiting rooms | |
//! | [`route()`] | method and path of a route, then of a request, one line each | |

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod address;
mod bridge;
mod catalogue;
mod challenge;
mod claim;
mod config;
mod error_reply;
mod event;
mod fitment;
mod history;
mod identity;
mod limit;
mod link;
pub mod pieces;
mod resp;
mod room;
mod route;
mod rules;
mod scripts;
mod target;
mod token;

pub use address::address;
pub use bridge::bridge;
pub use catalogue::catalogue;
pub use challenge::challenge_solution;
pub use claim::claim_ticket;
pub use config::{bridge_config, filter_config, gate_config};
pub use error_reply::error_reply;
pub use event::{event_batch, event_envelope, event_pixel, events_config};
pub use fitment::{fitment_browse, fitment_check, fitment_config, fitment_replies};
pub use history::history_cold;
pub use identity::signed_user;
pub use limit::limit_slot;
pub use link::{click_batch, click_tag, link_click, link_record, links_config};
pub use resp::{resp_decode, resp_framer};
pub use room::{room_config, room_pass, room_replies, room_request};
pub use route::route;
pub use rules::limit_rules;
pub use scripts::script_replies;
pub use target::{link_domains, link_target};
pub use token::order_token;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target, by the name of its corpus folder and of its binary.
pub const TARGETS: [(&str, Target); 37] = [
    ("address", address),
    ("bridge", bridge),
    ("bridge_config", bridge_config),
    ("catalogue", catalogue),
    ("challenge_solution", challenge_solution),
    ("click_tag", click_tag),
    ("claim_ticket", claim_ticket),
    ("click_batch", click_batch),
    ("error_reply", error_reply),
    ("event_batch", event_batch),
    ("event_envelope", event_envelope),
    ("event_pixel", event_pixel),
    ("events_config", events_config),
    ("filter_config", filter_config),
    ("fitment_browse", fitment_browse),
    ("fitment_check", fitment_check),
    ("fitment_config", fitment_config),
    ("fitment_replies", fitment_replies),
    ("gate_config", gate_config),
    ("history_cold", history_cold),
    ("limit_rules", limit_rules),
    ("limit_slot", limit_slot),
    ("link_click", link_click),
    ("link_domains", link_domains),
    ("link_record", link_record),
    ("link_target", link_target),
    ("links_config", links_config),
    ("order_token", order_token),
    ("resp_decode", resp_decode),
    ("resp_framer", resp_framer),
    ("room_config", room_config),
    ("room_pass", room_pass),
    ("room_replies", room_replies),
    ("room_request", room_request),
    ("route", route),
    ("script_replies", script_replies),
    ("signed_user", signed_user),
];
