//! The engine on a model of Redis: who enters, who waits, and what becomes of them when something fails.

mod failures;
mod properties;
mod redis;
mod visits;
mod world;
