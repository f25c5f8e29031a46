//! Plain types of events: log records, dead letters and event types. This module uses neither SQL nor the log.

pub mod dead_letter;
pub mod recent_events;
pub mod record;
pub mod types;
