//! The environment's settings.

use std::rc::Rc;

use weir_base::shared_data::LocalData;
use weir_edge::edge::EdgeSetup;
use weir_edge::host::{CONFIG, Upstreams, text};
use weir_edge::store::MemoryStore;
use weir_edge::{Edge, Store};

use crate::folder::Folder;

/// The store of the edge.
pub(crate) type AnyStore = Box<dyn Store>;

/// An edge, and its servers.
pub(crate) struct Settings {
    pub(crate) edge: Edge<AnyStore>,
    pub(crate) upstreams: Upstreams,
}

impl Settings {
    /// Reads the environment.
    pub(crate) fn read() -> Result<Self, String> {
        let variable = |name: &str| std::env::var(name).ok().map(String::into_bytes);
        let (json, upstreams) = (text(&variable, CONFIG)?, Upstreams::read(&variable)?);
        let setup = EdgeSetup {
            variable: Box::new(variable),
            seed: random(),
            data: Rc::new(LocalData::default()),
            counts_exactly: false,
        };
        let store: AnyStore = match Folder::open() {
            Some(folder) => Box::new(folder),
            None => Box::new(MemoryStore::default()),
        };
        let edge = Edge::new(json.as_bytes(), setup, store)
            .map_err(|error| format!("invalid {CONFIG}: {error}"))?;
        Ok(Self { edge, upstreams })
    }
}

/// A number that is hard to guess.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    wstd::rand::get_random_bytes(&mut bytes);
    u64::from_le_bytes(bytes)
}
