//! Another clock for one process.

use crate::{command, workspace};
use anyhow::{Context, Result};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("clock.c");
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
        let clock = Self {
            file: file.to_owned(),
            library: library()?,
        };
        clock.set(ahead_ms)?;
        Ok(clock)
    }

    /// Sets it to so many milliseconds ahead of the machine's clock, also under a process that runs.
    pub fn set(&self, ahead_ms: i64) -> Result<()> {
        // In place: the process has the file mapped.
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(false);
        file.open(&self.file)
            .and_then(|file| file.write_all_at(&ahead_ms.to_ne_bytes(), 0))
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
    command::succeed(&mut build, LIMIT).context("a gateway with another clock needs cc")?;
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
    fn a_process_has_the_clock_that_it_is_given_and_that_is_set_while_it_runs() {
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
        let mut ahead_s = || {
            writeln!(asked).unwrap();
            let theirs: i64 = told.next().unwrap().unwrap().parse().unwrap();
            let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            theirs - i64::try_from(ours.as_secs()).unwrap()
        };
        assert!((-101..=-95).contains(&ahead_s()));
        clock.set(50_000).unwrap();
        assert!((45..=50).contains(&ahead_s()));
        drop(asked);
        bash.wait().unwrap();
    }
}
