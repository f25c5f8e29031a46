//! What the environment says.

use weir_edge::edge::Given;
use weir_edge::store::MemoryStore;
use weir_edge::{Edge, Store};

use crate::folder::Folder;

/// Where the edge keeps what it has read.
pub(crate) type AnyStore = Box<dyn Store>;

/// An edge, and where it sends what.
pub(crate) struct Settings {
    pub(crate) edge: Edge<AnyStore>,
    pub(crate) places: Places,
}

/// Where the edge sends what.
#[derive(Clone)]
pub(crate) struct Places {
    pub(crate) origin: String,
    pub(crate) gateway: String,
    /// In lower case.
    pub(crate) client_header: Option<String>,
}

impl Settings {
    /// Reads the environment.
    pub(crate) fn read() -> Result<Self, String> {
        let json = variable("WEIR_EDGE_CONFIG")?;
        let places = Places {
            origin: place("WEIR_EDGE_ORIGIN")?,
            gateway: place("WEIR_EDGE_GATEWAY")?,
            client_header: std::env::var("WEIR_EDGE_CLIENT_HEADER")
                .ok()
                .map(|name| name.to_ascii_lowercase()),
        };
        let given = Given {
            variable: Box::new(|name| std::env::var(name).ok().map(String::into_bytes)),
            seed: random(),
        };
        let store: AnyStore = match Folder::open() {
            Some(folder) => Box::new(folder),
            None => Box::new(MemoryStore::default()),
        };
        let edge = Edge::new(json.as_bytes(), given, store)
            .map_err(|error| format!("WEIR_EDGE_CONFIG is refused: {error}"))?;
        Ok(Self { edge, places })
    }
}

/// A number that is hard to guess.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    wstd::rand::get_random_bytes(&mut bytes);
    u64::from_le_bytes(bytes)
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("{name} is not set"))
}

/// A URL to which a path can be added.
fn place(name: &str) -> Result<String, String> {
    let url = variable(name)?;
    let is_web = url.starts_with("http://") || url.starts_with("https://");
    match is_web {
        true => Ok(url.trim_end_matches('/').to_owned()),
        false => Err(format!("{name} must begin with http:// or https://")),
    }
}
