//! The definition of a filter.

use proxy_wasm::types::LogLevel;
use weir_base::FieldError;
use weir_engine::Engine;
use weir_engine::setup::ConfiguredEngine;

use crate::host;
use crate::root::Root;

/// A filter: an engine and its constructor.
pub trait Filter: 'static {
    /// The engine.
    type Engine: Engine + 'static;

    /// Builds the engine from the plugin's configuration.
    ///
    /// # Errors
    /// When the configuration is invalid: the host then does not serve with it.
    fn configure(json: &[u8]) -> Result<ConfiguredEngine<Self::Engine>, FieldError>;
}

/// Initialises the module of the filter `F` when a host loads it.
pub fn start<F: Filter>() {
    proxy_wasm::set_log_level(LogLevel::Info);
    host::log_panics(F::Engine::NAME);
    proxy_wasm::set_root_context(|id| Box::new(Root::<F>::new(id)));
}

/// Turns this crate into the module of a filter.
#[macro_export]
macro_rules! filter {
    ($filter:ident) => {
        // `main!` defines the module's `_initialize`, an unmangled symbol, which the lint treats as unsafe. Only a host
        // calls it, and no native program links two filters.
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, missing_docs)]
        mod entry {
            use $crate::proxy_wasm;

            proxy_wasm::main! {{ $crate::start::<super::$filter>() }}
        }
    };
}
