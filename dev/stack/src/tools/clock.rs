//! A separate clock for one process.

use crate::{command, workspace};
use anyhow::{Context, Result};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("clock.c");
/// The value for a running clock, in place of the time of a stopped clock.
const RUNS: i64 = 0;

const LIMIT: Duration = Duration::from_secs(60);

/// A wall clock that replaces the machine's for a process, and that can be set while the process runs. Timers are
/// unaffected.
#[derive(Clone, Debug)]
pub struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// A clock stored in `file`, this far ahead of the machine's; behind if negative. Linux only. Builds its library
    /// with `cc`, which Rust needs for linking anyway.
    pub fn new(file: &Path, ahead_ms: i64) -> Result<Self> {
        Self::in_file(file, ahead_ms, RUNS)
    }

    /// A clock stored in `file`, stopped at this time, in milliseconds since the Unix epoch.
    pub fn stopped(file: &Path, at_ms: i64) -> Result<Self> {
        Self::in_file(file, 0, at_ms)
    }

    fn in_file(file: &Path, ahead_ms: i64, stands_at_ms: i64) -> Result<Self> {
        let clock = Self {
            file: file.to_owned(),
            library: library()?,
        };
        clock.write(ahead_ms, stands_at_ms)?;
        Ok(clock)
    }

    /// Runs the clock, this many milliseconds ahead of the machine's; also while a process uses it.
    pub fn set(&self, ahead_ms: i64) -> Result<()> {
        self.write(ahead_ms, RUNS)
    }

    /// Stops the clock at this time, in milliseconds since the Unix epoch; also while a process uses it.
    pub fn stand_at(&self, at_ms: i64) -> Result<()> {
        self.write(0, at_ms)
    }

    fn write(&self, ahead_ms: i64, stands_at_ms: i64) -> Result<()> {
        // Written in place, because the process has mapped the file.
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(false);
        let setting = [ahead_ms.to_ne_bytes(), stands_at_ms.to_ne_bytes()].concat();
        file.open(&self.file)
            .and_then(|file| file.write_all_at(&setting, 0))
            .with_context(|| format!("cannot set the clock {}", self.file.display()))
    }

    /// The environment variables that give a process this clock.
    pub fn variables(&self) -> [(String, String); 2] {
        [("LD_PRELOAD", &self.library), ("WEIR_CLOCK", &self.file)]
            .map(|(name, path)| (name.to_owned(), path.display().to_string()))
    }
}

/// The preloaded library, built if missing.
fn library() -> Result<PathBuf> {
    let _lock = super::lock()?;
    let dir = workspace::out_dir().join("tools/clock");
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    let is_built = std::fs::read_to_string(&source).is_ok_and(|built| built == SOURCE);
    if is_built && library.is_file() {
        return Ok(library);
    }
    // The source is written last, so the library next to it was built from it.
    let fresh = dir.join("fresh.c");
    workspace::write_atomic(&fresh, SOURCE.as_bytes())?;
    let mut build = Command::new("cc");
    build.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]);
    build.arg(&library).arg(&fresh);
    command::succeed(&mut build, LIMIT).context("a gateway with a different clock needs cc")?;
    std::fs::rename(&fresh, &source).context("cannot keep the source of the clock")?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn process_uses_given_clock_and_follows_changes_while_running() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::new(&dir.path().join("clock"), -100_000).unwrap();
        // One process that prints its time for each line of input.
        let mut bash = Command::new("bash")
            .args(["-c", "while read -r _; do printf '%(%s)T\\n' -1; done"])
            .envs(clock.variables())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut requested = bash.stdin.take().unwrap();
        let mut reader = BufReader::new(bash.stdout.take().unwrap()).lines();
        let mut their_s = || -> i64 {
            writeln!(requested).unwrap();
            reader.next().unwrap().unwrap().parse().unwrap()
        };
        let mut ahead_s = || {
            let theirs = their_s();
            let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            theirs - i64::try_from(ours.as_secs()).unwrap()
        };
        assert!((-101..=-95).contains(&ahead_s()));
        clock.set(50_000).unwrap();
        assert!((45..=50).contains(&ahead_s()));
        clock.stand_at(1_700_000_000_999).unwrap();
        assert_eq!((their_s(), their_s()), (1_700_000_000, 1_700_000_000));
        drop(requested);
        bash.wait().unwrap();
    }
}
