//! A store in a folder that the host provides.

use std::fs;
use std::path::{Path, PathBuf};

use weir_edge::Store;
use weir_edge::store::NotWritten;

use crate::settings::random;

/// The path of the folder.
const PATH: &str = "/weir";

/// The folder.
pub(crate) struct Folder;

impl Folder {
    /// The folder, if it exists.
    pub(crate) fn open() -> Option<Self> {
        Path::new(PATH).is_dir().then_some(Self)
    }

    fn path(key: &str) -> PathBuf {
        Path::new(PATH).join(key)
    }
}

impl Store for Folder {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        fs::read(Self::path(key)).ok()
    }

    /// Files appear atomically, because other instances read them.
    fn put(&self, key: &str, value: &[u8]) -> Result<(), NotWritten> {
        let path = Self::path(key);
        let new = path.with_extension(format!("new-{:016x}", random()));
        let written = || {
            fs::create_dir_all(path.parent()?).ok()?;
            fs::write(&new, value).ok()?;
            fs::rename(&new, &path).ok()
        };
        written().ok_or(NotWritten)
    }
}
