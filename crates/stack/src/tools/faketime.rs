//! libfaketime: another clock for one process.

use super::apt;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// The variant for processes with threads, as Debian and most others name it.
const LIBRARY: &str = "libfaketimeMT.so.1";

/// The library to preload into a process whose clock shall be off; Debian's package `faketime` is
/// installed if it is not there and may be.
pub fn faketime() -> Result<PathBuf> {
    let _lock = super::lock()?;
    if let Some(path) = found() {
        return Ok(path);
    }
    apt::install(&["faketime"]).context("a gateway with another clock needs libfaketime")?;
    found().with_context(|| format!("the package faketime has no {LIBRARY}"))
}

fn found() -> Option<PathBuf> {
    let architectures = std::fs::read_dir("/usr/lib").ok()?;
    architectures
        .filter_map(|entry| Some(entry.ok()?.path()))
        .chain([PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")])
        .map(|dir| dir.join("faketime").join(LIBRARY))
        .find(|path| path.is_file())
}
