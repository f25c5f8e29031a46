//! MariaDB, for tests of the MySQL protocol.

use super::apt;
use crate::command;
use crate::report::Reporter;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// A server that supports the MySQL protocol.
#[derive(Debug, Clone)]
pub struct MariaDb {
    /// The server's binary.
    pub server: PathBuf,
    /// The program that creates a data folder.
    pub install_db: PathBuf,
}

impl MariaDb {
    /// Finds `mariadbd` and `mariadb-install-db` on `PATH` or in `/usr/sbin`, else Debian's.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = super::lock()?;
        let found = match found() {
            Some(found) => found,
            None => get(reporter).context(
                "mariadbd is not on PATH: install it (Debian: apt-get install mariadb-server-core mariadb-client-core; macOS: brew install mariadb)",
            )?,
        };
        reporter.line("mariadb", &found.server.display().to_string());
        Ok(found)
    }
}

fn found() -> Option<MariaDb> {
    let find = |name: &str| {
        // On Debian, /usr/sbin is not on a user's PATH.
        let admin = || Some(PathBuf::from("/usr/sbin").join(name));
        command::on_path(name).or_else(|| admin().filter(|path| command::is_executable(path)))
    };
    Some(MariaDb {
        server: find("mariadbd")?,
        install_db: find("mariadb-install-db").filter(|_| find("my_print_defaults").is_some())?,
    })
}

/// Installs `mariadb-server-core` instead of `mariadb-server`, which would start a service on port 3306. The client
/// package contains the program that creates data folders.
fn get(reporter: &mut dyn Reporter) -> Result<MariaDb> {
    reporter.line("mariadb", "installing Debian's mariadb-server-core…");
    apt::install(&["mariadb-server-core", "mariadb-client-core"])?;
    found().context("the package mariadb-server-core has no mariadbd")
}
