//! Programs that `cargo install` builds, each in its own folder of Weir's tools.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lock;
use crate::report::Reporter;
use crate::{command, workspace};

/// For ten minutes of CPU time on a busy machine.
const INSTALL_LIMIT: Duration = Duration::from_secs(2_400);

/// A program from crates.io.
#[derive(Debug)]
pub struct CargoProgram {
    name: &'static str,
    version: &'static str,
}

/// Checks licenses, sources and advisories of dependencies.
pub const CARGO_DENY: CargoProgram = CargoProgram {
    name: "cargo-deny",
    version: "0.20.2",
};

/// Changes sources to find changes that no test detects.
pub const CARGO_MUTANTS: CargoProgram = CargoProgram {
    name: "cargo-mutants",
    version: "27.1.0",
};

impl CargoProgram {
    /// Finds it on `PATH`, else among Weir's tools, else installs it there.
    ///
    /// # Errors
    /// The registry is not available, or the build fails.
    pub fn find_or_get(&self, reporter: &mut dyn Reporter) -> Result<PathBuf> {
        let _lock = lock()?;
        let Self { name, version } = self;
        if let Some(found) = command::on_path(name) {
            return Ok(found);
        }
        let folder = workspace::out_dir().join(format!("tools/{name}-{version}"));
        let binary = folder.join("bin").join(name);
        if !command::is_executable(&binary) {
            reporter.line(name, &format!("building {version}…"));
            let mut install = command::cargo();
            install
                .args(["install", name, "--locked", "--version", version, "--root"])
                .arg(&folder);
            command::succeed(&mut install, INSTALL_LIMIT).with_context(|| {
                format!("cannot build {name}: run cargo install {name} yourself")
            })?;
        }
        Ok(binary)
    }
}
