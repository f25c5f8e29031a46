//! Weir as a whole, with real parts.

mod bridge;
mod bytes;
mod config;
mod disconnect;
mod jwt;
mod outage;
mod storm;
mod switches;
mod tokens;
