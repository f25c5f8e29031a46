//! The engine without a host: it is given events, and its effects are looked at.

mod collect;
mod host;
mod limits;
mod observe;
mod properties;
