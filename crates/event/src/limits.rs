//! Limits. Each bounds the memory or time of one request.

/// Maximum events of one body. More indicate a client defect rather than an offline queue.
pub const EVENTS_MAX: usize = 1_000;

/// Maximum length of a body, in bytes.
pub const BODY_LEN_MAX: usize = 1 << 20;

/// Maximum length of an event, in bytes of JSON: as sent, and its attributes as stored.
pub const EVENT_LEN_MAX: usize = 32 << 10;

/// Maximum nesting of arrays and objects; the event itself is level 1.
pub const NESTING_MAX: usize = 16;

/// Maximum length of a tracking pixel's query, in bytes. Browsers and proxies truncate longer URLs.
pub const QUERY_LEN_MAX: usize = 8 << 10;

/// Maximum attributes in a tracking pixel's query.
pub const QUERY_ATTRIBUTES_MAX: usize = 64;

/// Maximum topics of one event.
pub const TOPICS_MAX: usize = 16;
