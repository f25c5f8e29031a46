//! Fuzz targets: one plain function for each reader of outside input.
//!
//! A target takes any bytes and panics if a property of the reader does not hold on them. The same
//! functions run under libFuzzer (`fuzz_targets/`, by `cargo fuzz`) and under `cargo test`
//! (`tests/replay.rs`: the corpus, and mutations of it).
//!
//! | target | reads | first line or field of its input |
//! |---|---|---|
//! | [`resp_decode`] | one reply | |
//! | [`resp_framer`] | a stream of frames, both directions | how to cut it: see [`pieces::cut`] |
//! | [`script_replies`] | a reply, as each script's | |
//! | [`error_reply()`] | an error reply's text | |
//! | [`bridge`] | both directions of a connection | the limits, then steps: see [`bridge()`] |
//! | [`bridge_config`], [`gate_config`] | a filter's configuration | |
//! | [`catalogue()`] | the catalogue of sales | |
//! | [`claim_ticket`] | claim header, line feed, signature header | |
//! | [`route()`] | method and path of a route, then of a request; a line each | |

mod bridge;
mod catalogue;
mod claim;
mod config;
mod error_reply;
pub mod pieces;
mod resp;
mod route;
mod scripts;

pub use bridge::bridge;
pub use catalogue::catalogue;
pub use claim::claim_ticket;
pub use config::{bridge_config, gate_config};
pub use error_reply::error_reply;
pub use resp::{resp_decode, resp_framer};
pub use route::route;
pub use scripts::script_replies;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target, by the name of its corpus folder and of its binary.
pub const TARGETS: [(&str, Target); 10] = [
    ("bridge", bridge),
    ("bridge_config", bridge_config),
    ("catalogue", catalogue),
    ("claim_ticket", claim_ticket),
    ("error_reply", error_reply),
    ("gate_config", gate_config),
    ("resp_decode", resp_decode),
    ("resp_framer", resp_framer),
    ("route", route),
    ("script_replies", script_replies),
];
