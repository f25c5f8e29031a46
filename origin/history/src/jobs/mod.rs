//! Work in the background.

pub mod fold;
