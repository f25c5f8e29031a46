//! The VM's environment: `vm_config.environment_variables` in Envoy's configuration.
//!
//! Filters are built for `wasm32-unknown-unknown`, where `std::env` is empty. So this module calls the two WASI
//! functions that every Proxy-Wasm host with environment variables provides.

/// The value of the variable `name`, if it is set.
pub fn var(name: &str) -> Option<Vec<u8>> {
    let prefix = [name.as_bytes(), b"="].concat();
    environment()
        .iter()
        .find_map(|entry| entry.strip_prefix(prefix.as_slice()).map(Vec::from))
}

/// All variables, each as `name=value`.
#[cfg(not(target_arch = "wasm32"))]
fn environment() -> Vec<Vec<u8>> {
    std::env::vars()
        .map(|(name, value)| format!("{name}={value}").into_bytes())
        .collect()
}

/// All variables, each as `name=value`.
#[cfg(target_arch = "wasm32")]
fn environment() -> Vec<Vec<u8>> {
    wasi::environment().unwrap_or_default()
}

#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code)] // Two imported functions: there is no safe way to call an import.
mod wasi {
    /// WASI's "no error" (`errno::success`).
    const SUCCESS: u32 = 0;

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        /// Writes the number of variables and their total size in bytes.
        fn environ_sizes_get(count: *mut usize, size: *mut usize) -> u32;
        /// Writes a pointer to each variable, and the variables, each with a terminating NUL.
        fn environ_get(pointers: *mut *mut u8, text: *mut u8) -> u32;
    }

    pub(super) fn environment() -> Option<Vec<Vec<u8>>> {
        let (mut count, mut size) = (0, 0);
        // SAFETY: both pointers are to live, aligned words, and the function writes nothing else.
        let reply = unsafe { environ_sizes_get(&raw mut count, &raw mut size) };
        if reply != SUCCESS {
            return None;
        }
        let mut pointers = vec![std::ptr::null_mut(); count];
        let mut text = vec![0; size];
        // SAFETY: the buffers have the sizes that the host has just returned; the environment of a VM does not change,
        // and no other code runs in this VM meanwhile.
        let input = unsafe { environ_get(pointers.as_mut_ptr(), text.as_mut_ptr()) };
        (input == SUCCESS).then(|| text.split(|&byte| byte == 0).map(Vec::from).collect())
    }
}
