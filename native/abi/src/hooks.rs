//! Hooks that Envoy calls: generic functions that [`module!`](crate::module!) exports under the ABI's names.
//!
//! # Safety
//! Only Envoy may call them. Its own objects must live through the call. The other pointers must come from `config_new`
//! and `filter_new`, and Envoy must not have destroyed them.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use crate::api::{Buffer, HeaderPair, load};
use crate::config::ConfigHost;
use crate::filter::Filter;
use crate::module::{BodyStatus, FetchedResponse, HeadersStatus, Level, Module};

/// The ABI version of Envoy 1.40, for which this crate is written. Each Envoy version promises to load modules of the
/// previous ABI version. Tests also load this module into Envoy 1.39.
const ABI_VERSION: &CStr = c"v0.2.0";

/// The ABI's status for a received response.
const FETCHED: u32 = 0;

type Pointer = *const c_void;
type RawHost = *mut c_void;

/// Per-stream state behind Envoy's pointer.
struct StreamOf<M: Module> {
    stream: M::Stream,
    /// Whether the request was answered or continued.
    is_done: Cell<bool>,
}

/// Returns the stream behind Envoy's pointer. The result keeps it alive even if a nested hook drops Envoy's share.
///
/// # Safety
/// `stream` must come from [`filter_new`], and [`filter_destroy`] must not have run for it.
unsafe fn stream_of<M: Module>(stream: Pointer) -> Rc<StreamOf<M>> {
    let stream = stream.cast::<StreamOf<M>>();
    // SAFETY: `filter_new` created it from an `Rc`, and Envoy still holds its share. All hooks of a stream run on one
    // thread.
    unsafe {
        Rc::increment_strong_count(stream);
        Rc::from_raw(stream)
    }
}

/// Returns the configuration behind Envoy's pointer. As [`stream_of`].
unsafe fn config_of<M: Module>(config: Pointer) -> Arc<M::Config> {
    let config = config.cast::<M::Config>();
    // SAFETY: `config_new` created it from an `Arc`, and Envoy still holds its share.
    unsafe {
        Arc::increment_strong_count(config);
        Arc::from_raw(config)
    }
}

/// Runs `hook`. After a panic, it notifies the module and returns `None`.
fn guarded<M: Module, R>(
    config: Option<&M::Config>,
    stream: Option<&M::Stream>,
    hook: impl FnOnce() -> R,
) -> Option<R> {
    // The module repairs the state that a panic left inconsistent.
    let result = catch_unwind(AssertUnwindSafe(hook));
    result
        .map_err(|panic| {
            // Dropping the panic payload could panic again.
            core::mem::forget(panic);
            let reply = catch_unwind(AssertUnwindSafe(|| M::panicked(config, stream)));
            reply.map_err(core::mem::forget).ok();
        })
        .ok()
}

/// Runs a hook of a stream. After a panic, it answers the request if it still waits, and returns `otherwise`.
///
/// # Safety
/// See [the module](self).
unsafe fn with_stream<M: Module, R>(
    raw: RawHost,
    stream: Pointer,
    otherwise: R,
    hook: impl FnOnce(&M::Stream, Filter<'_>) -> R,
) -> R {
    if stream.is_null() {
        return otherwise;
    }
    // SAFETY: Envoy passes this pointer only until it destroys the filter.
    let stream = unsafe { stream_of::<M>(stream) };
    // SAFETY: `raw` is the filter of the running hook, which outlives the value.
    let filter = || unsafe { Filter::new(raw, &stream.is_done) };
    let run = || hook(&stream.stream, filter());
    guarded::<M, R>(None, Some(&stream.stream), run).unwrap_or_else(|| {
        filter().respond(&M::ANSWER_TO_PANIC);
        otherwise
    })
}

/// `envoy_dynamic_module_on_program_init`. Null refuses the module.
pub fn program_init() -> *const c_char {
    match load() {
        Ok(()) => ABI_VERSION.as_ptr(),
        Err(missing) => {
            // Envoy's log function may be the missing one.
            eprintln!("weir: this Envoy lacks {missing}, so the module cannot run");
            core::ptr::null()
        }
    }
}

/// `envoy_dynamic_module_on_http_filter_config_new`. Null refuses the configuration.
///
/// # Safety
/// See [the module](self).
pub unsafe fn config_new<M: Module>(raw: RawHost, name: Buffer, config: Buffer) -> Pointer {
    // SAFETY: Envoy's buffers and configuration object live through this hook.
    let (host, name, config) = unsafe { (ConfigHost::new(raw), name.bytes(), config.bytes()) };
    let created = guarded::<M, _>(None, None, || M::configure(&host, name, config));
    match created {
        Some(Some(config)) => Arc::into_raw(Arc::new(config)).cast(),
        Some(None) => core::ptr::null(),
        None => {
            crate::log(
                Level::Error,
                "weir: configuration refused: it made the module panic",
            );
            core::ptr::null()
        }
    }
}

/// `envoy_dynamic_module_on_http_filter_config_destroy`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn config_destroy<M: Module>(config: Pointer) {
    if config.is_null() {
        return;
    }
    // SAFETY: `config_new` created it, and Envoy returns it exactly once.
    let config = unsafe { Arc::from_raw(config.cast::<M::Config>()) };
    guarded::<M, _>(None, None, || {
        M::dropped(&config);
        drop(config);
    });
}

/// `envoy_dynamic_module_on_http_filter_config_scheduled`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn config_scheduled<M: Module>(raw: RawHost, config: Pointer) {
    if config.is_null() {
        return;
    }
    // SAFETY: Envoy passes valid pointers.
    let (config, host) = unsafe { (config_of::<M>(config), ConfigHost::new(raw)) };
    guarded::<M, _>(Some(&config), None, || M::scheduled(&config, &host));
}

/// `envoy_dynamic_module_on_http_filter_config_http_callout_done`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn config_fetched<M: Module>(
    config: Pointer,
    id: u64,
    result: u32,
    headers: (*const HeaderPair, usize),
    body: (*const Buffer, usize),
) {
    if config.is_null() {
        return;
    }
    // SAFETY: Envoy passes a valid pointer.
    let config = unsafe { config_of::<M>(config) };
    // SAFETY: the pointers and counts match, and the data lives through this hook.
    let (headers, body) = unsafe { (slice(headers), slice(body)) };
    let response = (result == FETCHED).then(|| FetchedResponse {
        // SAFETY: as above.
        headers: headers
            .iter()
            .map(|pair| unsafe { (pair.name.bytes(), pair.value.bytes()) })
            .collect(),
        // SAFETY: as above.
        body: body
            .iter()
            .flat_map(|chunk| unsafe { chunk.bytes() })
            .copied()
            .collect(),
    });
    guarded::<M, _>(Some(&config), None, || M::fetched(&config, id, response));
}

/// # Safety
/// The pointer must refer to `count` values that live for `'b`.
unsafe fn slice<'b, T>((start, count): (*const T, usize)) -> &'b [T] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller upholds this function's contract.
    unsafe { core::slice::from_raw_parts(start, count) }
}

/// `envoy_dynamic_module_on_http_filter_new`. Null ends the stream.
///
/// # Safety
/// See [the module](self).
pub unsafe fn filter_new<M: Module>(config: Pointer) -> Pointer {
    // SAFETY: Envoy passes a valid pointer.
    let config = unsafe { config_of::<M>(config) };
    let created = guarded::<M, _>(Some(&config), None, || M::stream(&config));
    created.flatten().map_or(core::ptr::null(), |stream| {
        let stream: StreamOf<M> = StreamOf {
            stream,
            is_done: Cell::new(false),
        };
        Rc::into_raw(Rc::new(stream)).cast()
    })
}

/// `envoy_dynamic_module_on_http_filter_request_headers`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn request_headers<M: Module>(raw: RawHost, stream: Pointer, is_last: bool) -> u32 {
    let hook = |stream: &M::Stream, filter: Filter<'_>| M::request_headers(stream, filter, is_last);
    // SAFETY: the caller upholds this function's contract.
    unsafe { with_stream::<M, _>(raw, stream, HeadersStatus::StopAll, hook) as u32 }
}

/// `envoy_dynamic_module_on_http_filter_request_body`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn request_body<M: Module>(raw: RawHost, stream: Pointer, is_last: bool) -> u32 {
    let hook = |stream: &M::Stream, filter: Filter<'_>| M::request_body(stream, filter, is_last);
    // SAFETY: the caller upholds this function's contract.
    unsafe { with_stream::<M, _>(raw, stream, BodyStatus::Keep, hook) as u32 }
}

/// `envoy_dynamic_module_on_http_filter_request_trailers`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn request_trailers<M: Module>(raw: RawHost, stream: Pointer) -> u32 {
    // SAFETY: the caller upholds this function's contract.
    let goes_on = unsafe { with_stream::<M, _>(raw, stream, false, M::request_trailers) };
    // The ABI's values: 0 continues, 1 stops.
    u32::from(!goes_on)
}

/// `envoy_dynamic_module_on_http_filter_response_headers`: they always continue.
///
/// # Safety
/// See [the module](self).
pub unsafe fn response_headers<M: Module>(raw: RawHost, stream: Pointer) -> u32 {
    // SAFETY: the caller upholds this function's contract.
    unsafe { with_stream::<M, _>(raw, stream, (), M::response_headers) }
    0
}

/// `envoy_dynamic_module_on_http_filter_scheduled`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn called<M: Module>(raw: RawHost, stream: Pointer) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { with_stream::<M, _>(raw, stream, (), M::called) }
}

/// `envoy_dynamic_module_on_http_filter_stream_complete`. The request can no longer be answered.
///
/// # Safety
/// See [the module](self).
pub unsafe fn completed<M: Module>(raw: RawHost, stream: Pointer) {
    if stream.is_null() {
        return;
    }
    // SAFETY: Envoy passes this pointer only until it destroys the filter.
    let stream = unsafe { stream_of::<M>(stream) };
    stream.is_done.set(true);
    // SAFETY: `raw` is the filter of the running hook, which outlives the value.
    let filter = unsafe { Filter::new(raw, &stream.is_done) };
    let run = || M::completed(&stream.stream, filter);
    guarded::<M, _>(None, Some(&stream.stream), run);
}

/// `envoy_dynamic_module_on_http_filter_destroy`.
///
/// # Safety
/// See [the module](self).
pub unsafe fn filter_destroy<M: Module>(stream: Pointer) {
    if stream.is_null() {
        return;
    }
    // SAFETY: `filter_new` created it, and Envoy returns it exactly once.
    let stream = unsafe { Rc::from_raw(stream.cast::<StreamOf<M>>()) };
    stream.is_done.set(true);
    guarded::<M, _>(None, Some(&stream.stream), || {
        M::stream_destroyed(&stream.stream)
    });
    // Dropping runs the module's code for the stream.
    guarded::<M, _>(None, None, || drop(stream));
}

/// The names of all functions that [`module!`](crate::module!) exports.
pub const EXPORTS: &[&str] = &[
    "envoy_dynamic_module_on_program_init",
    "envoy_dynamic_module_on_http_filter_config_new",
    "envoy_dynamic_module_on_http_filter_config_destroy",
    "envoy_dynamic_module_on_http_filter_config_scheduled",
    "envoy_dynamic_module_on_http_filter_config_http_callout_done",
    "envoy_dynamic_module_on_http_filter_new",
    "envoy_dynamic_module_on_http_filter_request_headers",
    "envoy_dynamic_module_on_http_filter_request_body",
    "envoy_dynamic_module_on_http_filter_request_trailers",
    "envoy_dynamic_module_on_http_filter_response_headers",
    "envoy_dynamic_module_on_http_filter_scheduled",
    "envoy_dynamic_module_on_http_filter_stream_complete",
    "envoy_dynamic_module_on_http_filter_destroy",
    "envoy_dynamic_module_on_http_filter_response_body",
    "envoy_dynamic_module_on_http_filter_response_trailers",
    "envoy_dynamic_module_on_http_filter_http_callout_done",
    "envoy_dynamic_module_on_http_filter_http_stream_headers",
    "envoy_dynamic_module_on_http_filter_http_stream_data",
    "envoy_dynamic_module_on_http_filter_http_stream_trailers",
    "envoy_dynamic_module_on_http_filter_http_stream_complete",
    "envoy_dynamic_module_on_http_filter_http_stream_reset",
    "envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark",
    "envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark",
    "envoy_dynamic_module_on_network_filter_config_new",
    "envoy_dynamic_module_on_network_filter_config_destroy",
    "envoy_dynamic_module_on_network_filter_config_scheduled",
    "envoy_dynamic_module_on_network_filter_new",
    "envoy_dynamic_module_on_network_filter_new_connection",
    "envoy_dynamic_module_on_network_filter_read",
    "envoy_dynamic_module_on_network_filter_write",
    "envoy_dynamic_module_on_network_filter_event",
    "envoy_dynamic_module_on_network_filter_scheduled",
    "envoy_dynamic_module_on_network_filter_http_callout_done",
    "envoy_dynamic_module_on_network_filter_above_write_buffer_high_watermark",
    "envoy_dynamic_module_on_network_filter_below_write_buffer_low_watermark",
    "envoy_dynamic_module_on_network_filter_destroy",
    "envoy_dynamic_module_on_bootstrap_extension_config_new",
    "envoy_dynamic_module_on_bootstrap_extension_config_destroy",
    "envoy_dynamic_module_on_bootstrap_extension_config_scheduled",
    "envoy_dynamic_module_on_bootstrap_extension_new",
    "envoy_dynamic_module_on_bootstrap_extension_destroy",
    "envoy_dynamic_module_on_bootstrap_extension_server_initialized",
    "envoy_dynamic_module_on_bootstrap_extension_worker_thread_initialized",
    "envoy_dynamic_module_on_bootstrap_extension_drain_started",
    "envoy_dynamic_module_on_bootstrap_extension_shutdown",
    "envoy_dynamic_module_on_bootstrap_extension_http_callout_done",
    "envoy_dynamic_module_on_bootstrap_extension_timer_fired",
    "envoy_dynamic_module_on_bootstrap_extension_admin_request",
    "envoy_dynamic_module_on_bootstrap_extension_file_changed",
    "envoy_dynamic_module_on_bootstrap_extension_cluster_add_or_update",
    "envoy_dynamic_module_on_bootstrap_extension_cluster_removal",
    "envoy_dynamic_module_on_bootstrap_extension_listener_add_or_update",
    "envoy_dynamic_module_on_bootstrap_extension_listener_removal",
];

/// Turns the invoking crate into the library of a [`Module`](crate::Module).
#[macro_export]
macro_rules! module {
    ($module:ty) => {
        // Envoy finds these functions by their unmangled names, which the lint counts as unsafe. Only Envoy calls them,
        // with the arguments that the ABI defines. Their bodies require nothing more.
        #[allow(unsafe_code, missing_docs, unused_variables)]
        mod envoy_hooks {
            use core::ffi::c_void;
            use $crate::api::{Buffer, HeaderPair};
            use $crate::bootstrap_hooks as bootstrap;
            use $crate::hooks::*;
            use $crate::network_hooks as network;

            type M = $module;

            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_program_init() -> *const core::ffi::c_char { program_init() }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_config_new(raw: *mut c_void, name: Buffer, config: Buffer) -> *const c_void { unsafe { config_new::<M>(raw, name, config) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: *const c_void) { unsafe { config_destroy::<M>(config) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(raw: *mut c_void, config: *const c_void, event: u64) { unsafe { config_scheduled::<M>(raw, config) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_config_http_callout_done(raw: *mut c_void, config: *const c_void, id: u64, result: u32, headers: *const HeaderPair, header_count: usize, body: *const Buffer, body_count: usize) { unsafe { config_fetched::<M>(config, id, result, (headers, header_count), (body, body_count)) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_new(config: *const c_void, raw: *mut c_void) -> *const c_void { unsafe { filter_new::<M>(config) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(raw: *mut c_void, stream: *const c_void, is_last: bool) -> u32 { unsafe { request_headers::<M>(raw, stream, is_last) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_request_body(raw: *mut c_void, stream: *const c_void, is_last: bool) -> u32 { unsafe { request_body::<M>(raw, stream, is_last) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(raw: *mut c_void, stream: *const c_void) -> u32 { unsafe { request_trailers::<M>(raw, stream) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(raw: *mut c_void, stream: *const c_void, is_last: bool) -> u32 { unsafe { response_headers::<M>(raw, stream) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(raw: *mut c_void, stream: *const c_void, event: u64) { unsafe { called::<M>(raw, stream) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(raw: *mut c_void, stream: *const c_void) { unsafe { completed::<M>(raw, stream) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_destroy(stream: *const c_void) { unsafe { filter_destroy::<M>(stream) } }

            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_config_new(raw: *mut c_void, name: Buffer, config: Buffer) -> *const c_void { unsafe { network::config_new::<M>(name, config) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_config_destroy(config: *const c_void) { unsafe { network::config_destroy::<M>(config) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_new(config: *const c_void, raw: *mut c_void) -> *const c_void { unsafe { network::filter_new::<M>(config, raw) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_read(raw: *mut c_void, state: *const c_void, length: usize, is_last: bool) -> u32 { unsafe { network::received::<M>(raw, state, is_last) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_write(raw: *mut c_void, state: *const c_void, length: usize, is_last: bool) -> u32 { unsafe { network::sent::<M>(raw, state) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_above_write_buffer_high_watermark(raw: *mut c_void, state: *const c_void) { unsafe { network::congested::<M>(raw, state) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_event(raw: *mut c_void, state: *const c_void, event: u32) { unsafe { network::event::<M>(raw, state, event) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_scheduled(raw: *mut c_void, state: *const c_void, event: u64) { unsafe { network::called::<M>(raw, state) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_destroy(state: *const c_void) { unsafe { network::filter_destroy::<M>(state) } }

            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_config_new(raw: *mut c_void, name: Buffer, json: Buffer) -> *const c_void { unsafe { bootstrap::config_new(raw) } }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_new(config: *const c_void, raw: *mut c_void) -> *const c_void { bootstrap::extension_new() }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_drain_started(raw: *mut c_void, extension: *const c_void) { bootstrap::drain_started::<M>() }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_shutdown(raw: *mut c_void, extension: *const c_void, completion: Option<bootstrap::Completion>, context: *mut c_void) { unsafe { bootstrap::shutdown::<M>(completion, context) } }

            // Envoy requires these hooks; they do nothing.

            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_new_connection(raw: *mut c_void, state: *const c_void) -> u32 { 0 }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_config_scheduled(raw: *mut c_void, config: *const c_void, event: u64) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_http_callout_done(raw: *mut c_void, state: *const c_void, id: u64, result: u32, headers: *const HeaderPair, header_count: usize, body: *const Buffer, body_count: usize) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_below_write_buffer_low_watermark(raw: *mut c_void, state: *const c_void) {}

            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_config_destroy(config: *const c_void) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_config_scheduled(raw: *mut c_void, config: *const c_void, event: u64) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_destroy(extension: *const c_void) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_server_initialized(raw: *mut c_void, extension: *const c_void) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_worker_thread_initialized(raw: *mut c_void, extension: *const c_void) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_http_callout_done(raw: *mut c_void, config: *const c_void, id: u64, result: u32, headers: *const HeaderPair, header_count: usize, body: *const Buffer, body_count: usize) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_timer_fired(raw: *mut c_void, config: *const c_void, timer: *const c_void) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_admin_request(raw: *mut c_void, config: *const c_void, method: Buffer, path: Buffer, body: Buffer) -> u32 { 404 }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_file_changed(raw: *mut c_void, config: *const c_void, path: Buffer, events: u32) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_cluster_add_or_update(raw: *mut c_void, config: *const c_void, name: Buffer) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_cluster_removal(raw: *mut c_void, config: *const c_void, name: Buffer) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_listener_add_or_update(raw: *mut c_void, config: *const c_void, name: Buffer) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_bootstrap_extension_listener_removal(raw: *mut c_void, config: *const c_void, name: Buffer) {}

            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_response_body(raw: *mut c_void, stream: *const c_void, is_last: bool) -> u32 { 0 }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(raw: *mut c_void, stream: *const c_void) -> u32 { 0 }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_callout_done(raw: *mut c_void, stream: *const c_void, id: u64, result: u32, headers: *const HeaderPair, header_count: usize, body: *const Buffer, body_count: usize) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_headers(raw: *mut c_void, stream: *const c_void, id: u64, headers: *const HeaderPair, header_count: usize, is_last: bool) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_data(raw: *mut c_void, stream: *const c_void, id: u64, data: *const Buffer, count: usize, is_last: bool) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_trailers(raw: *mut c_void, stream: *const c_void, id: u64, headers: *const HeaderPair, header_count: usize) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_complete(raw: *mut c_void, stream: *const c_void, id: u64) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_reset(raw: *mut c_void, stream: *const c_void, id: u64, reason: u32) {}
            #[unsafe(export_name = "envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark")]
            extern "C" fn downstream_high_watermark(raw: *mut c_void, stream: *const c_void) {}
            #[unsafe(export_name = "envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark")]
            extern "C" fn downstream_low_watermark(raw: *mut c_void, stream: *const c_void) {}
        }
    };
}
