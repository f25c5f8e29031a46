//! Hooks that Envoy calls for network filters. The caller's obligations are those of [`crate::hooks`].

use core::cell::Cell;
use core::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use crate::api::Buffer;
use crate::connection::Connection;
use crate::module::{Level, Module, ReadStatus};

type Pointer = *const c_void;
type RawHost = *mut c_void;

/// The ABI's values for a connection that a side has closed.
const CLOSED: [u32; 2] = [0, 1];

/// Per-connection state behind Envoy's pointer.
struct ConnectionOf<M: Module> {
    state: M::NetworkState,
    /// Whether Envoy still has the filter.
    is_alive: Rc<Cell<bool>>,
}

/// Runs a hook. `None` after a panic.
fn caught<R>(hook: impl FnOnce() -> R) -> Option<R> {
    // Dropping the panic payload could panic again.
    let result = catch_unwind(AssertUnwindSafe(hook));
    result.map_err(core::mem::forget).ok()
}

/// Runs a hook of a connection and keeps its state alive meanwhile. Calls `connection_panicked` and returns `None`
/// after a panic.
///
/// # Safety
/// `state` must come from [`filter_new`], and [`filter_destroy`] must not have run for it. `raw` must be the filter of
/// this hook.
unsafe fn with_connection<M: Module, R>(
    raw: RawHost,
    state: Pointer,
    hook: impl FnOnce(&M::NetworkState, Connection<'_>) -> R,
) -> Option<R> {
    if state.is_null() {
        return None;
    }
    let of = state.cast::<ConnectionOf<M>>();
    // SAFETY: `filter_new` created it from an `Rc`, and Envoy still holds its share. All hooks of a connection run on
    // one thread.
    let of = unsafe {
        Rc::increment_strong_count(of);
        Rc::from_raw(of)
    };
    // SAFETY: the caller upholds this function's contract.
    let connection = unsafe { Connection::new(raw, &of.is_alive) };
    let done = caught(|| hook(&of.state, connection));
    if done.is_none() {
        caught(|| M::connection_panicked(&of.state));
    }
    done
}

/// `envoy_dynamic_module_on_network_filter_config_new`. Null refuses the configuration.
///
/// # Safety
/// See [the module](self).
pub unsafe fn config_new<M: Module>(name: Buffer, config: Buffer) -> Pointer {
    // SAFETY: Envoy's buffers live through this hook.
    let (name, config) = unsafe { (name.bytes(), config.bytes()) };
    match caught(|| M::configure_network(name, config)) {
        Some(Some(config)) => Arc::into_raw(Arc::new(config)).cast(),
        Some(None) => core::ptr::null(),
        None => {
            let text = "weir: the configuration is refused: it made the module panic";
            crate::log(Level::Error, text);
            core::ptr::null()
        }
    }
}

/// `envoy_dynamic_module_on_network_filter_config_destroy`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn config_destroy<M: Module>(config: Pointer) {
    if !config.is_null() {
        // SAFETY: `config_new` created it, and Envoy returns it exactly once.
        let config = unsafe { Arc::from_raw(config.cast::<M::NetworkConfig>()) };
        caught(|| drop(config));
    }
}

/// `envoy_dynamic_module_on_network_filter_new`. Null ends the connection.
///
/// # Safety
/// See [the module](self).
pub unsafe fn filter_new<M: Module>(config: Pointer, raw: RawHost) -> Pointer {
    if config.is_null() {
        return core::ptr::null();
    }
    let config = config.cast::<M::NetworkConfig>();
    // SAFETY: `config_new` created it from an `Arc`, and Envoy still holds its share.
    let config = unsafe {
        Arc::increment_strong_count(config);
        Arc::from_raw(config)
    };
    let is_alive = Rc::new(Cell::new(true));
    // SAFETY: `raw` is the filter of the running hook, which outlives the value.
    let connection = unsafe { Connection::new(raw, &is_alive) };
    let created = caught(|| M::connected(&config, connection));
    created.map_or(core::ptr::null(), |state| {
        let of: ConnectionOf<M> = ConnectionOf { state, is_alive };
        Rc::into_raw(Rc::new(of)).cast()
    })
}

/// `envoy_dynamic_module_on_network_filter_read`. After a panic the bytes continue.
///
/// # Safety
/// See [the module](self).
pub unsafe fn received<M: Module>(raw: RawHost, state: Pointer, is_last: bool) -> u32 {
    let hook = |state: &M::NetworkState, connection: Connection<'_>| {
        M::received(state, connection, is_last)
    };
    // SAFETY: the caller upholds this function's contract.
    let status = unsafe { with_connection::<M, _>(raw, state, hook) };
    status.unwrap_or(ReadStatus::Continue) as u32
}

/// `envoy_dynamic_module_on_network_filter_write`: the bytes always continue.
///
/// # Safety
/// See [the module](self).
pub unsafe fn sent<M: Module>(raw: RawHost, state: Pointer) -> u32 {
    // SAFETY: the caller upholds this function's contract.
    unsafe { with_connection::<M, _>(raw, state, M::sent) };
    0
}

/// `envoy_dynamic_module_on_network_filter_above_write_buffer_high_watermark`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn congested<M: Module>(raw: RawHost, state: Pointer) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { with_connection::<M, _>(raw, state, |state, _| M::congested(state)) };
}

/// `envoy_dynamic_module_on_network_filter_event`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn event<M: Module>(raw: RawHost, state: Pointer, event: u32) {
    if CLOSED.contains(&event) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { with_connection::<M, _>(raw, state, |state, _| M::disconnected(state)) };
    }
}

/// `envoy_dynamic_module_on_network_filter_scheduled`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn called<M: Module>(raw: RawHost, state: Pointer) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { with_connection::<M, _>(raw, state, M::connection_called) };
}

/// `envoy_dynamic_module_on_network_filter_destroy`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn filter_destroy<M: Module>(state: Pointer) {
    if !state.is_null() {
        // SAFETY: `filter_new` created it, and Envoy returns it exactly once.
        let of = unsafe { Rc::from_raw(state.cast::<ConnectionOf<M>>()) };
        of.is_alive.set(false);
        caught(|| {
            M::disconnected(&of.state);
            drop(of);
        });
    }
}
