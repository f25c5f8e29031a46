//! Short links: their names, what they say, and how they are answered.

pub mod code;
pub mod domain;
