//! Envoy functions that Weir calls, resolved by name when Envoy loads the module.
//!
//! `load` resolves the symbols once and keeps them as pointers instead of linking them. An Envoy that lacks one rejects
//! the module with the symbol's name instead of crashing at the first call. Tests run without Envoy.

use core::ffi::{c_char, c_void};
use std::ffi::CString;
use std::sync::OnceLock;

/// An Envoy object: a filter, a filter configuration or a scheduler.
pub(crate) type Raw = *mut c_void;

/// A pointer and a length, owned by Envoy or by the module.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Buffer {
    pub(crate) start: *const u8,
    pub(crate) length: usize,
}

/// A header's name and value, owned by Envoy or by the module.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HeaderPair {
    pub(crate) name: Buffer,
    pub(crate) value: Buffer,
}

impl Buffer {
    pub(crate) const EMPTY: Self = Self {
        start: core::ptr::null(),
        length: 0,
    };

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            start: bytes.as_ptr(),
            length: bytes.len(),
        }
    }

    /// # Safety
    /// Envoy must have passed this buffer. `'b` must end before Envoy changes or drops it: at the latest when the hook
    /// returns or the underlying data changes.
    pub(crate) unsafe fn bytes<'b>(self) -> &'b [u8] {
        if self.start.is_null() || self.length == 0 {
            return &[];
        }
        // SAFETY: Envoy provides `length` readable bytes. The caller bounds their lifetime.
        unsafe { core::slice::from_raw_parts(self.start, self.length) }
    }
}

macro_rules! api {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal ($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// One pointer per function.
        pub(crate) struct Api {
            $($(#[$doc])* pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        /// The names of all Envoy functions that the module calls.
        pub const CALLBACKS: &[&str] = &[$($symbol),+];

        impl Api {
            fn find() -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let found = find($symbol).ok_or($symbol)?;
                        // SAFETY: Envoy's ABI defines the function of this name with these types. All supported
                        // versions share them, and tests call each function in each version.
                        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found) }
                    },)+
                })
            }
        }
    };
}

api! {
    log = "envoy_dynamic_module_callback_log" (u32, Buffer);
    is_validating = "envoy_dynamic_module_callback_is_validation_mode" () -> bool;

    signal_init_complete = "envoy_dynamic_module_callback_bootstrap_extension_config_signal_init_complete" (Raw);

    define_counter = "envoy_dynamic_module_callback_http_filter_config_define_counter"
        (Raw, Buffer, *const Buffer, usize, *mut usize) -> u32;
    increment_counter = "envoy_dynamic_module_callback_http_filter_config_increment_counter"
        (Raw, usize, *const Buffer, usize, u64) -> u32;

    config_scheduler_new = "envoy_dynamic_module_callback_http_filter_config_scheduler_new" (Raw) -> Raw;
    config_scheduler_commit = "envoy_dynamic_module_callback_http_filter_config_scheduler_commit" (Raw, u64);
    config_scheduler_delete = "envoy_dynamic_module_callback_http_filter_config_scheduler_delete" (Raw);
    config_callout = "envoy_dynamic_module_callback_http_filter_config_http_callout"
        (Raw, *mut u64, Buffer, *const HeaderPair, usize, Buffer, u64) -> u32;

    scheduler_new = "envoy_dynamic_module_callback_http_filter_scheduler_new" (Raw) -> Raw;
    scheduler_commit = "envoy_dynamic_module_callback_http_filter_scheduler_commit" (Raw, u64);
    scheduler_delete = "envoy_dynamic_module_callback_http_filter_scheduler_delete" (Raw);

    get_header = "envoy_dynamic_module_callback_http_get_header"
        (Raw, u32, Buffer, *mut Buffer, usize, *mut usize) -> bool;
    get_headers_size = "envoy_dynamic_module_callback_http_get_headers_size" (Raw, u32) -> usize;
    get_headers = "envoy_dynamic_module_callback_http_get_headers" (Raw, u32, *mut HeaderPair) -> bool;
    add_header = "envoy_dynamic_module_callback_http_add_header" (Raw, u32, Buffer, Buffer) -> bool;
    set_header = "envoy_dynamic_module_callback_http_set_header" (Raw, u32, Buffer, Buffer) -> bool;
    get_body_size = "envoy_dynamic_module_callback_http_get_body_size" (Raw, u32) -> usize;
    get_body_chunks_size = "envoy_dynamic_module_callback_http_get_body_chunks_size" (Raw, u32) -> usize;
    get_body_chunks = "envoy_dynamic_module_callback_http_get_body_chunks" (Raw, u32, *mut Buffer) -> bool;
    received_is_buffered = "envoy_dynamic_module_callback_http_received_buffered_request_body" (Raw) -> bool;
    get_attribute_text = "envoy_dynamic_module_callback_http_filter_get_attribute_string"
        (Raw, u32, *mut Buffer) -> bool;
    get_attribute_number = "envoy_dynamic_module_callback_http_filter_get_attribute_int"
        (Raw, u32, *mut u64) -> bool;
    send_response = "envoy_dynamic_module_callback_http_send_response"
        (Raw, u32, *const HeaderPair, usize, Buffer, Buffer);
    continue_decoding = "envoy_dynamic_module_callback_http_filter_continue_decoding" (Raw);

    read_pieces_count = "envoy_dynamic_module_callback_network_filter_get_read_buffer_chunks_size" (Raw) -> usize;
    read_pieces = "envoy_dynamic_module_callback_network_filter_get_read_buffer_chunks" (Raw, *mut Buffer) -> bool;
    write_pieces_count = "envoy_dynamic_module_callback_network_filter_get_write_buffer_chunks_size" (Raw) -> usize;
    write_pieces = "envoy_dynamic_module_callback_network_filter_get_write_buffer_chunks" (Raw, *mut Buffer) -> bool;
    take_read = "envoy_dynamic_module_callback_network_filter_drain_read_buffer" (Raw, usize) -> bool;
    write_connection = "envoy_dynamic_module_callback_network_filter_write" (Raw, Buffer, bool);
    close_connection = "envoy_dynamic_module_callback_network_filter_close" (Raw, u32);
    inject_read = "envoy_dynamic_module_callback_network_filter_inject_read_data" (Raw, Buffer, bool);
    take_write = "envoy_dynamic_module_callback_network_filter_drain_write_buffer" (Raw, usize) -> bool;
    connection_scheduler_new = "envoy_dynamic_module_callback_network_filter_scheduler_new" (Raw) -> Raw;
    connection_scheduler_commit = "envoy_dynamic_module_callback_network_filter_scheduler_commit" (Raw, u64);
    connection_scheduler_delete = "envoy_dynamic_module_callback_network_filter_scheduler_delete" (Raw);
    concurrency = "envoy_dynamic_module_callback_get_concurrency" () -> u32;
    remote_address = "envoy_dynamic_module_callback_network_filter_get_remote_address"
        (Raw, *mut Buffer, *mut u32) -> bool;
    is_tls = "envoy_dynamic_module_callback_network_filter_is_ssl" (Raw) -> bool;
}

static API: OnceLock<Api> = OnceLock::new();

/// The functions that [`load`] resolved; `None` outside Envoy.
pub(crate) fn api() -> Option<&'static Api> {
    API.get()
}

/// Resolves all functions.
///
/// # Errors
/// The name of the first function that this process lacks.
pub(crate) fn load() -> Result<(), &'static str> {
    if API.get().is_none() {
        // Two threads resolve the same pointers.
        let _ = API.set(Api::find()?);
    }
    Ok(())
}

unsafe extern "C" {
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// `RTLD_DEFAULT`: search all loaded libraries.
#[cfg(target_os = "macos")]
const ANYWHERE: *mut c_void = -2_isize as *mut c_void;
#[cfg(not(target_os = "macos"))]
const ANYWHERE: *mut c_void = core::ptr::null_mut();

fn find(symbol: &str) -> Option<*mut c_void> {
    let symbol = CString::new(symbol).ok()?;
    // SAFETY: the text is NUL-terminated and outlives the call, which only reads it.
    let found = unsafe { dlsym(ANYWHERE, symbol.as_ptr()) };
    (!found.is_null()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_missing_function_outside_envoy_is_named() {
        assert_eq!(load(), Err(CALLBACKS[0]));
        assert!(api().is_none());
        assert!(find("dlsym").is_some());
    }
}
