//! What Envoy calls: generic functions here, which [`module!`](crate::module!) exports under the names of the ABI.
//!
//! # Safety
//! Only Envoy may call them: with objects of its own that live through the call, and with the pointers that it has got from
//! `config_new` and `filter_new`, until it has given them back.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use crate::api::{Buffer, HeaderPair, load};
use crate::config::ConfigHost;
use crate::filter::Filter;
use crate::module::{BodyStatus, FetchedResponse, HeadersStatus, Level, Module};

/// The version of the ABI that this crate was written for: Envoy 1.40's. Each version promises to take modules of the one
/// before; tests load this one into 1.39, too.
const ABI_VERSION: &CStr = c"v0.2.0";

/// The ABI's "the response is there".
const FETCHED: u32 = 0;

type Pointer = *const c_void;
type RawHost = *mut c_void;

/// What Envoy keeps for one stream.
struct StreamOf<M: Module> {
    stream: M::Stream,
    /// The request was answered or let go.
    is_done: Cell<bool>,
}

/// The stream that Envoy's pointer stands for. It lives at least as long as what is returned, even if a hook that runs
/// meanwhile drops Envoy's.
///
/// # Safety
/// `stream` must be of [`filter_new`], and [`filter_destroy`] must not have had it.
unsafe fn stream_of<M: Module>(stream: Pointer) -> Rc<StreamOf<M>> {
    let stream = stream.cast::<StreamOf<M>>();
    // SAFETY: `filter_new` made it of an `Rc`, and Envoy's share of that is still there. All hooks of a stream run on one
    // thread.
    unsafe {
        Rc::increment_strong_count(stream);
        Rc::from_raw(stream)
    }
}

/// The configuration that Envoy's pointer stands for. As [`stream_of`].
unsafe fn config_of<M: Module>(config: Pointer) -> Arc<M::Config> {
    let config = config.cast::<M::Config>();
    // SAFETY: `config_new` made it of an `Arc`, and Envoy's share of that is still there.
    unsafe {
        Arc::increment_strong_count(config);
        Arc::from_raw(config)
    }
}

/// Runs `hook`. After a panic in it, tells the module; `None`.
fn guarded<M: Module, R>(
    config: Option<&M::Config>,
    stream: Option<&M::Stream>,
    hook: impl FnOnce() -> R,
) -> Option<R> {
    // What a panic has left half done is the module's care.
    let result = catch_unwind(AssertUnwindSafe(hook));
    result
        .map_err(|panic| {
            // Dropping what was thrown could throw again.
            core::mem::forget(panic);
            let told = catch_unwind(AssertUnwindSafe(|| M::panicked(config, stream)));
            told.map_err(core::mem::forget).ok();
        })
        .ok()
}

/// Runs a hook of a stream. After a panic the request is answered, if it still waits, and `otherwise` is returned.
///
/// # Safety
/// As [the module](self) says.
unsafe fn with_stream<M: Module, R>(
    raw: RawHost,
    stream: Pointer,
    otherwise: R,
    hook: impl FnOnce(&M::Stream, Filter<'_>) -> R,
) -> R {
    if stream.is_null() {
        return otherwise;
    }
    // SAFETY: Envoy passes the pointer that it has been given, until it destroys the filter.
    let stream = unsafe { stream_of::<M>(stream) };
    // SAFETY: it is the filter of this hook, and of nothing that outlives it.
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
            // Envoy's own log may be what is missing.
            eprintln!("weir: this Envoy lacks {missing}, so the module cannot run");
            core::ptr::null()
        }
    }
}

/// `envoy_dynamic_module_on_http_filter_config_new`. Null refuses the configuration.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn config_new<M: Module>(raw: RawHost, name: Buffer, config: Buffer) -> Pointer {
    // SAFETY: Envoy's buffers and the configuration live through this hook.
    let (host, name, config) = unsafe { (ConfigHost::new(raw), name.bytes(), config.bytes()) };
    let made = guarded::<M, _>(None, None, || M::configure(&host, name, config));
    match made {
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
/// As [the module](self) says.
pub unsafe fn config_destroy<M: Module>(config: Pointer) {
    if config.is_null() {
        return;
    }
    // SAFETY: `config_new` made it, and Envoy gives it back once.
    let config = unsafe { Arc::from_raw(config.cast::<M::Config>()) };
    guarded::<M, _>(None, None, || {
        M::dropped(&config);
        drop(config);
    });
}

/// `envoy_dynamic_module_on_http_filter_config_scheduled`.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn config_scheduled<M: Module>(raw: RawHost, config: Pointer) {
    if config.is_null() {
        return;
    }
    // SAFETY: Envoy passes both while they live.
    let (config, host) = unsafe { (config_of::<M>(config), ConfigHost::new(raw)) };
    guarded::<M, _>(Some(&config), None, || M::scheduled(&config, &host));
}

/// `envoy_dynamic_module_on_http_filter_config_http_callout_done`.
///
/// # Safety
/// As [the module](self) says.
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
    // SAFETY: Envoy passes it while it lives.
    let config = unsafe { config_of::<M>(config) };
    // SAFETY: Envoy gives as many as it says, and they live through this hook.
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
/// There must be as many as are said, for as long as `'b`.
unsafe fn slice<'b, T>((start, count): (*const T, usize)) -> &'b [T] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { core::slice::from_raw_parts(start, count) }
}

/// `envoy_dynamic_module_on_http_filter_new`. Null ends the stream.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn filter_new<M: Module>(config: Pointer) -> Pointer {
    // SAFETY: Envoy passes it while it lives.
    let config = unsafe { config_of::<M>(config) };
    let made = guarded::<M, _>(Some(&config), None, || M::stream(&config));
    made.flatten().map_or(core::ptr::null(), |stream| {
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
/// As [the module](self) says.
pub unsafe fn request_headers<M: Module>(raw: RawHost, stream: Pointer, is_last: bool) -> u32 {
    let hook = |stream: &M::Stream, filter: Filter<'_>| M::request_headers(stream, filter, is_last);
    // SAFETY: as the caller says.
    unsafe { with_stream::<M, _>(raw, stream, HeadersStatus::StopAll, hook) as u32 }
}

/// `envoy_dynamic_module_on_http_filter_request_body`.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn request_body<M: Module>(raw: RawHost, stream: Pointer, is_last: bool) -> u32 {
    let hook = |stream: &M::Stream, filter: Filter<'_>| M::request_body(stream, filter, is_last);
    // SAFETY: as the caller says.
    unsafe { with_stream::<M, _>(raw, stream, BodyStatus::Keep, hook) as u32 }
}

/// `envoy_dynamic_module_on_http_filter_request_trailers`.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn request_trailers<M: Module>(raw: RawHost, stream: Pointer) -> u32 {
    // SAFETY: as the caller says.
    let goes_on = unsafe { with_stream::<M, _>(raw, stream, false, M::request_trailers) };
    // The ABI's numbers: 0 goes on, 1 does not.
    u32::from(!goes_on)
}

/// `envoy_dynamic_module_on_http_filter_response_headers`: they always go on.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn response_headers<M: Module>(raw: RawHost, stream: Pointer) -> u32 {
    // SAFETY: as the caller says.
    unsafe { with_stream::<M, _>(raw, stream, (), M::response_headers) }
    0
}

/// `envoy_dynamic_module_on_http_filter_scheduled`.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn called<M: Module>(raw: RawHost, stream: Pointer) {
    // SAFETY: as the caller says.
    unsafe { with_stream::<M, _>(raw, stream, (), M::called) }
}

/// `envoy_dynamic_module_on_http_filter_stream_complete`. Nobody can be answered any more.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn completed<M: Module>(raw: RawHost, stream: Pointer) {
    if stream.is_null() {
        return;
    }
    // SAFETY: Envoy passes the pointer that it has been given, until it destroys the filter.
    let stream = unsafe { stream_of::<M>(stream) };
    stream.is_done.set(true);
    // SAFETY: it is the filter of this hook, and of nothing that outlives it.
    let filter = unsafe { Filter::new(raw, &stream.is_done) };
    let run = || M::completed(&stream.stream, filter);
    guarded::<M, _>(None, Some(&stream.stream), run);
}

/// `envoy_dynamic_module_on_http_filter_destroy`.
///
/// # Safety
/// As [the module](self) says.
pub unsafe fn filter_destroy<M: Module>(stream: Pointer) {
    if stream.is_null() {
        return;
    }
    // SAFETY: `filter_new` made it, and Envoy gives it back once.
    let stream = unsafe { Rc::from_raw(stream.cast::<StreamOf<M>>()) };
    stream.is_done.set(true);
    guarded::<M, _>(None, Some(&stream.stream), || {
        M::stream_destroyed(&stream.stream)
    });
    // Drops what the module keeps for the stream, which is its code, too.
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
];

/// Makes this crate the library of a [`Module`](crate::Module).
#[macro_export]
macro_rules! module {
    ($module:ty) => {
        // Functions that Envoy finds by name: unmangled symbols, which the lint counts as unsafe. Only Envoy calls them, with what
        // the ABI says: which is all that their bodies ask for.
        #[allow(unsafe_code, missing_docs, unused_variables)]
        mod envoy_hooks {
            use core::ffi::c_void;
            use $crate::api::{Buffer, HeaderPair};
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
            extern "C" fn envoy_dynamic_module_on_network_filter_destroy(state: *const c_void) { unsafe { network::filter_destroy::<M>(state) } }

            // Envoy demands these; there is nothing to do in them.

            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_new_connection(raw: *mut c_void, state: *const c_void) -> u32 { 0 }
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_event(raw: *mut c_void, state: *const c_void, event: u32) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_scheduled(raw: *mut c_void, state: *const c_void, event: u64) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_config_scheduled(raw: *mut c_void, config: *const c_void, event: u64) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_http_callout_done(raw: *mut c_void, state: *const c_void, id: u64, result: u32, headers: *const HeaderPair, header_count: usize, body: *const Buffer, body_count: usize) {}
            #[unsafe(no_mangle)]
            extern "C" fn envoy_dynamic_module_on_network_filter_below_write_buffer_low_watermark(raw: *mut c_void, state: *const c_void) {}

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
