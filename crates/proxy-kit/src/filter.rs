//! What a filter is.

use proxy_wasm::types::LogLevel;
use weir_base::FieldError;
use weir_engine::Engine;
use weir_engine::setup::ConfiguredEngine;

use crate::host;
use crate::root::Root;

/// A filter: an engine, and how to make it.
pub trait Filter: 'static {
    /// The engine.
    type Engine: Engine + 'static;

    /// Makes the engine from the plugin's configuration, as it is written.
    ///
    /// # Errors
    /// When the configuration is refused: the host then serves nothing with it.
    fn configure(json: &[u8]) -> Result<ConfiguredEngine<Self::Engine>, FieldError>;
}

/// What the module of the filter `F` does when a host has loaded it.
pub fn start<F: Filter>() {
    proxy_wasm::set_log_level(LogLevel::Info);
    host::log_panics(F::Engine::NAME);
    proxy_wasm::set_root_context(|id| Box::new(Root::<F>::new(id)));
}

/// Makes this crate the module of a filter.
#[macro_export]
macro_rules! filter {
    ($filter:ident) => {
        // `main!` defines the module's `_initialize`, an unmangled symbol, which the lint counts as unsafe. Only a host
        // calls it, and natively two filters could not be linked into one program.
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, missing_docs)]
        mod entry {
            use $crate::proxy_wasm;

            proxy_wasm::main! {{ $crate::start::<super::$filter>() }}
        }
    };
}
