//! Another clock for one process.

use crate::{command, workspace};
use anyhow::{Context, Result};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("clock.c");
/// In the place of the time at which a clock stands: it does not.
const RUNS: i64 = 0;

const LIMIT: Duration = Duration::from_secs(60);

/// A wall clock that a process has instead of the machine's, and that can be set while it runs. Timers are not
/// touched.
#[derive(Clone, Debug)]
pub struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// A clock that is kept in `file` and is so far ahead of the machine's; behind if negative. For Linux; `cc` builds
    /// what is needed, which Rust links with anyway.
    pub fn new(file: &Path, ahead_ms: i64) -> Result<Self> {
        Self::in_file(file, ahead_ms, RUNS)
    }

    /// A clock that is kept in `file` and stands at this time, in milliseconds since the Unix epoch.
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

    /// Lets it run, so many milliseconds ahead of the machine's clock, also under a process that runs.
    pub fn set(&self, ahead_ms: i64) -> Result<()> {
        self.write(ahead_ms, RUNS)
    }

    /// Lets it stand at this time, in milliseconds since the Unix epoch, also under a process that runs.
    pub fn stand_at(&self, at_ms: i64) -> Result<()> {
        self.write(0, at_ms)
    }

    fn write(&self, ahead_ms: i64, stands_at_ms: i64) -> Result<()> {
        // In place: the process has the file mapped.
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(false);
        let setting = [ahead_ms.to_ne_bytes(), stands_at_ms.to_ne_bytes()].concat();
        file.open(&self.file)
            .and_then(|file| file.write_all_at(&setting, 0))
            .with_context(|| format!("cannot set the clock {}", self.file.display()))
    }

    /// With these in its environment, a process has this clock.
    pub fn variables(&self) -> [(String, String); 2] {
        [("LD_PRELOAD", &self.library), ("WEIR_CLOCK", &self.file)]
            .map(|(name, path)| (name.to_owned(), path.display().to_string()))
    }
}

/// What is preloaded, built if it isn't there.
fn library() -> Result<PathBuf> {
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
        // One process that tells its time at each line that it reads.
        let mut bash = Command::new("bash")
            .args(["-c", "while read -r _; do printf '%(%s)T\\n' -1; done"])
            .envs(clock.variables())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut asked = bash.stdin.take().unwrap();
        let mut told = BufReader::new(bash.stdout.take().unwrap()).lines();
        let mut their_s = || -> i64 {
            writeln!(asked).unwrap();
            told.next().unwrap().unwrap().parse().unwrap()
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
        drop(asked);
        bash.wait().unwrap();
    }
}
