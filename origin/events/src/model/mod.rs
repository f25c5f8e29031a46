//! Plain types of events: log records, dead letters, event types and segments. This module uses neither SQL nor the log.

pub mod dead_letter;
pub mod recent_events;
pub mod record;
pub mod segments;
pub mod types;
