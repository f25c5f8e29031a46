//! Results of slow commands, cached in `target/weir/tools.json`.
//!
//! A key names everything that the result depends on, including file times. An entry is therefore never invalidated: a
//! changed tool has a different key. The file may be deleted at any time.

use crate::workspace;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// More than a machine has tools. A file with more entries is recreated, so that it does not grow with each tool
/// update.
const ENTRIES_MAX: usize = 64;

/// Returns the cached result for `key`, or runs `ask` and caches its result if it succeeds.
pub(super) fn remember(key: &str, ask: impl FnOnce() -> Result<String>) -> Result<String> {
    if let Some(existing) = get(key) {
        return Ok(existing);
    }
    let answer = ask()?;
    put(key, &answer)?;
    Ok(answer)
}

pub(super) fn get(key: &str) -> Option<String> {
    load().remove(key)
}

pub(super) fn put(key: &str, value: &str) -> Result<()> {
    let mut entries = load();
    if entries.len() >= ENTRIES_MAX {
        entries.clear();
    }
    entries.insert(key.to_owned(), value.to_owned());
    let text = serde_json::to_string_pretty(&entries)?;
    workspace::write_atomic(&file(), text.as_bytes())
}

/// The identity of a file: path, size and modification time.
pub(super) fn identity(path: &Path) -> String {
    let Ok(meta) = std::fs::metadata(path) else {
        return format!("{}@absent", path.display());
    };
    let modified = meta.modified().ok();
    let nanos = modified.and_then(|time| Some(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()));
    format!("{}@{}.{}", path.display(), nanos.unwrap_or(0), meta.len())
}

fn file() -> std::path::PathBuf {
    workspace::out_dir().join("tools.json")
}

/// A missing or unreadable file is an empty cache, because it only saves time.
fn load() -> BTreeMap<String, String> {
    std::fs::read(file())
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}
