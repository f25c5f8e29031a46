//! PostgreSQL, for tests of the origin.

use super::{Removals, apt};
use crate::command;
use crate::report::Reporter;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Debian's folder of all versions.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A PostgreSQL server.
#[derive(Debug, Clone)]
pub struct Postgres {
    /// The server's binary.
    pub server: PathBuf,
    /// The program that creates a data folder.
    pub initdb: PathBuf,
}

impl Postgres {
    /// Finds `postgres` and `initdb` on `PATH`, else Debian's newest version, else installs it.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = super::lock()?;
        let found = match found() {
            Some(found) => found,
            None => get(reporter).context(
                "postgres is not on PATH: install it (Debian: apt-get install postgresql; macOS: brew install postgresql)",
            )?,
        };
        reporter.line("postgres", &found.server.display().to_string());
        Ok(found)
    }
}

fn found() -> Option<Postgres> {
    let on_path = command::on_path("postgres").zip(command::on_path("initdb"));
    let (server, initdb) = on_path.or_else(debian)?;
    Some(Postgres { server, initdb })
}

/// Debian does not link them into a folder of `PATH`.
fn debian() -> Option<(PathBuf, PathBuf)> {
    let version = |dir: &Path| dir.file_name()?.to_str()?.parse::<u32>().ok();
    let dirs = std::fs::read_dir(DEBIAN).ok()?.filter_map(Result::ok);
    let newest = dirs.map(|dir| dir.path()).max_by_key(|dir| version(dir))?;
    let find =
        |name| Some(newest.join("bin").join(name)).filter(|path| command::is_executable(path));
    find("postgres").zip(find("initdb"))
}

/// The package would start a service on port 5432.
fn get(reporter: &mut dyn Reporter) -> Result<Postgres> {
    reporter.line("postgres", "installing Debian's postgresql…");
    apt::install_stopped(&["postgresql"], Removals::Refuse)?;
    found().context("the package postgresql has no server")
}
