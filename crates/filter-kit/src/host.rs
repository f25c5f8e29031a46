//! The host's clock, and panics that say where.

use std::time::UNIX_EPOCH;

use proxy_wasm::hostcalls;

/// The host's wall clock, in milliseconds since the Unix epoch; 0 if the host has none.
pub fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// As [`now_ms`], in nanoseconds: a number that is hard to guess.
pub fn now_ns() -> u64 {
    let now = hostcalls::get_current_time().ok();
    let since = now.and_then(|now| now.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| {
        // 64 bits last until the year 2554; `as_nanos` has 128, which wasm has to compute by hand.
        since
            .as_secs()
            .saturating_mul(1_000_000_000)
            .saturating_add(since.subsec_nanos().into())
    })
}

/// Makes a panic log its message and place: on `wasm32-unknown-unknown` it would end the VM without
/// a word. `filter` is the filter's name.
pub fn log_panics(filter: &'static str) {
    std::panic::set_hook(Box::new(move |info| {
        log::error!("{filter}: panicked, this VM ends: {info}");
    }));
}
