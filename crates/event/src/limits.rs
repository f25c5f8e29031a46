//! How much may be sent. Each limit bounds the memory or the time that one request can take.

/// The most events of one body. More are more likely a loop that went wrong than a queue that filled up offline.
pub const EVENTS_MAX: usize = 1_000;

/// The longest body, in bytes.
pub const BODY_LEN_MAX: usize = 1 << 20;

/// The longest event, in bytes of JSON: as it was sent, and its attributes as they are kept.
pub const EVENT_LEN_MAX: usize = 32 << 10;

/// How deep arrays and objects may stand in one another; the event itself is the first.
pub const NESTING_MAX: usize = 16;

/// The longest query of an image request, in bytes. Browsers and proxies cut longer addresses.
pub const QUERY_LEN_MAX: usize = 8 << 10;

/// The most attributes in the query of an image request.
pub const QUERY_ATTRIBUTES_MAX: usize = 64;

/// The most topics of one event.
pub const TOPICS_MAX: usize = 16;
