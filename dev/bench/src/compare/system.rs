//! The compared systems.

use serde::{Deserialize, Serialize};

/// A system that answers requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum System {
    /// Weir's filter in Envoy.
    Weir,
    /// Envoy's `direct_response`.
    EnvoyDirect,
    /// A minimal wasm filter.
    EnvoyLeast,
    /// Envoy's Lua filter.
    EnvoyLua,
    /// Envoy's own local rate limit.
    EnvoyLimit,
    /// The gate's admission in a wasm filter with Redis behind Webdis.
    EnvoyWebdis,
    /// nginx with Lua, and with Redis where the scenario needs it, with as little work as possible.
    NginxLua,
    /// nginx with Lua and Redis, with all that Weir does for an admission.
    NginxFair,
    /// nginx' own `limit_req`.
    NginxLimit,
    /// nginx' own redirect.
    NginxReturn,
    /// Weir's native module in Envoy.
    WeirNative,
    /// Weir's native module without its fast path.
    WeirNativeHttp,
    /// Envoy with one redirect route for each link.
    EnvoyRoutes,
}

impl System {
    pub(super) const ALL: [Self; 13] = [
        Self::Weir,
        Self::EnvoyDirect,
        Self::EnvoyLua,
        Self::EnvoyLimit,
        Self::EnvoyWebdis,
        Self::NginxLua,
        Self::NginxLimit,
        Self::NginxReturn,
        Self::EnvoyLeast,
        Self::WeirNative,
        Self::WeirNativeHttp,
        Self::EnvoyRoutes,
        Self::NginxFair,
    ];

    /// The display name.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Weir => "Weir",
            Self::EnvoyDirect => "bare Envoy",
            Self::EnvoyLeast => "least wasm",
            Self::EnvoyLua => "Envoy Lua",
            Self::EnvoyLimit => "Envoy local rate limit",
            Self::EnvoyWebdis => "wasm + Webdis",
            Self::NginxLua => "nginx + Lua",
            Self::NginxFair => "nginx + Lua, fair",
            Self::NginxLimit => "nginx limit_req",
            Self::NginxReturn => "nginx return 302",
            Self::WeirNative => "Weir, native",
            Self::WeirNativeHttp => "Weir, native, no fast path",
            Self::EnvoyRoutes => "Envoy, 1,000 routes",
        }
    }

    /// The index of its colour, the same in every plot.
    pub(super) fn colour(self) -> usize {
        Self::ALL
            .iter()
            .position(|system| *system == self)
            .unwrap_or(0)
    }
}
