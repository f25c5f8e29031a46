//! Another clock for one process.

use crate::{command, workspace};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("clock.c");
const LIMIT: Duration = Duration::from_secs(60);

/// The library that moves the wall clock of the process it is preloaded into by
/// `WEIR_CLOCK_AHEAD_MS`. For Linux; `cc` builds it, which Rust links with anyway.
pub fn clock() -> Result<PathBuf> {
    let _lock = super::lock()?;
    let dir = workspace::out_dir().join("tools/clock");
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    let is_built = std::fs::read_to_string(&source).is_ok_and(|built| built == SOURCE);
    if is_built && library.is_file() {
        return Ok(library);
    }
    // The source is written last: what is beside it was made of it.
    let fresh = dir.join("fresh.c");
    workspace::write_atomic(&fresh, SOURCE.as_bytes())?;
    let mut build = Command::new("cc");
    build.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]);
    build.arg(&library).arg(&fresh);
    command::succeed(&mut build, LIMIT).context("a gateway with another clock needs cc")?;
    std::fs::rename(&fresh, &source).context("cannot keep the source of the clock")?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn a_process_has_the_clock_that_it_is_given() {
        let mut date = Command::new("date");
        date.arg("+%s")
            .env("LD_PRELOAD", clock().unwrap())
            .env("WEIR_CLOCK_AHEAD_MS", "-100000");
        let said = command::succeed(&mut date, LIMIT).unwrap();
        let theirs: u64 = said.trim().parse().unwrap();
        let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!((95..=100).contains(&(ours.as_secs() - theirs)), "{said}");
    }
}
