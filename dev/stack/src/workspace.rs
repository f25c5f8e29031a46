//! Paths of the workspace and of its output folder.

use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The root of the running code's workspace.
///
/// Cargo's own variable has priority: two clones that share one `CARGO_TARGET_DIR` also share the compiled-in path,
/// which may name the other clone.
pub fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .and_then(|dir| {
            let is_root = |dir: &&Path| dir.join("dev/stack/Cargo.toml").is_file();
            Path::new(&dir).ancestors().find(is_root).map(PathBuf::from)
        })
        .unwrap_or_else(compiled_in_root)
}

fn compiled_in_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// `<workspace>/target/weir`: built filters, downloaded tools, logs of runs. It is independent of `CARGO_TARGET_DIR`,
/// because `envoy/weir.yaml` names it.
pub fn out_dir() -> PathBuf {
    root().join("target/weir")
}

/// An inter-process lock, released on drop.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

/// Waits for and takes the lock `target/weir/<name>.lock`.
///
/// Tests run in many processes that need the filters at the same time; the first builds them while the others wait
/// here.
pub fn lock(name: &str) -> Result<DirLock> {
    let dir = out_dir();
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let path = dir.join(format!("{name}.lock"));
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open the lock file {}", path.display()))?;
    file.lock()
        .with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(DirLock { _file: file })
}

/// Writes `bytes` to `path` atomically: readers find the old file or the new one, never a part.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let dir = path.parent().context("a file to write has no folder")?;
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(dir)?;
        let mut temp = tempfile::Builder::new()
            .permissions(readable_by_all())
            .tempfile_in(dir)?;
        temp.write_all(bytes)?;
        temp.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The default of tempfile is 0600, but an Envoy that runs as another user must read the filters.
fn readable_by_all() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o644)
}
