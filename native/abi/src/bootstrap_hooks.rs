//! Hooks that Envoy calls for a bootstrap extension, of which there is one per process. It only observes the drain of the
//! server. The caller's obligations are those of [`crate::hooks`].

use core::ffi::c_void;
use std::panic::catch_unwind;

use crate::api::{Raw, api};
use crate::module::Module;

/// Called to let Envoy's shutdown continue.
pub type Completion = unsafe extern "C" fn(*mut c_void);

/// What the pointers of the extension and its configuration refer to: there is no state.
static STATELESS: u8 = 0;

/// `envoy_dynamic_module_on_bootstrap_extension_config_new`. Envoy waits with its listeners until the extension is ready,
/// which it is at once.
///
/// # Safety
/// See [the module](self).
pub unsafe fn config_new(raw: Raw) -> *const c_void {
    if let Some(api) = api() {
        // SAFETY: `raw` is the configuration of the running hook.
        unsafe { (api.signal_init_complete)(raw) }
    }
    (&raw const STATELESS).cast()
}

/// `envoy_dynamic_module_on_bootstrap_extension_new`.
pub fn extension_new() -> *const c_void {
    (&raw const STATELESS).cast()
}

/// `envoy_dynamic_module_on_bootstrap_extension_drain_started`.
pub fn drain_started<M: Module>() {
    // Dropping the panic payload could panic again.
    catch_unwind(M::drain_started)
        .map_err(core::mem::forget)
        .ok();
}

/// `envoy_dynamic_module_on_bootstrap_extension_shutdown`. Envoy's shutdown waits for `completion`.
///
/// # Safety
/// `completion` must accept `context`.
pub unsafe fn shutdown<M: Module>(completion: Option<Completion>, context: *mut c_void) {
    drain_started::<M>();
    if let Some(completion) = completion {
        // SAFETY: the caller upholds this function's contract.
        unsafe { completion(context) }
    }
}
