//! Background jobs, one per file.

pub mod archive;
pub mod catalogue;
pub mod list_changes;
pub mod rebuild;
pub mod reconcile;
pub mod redis_identity;
pub mod regular;
pub mod sites;
