//! Short links: what the origin knows of them beside the gateways.
//!
//! | module | does |
//! |---|---|
//! | [`clicks`] | takes batches of clicks from gateways and counts each once |
//! | [`geo`] | where an address is, and who runs its network |
//! | [`qr`] | QR codes |
//! | [`stats`] | what is counted of clicks, and how it is asked for |
//! | [`uniques`] | visitors and addresses, counted without being known |

pub mod clicks;
pub mod geo;
pub mod qr;
pub mod stats;
mod stream;
pub mod uniques;
