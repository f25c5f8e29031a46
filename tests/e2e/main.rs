//! Weir as a whole, with real parts.

mod bridge;
mod bytes;
mod config;
mod disconnect;
mod outage;
mod storm;
