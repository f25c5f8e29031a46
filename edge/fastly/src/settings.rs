//! The service's stores with settings.

use std::rc::Rc;

use fastly::{ConfigStore, Request, SecretStore};
use weir_edge::Edge;
use weir_edge::edge::{EdgeSetup, Variable};
use weir_edge::host::{CONFIG, text};

use crate::shared::PopData;
use crate::store::{Cached, Space};

/// The name of the service's stores.
pub(crate) const STORE: &str = "weir";

/// The edge of this service.
///
/// # Errors
/// If it is not configured, or the configuration is invalid.
pub(crate) fn edge(request: &Request) -> Result<Edge<Cached>, String> {
    let variable = variables(request);
    let json = text(&*variable, CONFIG)?;
    let space = space(request);
    let setup = EdgeSetup {
        variable,
        seed: seed(),
        data: Rc::new(PopData::new(space.clone())),
        counts_exactly: false,
    };
    let store = Cached::open(space).ok_or_else(|| format!("KV store {STORE} does not exist"))?;
    Edge::new(json.as_bytes(), setup, store).map_err(|error| format!("invalid {CONFIG}: {error}"))
}

fn variables(request: &Request) -> Box<Variable> {
    // The conformance suite sends all of them in one header.
    #[cfg(feature = "conformance")]
    if let Some(json) = request.get_header_str("x-conformance-variables") {
        let parsed: std::collections::BTreeMap<String, String> =
            serde_json::from_str(json).unwrap_or_default();
        return Box::new(move |name| parsed.get(name).map(|value| value.clone().into_bytes()));
    }
    let _ = request;
    Box::new(|name| {
        let configured = ConfigStore::try_open(STORE).ok()?.try_get(name).ok()?;
        let configured = configured.map(String::into_bytes);
        configured.or_else(|| {
            let secret = SecretStore::open(STORE).ok()?.try_get(name).ok()??;
            Some(secret.try_plaintext().ok()?.to_vec())
        })
    })
}

#[cfg(not(feature = "conformance"))]
fn space(_request: &Request) -> Space {
    Space::default()
}

/// Each conformance vector has its own storage.
#[cfg(feature = "conformance")]
fn space(request: &Request) -> Space {
    let space = request.get_header_str("x-conformance-space");
    Space::new(space.unwrap_or_default())
}

/// Guessing it is harmless: edges count no clicks, and local limits are approximate here.
fn seed() -> u64 {
    0
}
