//! The host's clock, and panics that say where.

use std::time::UNIX_EPOCH;

use proxy_wasm::hostcalls;

/// The host's wall clock, in milliseconds since the Unix epoch; 0 if the host has none.
pub fn now_ms() -> u64 {
    hostcalls::get_current_time()
        .ok()
        .and_then(|now| now.duration_since(UNIX_EPOCH).ok())
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}

/// As [`now_ms`], in nanoseconds: a number that is hard to guess.
pub fn now_ns() -> u64 {
    hostcalls::get_current_time()
        .ok()
        .and_then(|now| now.duration_since(UNIX_EPOCH).ok())
        .and_then(|since| u64::try_from(since.as_nanos()).ok())
        .unwrap_or(0)
}

/// Makes a panic log its message and place: on `wasm32-unknown-unknown` it would end the VM without
/// a word. `filter` is the filter's name.
pub fn log_panics(filter: &'static str) {
    std::panic::set_hook(Box::new(move |info| {
        log::error!("{filter}: panicked, this VM ends: {info}");
    }));
}
