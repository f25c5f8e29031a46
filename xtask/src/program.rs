//! A program of the workspace: built by cargo, then run in our place.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

pub(crate) struct Program {
    pub(crate) binary: &'static str,
    /// Binaries that it runs. Cargo builds them with it, which keeps both cores busy.
    pub(crate) beside: &'static [&'static str],
    /// Whether it does several tasks, and wants to know which.
    pub(crate) takes_task: bool,
}

impl Program {
    pub(crate) fn is_built(&self) -> bool {
        self.path().is_ok_and(|path| path.is_file())
    }

    /// Builds it and becomes it. `arguments` are ours, with the task's name at `place`.
    pub(crate) fn run(
        &self,
        mut arguments: Vec<OsString>,
        place: usize,
    ) -> Result<ExitCode, String> {
        if !self.build()? {
            return Ok(ExitCode::FAILURE);
        }
        if !self.takes_task {
            arguments.remove(place);
        }
        let path = self.path()?;
        let error = Command::new(&path).args(arguments).exec();
        Err(format!("cannot run {}: {error}", path.display()))
    }

    /// Returns whether cargo could; it has said why it could not.
    fn build(&self) -> Result<bool, String> {
        let mut cargo = cargo();
        // Features are those of the whole workspace, so that no other build compiles a dependency anew.
        cargo.args(["build", "--workspace", "--bin", self.binary]);
        cargo.args(self.beside.iter().flat_map(|binary| ["--bin", binary]));
        let status = cargo.status();
        let status = status.map_err(|error| format!("cannot start cargo: {error}"))?;
        Ok(status.success())
    }

    /// Beside our own binary, wherever that is.
    fn path(&self) -> Result<PathBuf, String> {
        let own = std::env::current_exe();
        let own = own.map_err(|error| format!("cannot find the target folder: {error}"))?;
        Ok(own.with_file_name(self.binary))
    }
}

/// The cargo that runs us, without what it has set for us: build scripts that look at such a variable would run again
/// each time that cargo is called from outside and from inside in turn.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}
