//! Plain types: what stores keep and read.

pub mod cold;
pub mod products;
pub mod switches;
