//! Short links: made, kept, found again when Redis has lost them; their clicks.
//!
//! | module | does |
//! |---|---|
//! | [`store`] | the cold store: SQL behind a trait |
//! | [`log`] | what makes a link survive before the cold store has it |
//! | [`metrics`] | what is counted of all this |
//! | [`clicks`] | takes batches of clicks from gateways and counts each once |
//! | [`csv`] | tables for other programs |
//! | [`geo`] | where an address is, and who runs its network |
//! | [`qr`] | QR codes |
//! | [`report`] | what is answered about a link's clicks |
//! | [`stats`] | what is counted of clicks, and how it is asked for |
//! | [`uniques`] | visitors and addresses, counted without being known |

pub mod clicks;
pub mod csv;
pub mod geo;
pub mod log;
pub mod metrics;
pub mod qr;
pub mod report;
pub mod stats;
pub mod store;
mod stream;
pub mod uniques;
