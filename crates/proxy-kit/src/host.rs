//! The host's clock, names for this VM, and panic messages in the log.

use std::time::UNIX_EPOCH;

use proxy_wasm::hostcalls;
use proxy_wasm::types::BufferType;
use weir_base::FieldError;

/// The host's wall clock, in milliseconds since the Unix epoch; 0 if the host has none.
pub fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// Like [`now_ms`], in nanoseconds: a number that is hard to guess.
pub fn now_ns() -> u64 {
    let now = hostcalls::get_current_time().ok();
    let since = now.and_then(|now| now.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| {
        // 64 bits last until the year 2554; `as_nanos` returns 128, which wasm emulates slowly.
        since
            .as_secs()
            .saturating_mul(1_000_000_000)
            .saturating_add(since.subsec_nanos().into())
    })
}

/// The default for a missing configuration.
pub const NO_CONFIGURATION: &[u8] = b"{}";

/// The plugin's configuration; `{}` if it is missing.
///
/// # Errors
/// When the host does not return it.
pub fn configuration() -> Result<Vec<u8>, FieldError> {
    let json = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX);
    let problem = |status| format!("not available from the host: {status:?}");
    let json = json.map_err(|status| FieldError::new("", problem(status)))?;
    let json = json.filter(|json| !json.is_empty());
    Ok(json.unwrap_or_else(|| NO_CONFIGURATION.to_vec()))
}

/// Logs the message and location of a panic: on `wasm32-unknown-unknown` it would end the VM silently. `filter` is the
/// filter's name.
pub fn log_panics(filter: &'static str) {
    std::panic::set_hook(Box::new(move |info| {
        log::error!("{filter}: panicked, this VM ends: {info}");
    }));
}

/// A name that is unique among the VMs of this process, and almost certainly among all processes. It consists of a
/// counter in shared data and the clock, in case two VMs create the counter at the same moment.
pub fn unique_name() -> String {
    const KEY: &str = "weir.vm_counter";
    const TRIES: usize = 1_000;
    let mut counter = 0_u64;
    for _ in 0..TRIES {
        let (value, cas) = hostcalls::get_shared_data(KEY).unwrap_or_default();
        counter = value
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_le_bytes)
            .wrapping_add(1);
        if hostcalls::set_shared_data(KEY, Some(&counter.to_le_bytes()), cas).is_ok() {
            break;
        }
    }
    format!("{counter}.{}", now_ns())
}
