//! npm packages from lock files of the repository.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{command, workspace};

/// workerd and Node have 360 MB.
const INSTALL_LIMIT: Duration = Duration::from_secs(600);

/// The npm packages of the lock file in a folder, installed once.
pub(crate) fn installed(name: &str, from: &str) -> Result<PathBuf> {
    let npm = command::on_path("npm")
        .with_context(|| format!("npm is missing, which installs {name}"))?;
    let from = workspace::root().join(from);
    let lock = std::fs::read(from.join("package-lock.json"))?;
    let folder = workspace::out_dir().join(format!("tools/{name}-{:08x}", hash(&lock)));
    let _lock = workspace::lock(name)?;
    std::fs::create_dir_all(&folder)?;
    for file in ["package.json", "package-lock.json"] {
        std::fs::copy(from.join(file), folder.join(file))?;
    }
    let done = folder.join("installed");
    if !done.exists() {
        // Not `npm ci`, which fails on packages for other platforms that the registry lacks.
        let mut install = Command::new(npm);
        install
            .args(["install", "--no-audit", "--no-fund"])
            .current_dir(&folder);
        command::succeed(&mut install, INSTALL_LIMIT)?;
        std::fs::write(done, "")?;
    }
    Ok(folder)
}

/// A hash that identifies a lock file.
fn hash(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}
