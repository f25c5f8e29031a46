//! Plain types of stores and readers.

pub mod cold;
pub mod products;
pub mod switches;
