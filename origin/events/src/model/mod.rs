//! Plain types of events: what the log holds, dead letters, the types that events have. No SQL, no log.

pub mod dead_letter;
pub mod record;
pub mod seen;
pub mod types;
