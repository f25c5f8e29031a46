//! Streams in Redis: who adds to them beside who reads them. Batches of clicks are added by a script:
//! [`link_clicks`](crate::link_clicks).

pub mod link_changes;
