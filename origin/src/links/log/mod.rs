//! The log of new links: an acknowledged link survives in it until the cold store has it.
//!
//! A folder of files, each only ever appended to. Before a link is acknowledged its [entry](Entry) is written
//! here; the [drainer](drain) carries entries into the cold store, which notes in the same transaction how far
//! it has the log; a file that the store has whole is deleted. After a crash the next process goes on where the
//! store is.
//!
//! - `kill -9` of the origin loses nothing: what was written is the kernel's.
//! - A power cut loses nothing with [`Sync::Disk`]; with [`Sync::Os`] it may lose what the system had not
//!   written yet, a few seconds at most.
//! - Loss of the folder loses what the cold store has not taken yet, normally less than a second's links.
//!
//! One process at a time has a folder: it holds the lock of the file `lock`. The file `id` names the log in
//! the cold store.

pub mod drain;
mod frame;
mod read;
mod write;

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::store::Entry;

pub use read::Reader;
pub use write::{AppendError, Log, LogLimits};

/// When an entry counts as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sync {
    /// When the operating system has it: survives the process, not the machine.
    #[default]
    Os,
    /// When the disk says that it has it: survives the machine. Entries that come together share one wait.
    Disk,
}

/// Why there is no log to write to.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has the folder.
    #[error("{} is another process's log: each origin needs one of its own", .0.display())]
    Taken(PathBuf),
    /// The folder or a file in it cannot be made or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file `id` holds something else.
    #[error("{} is not the name of a log", .0.display())]
    Id(PathBuf),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let path = path.to_owned();
    move |source| LogError::Io { path, source }
}

/// A folder that this process alone has, until it drops it.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    id: String,
    _lock: File,
}

impl Folder {
    /// Makes the folder if it is not there.
    fn open(path: &Path) -> Result<Self, LogError> {
        std::fs::create_dir_all(path).map_err(at(path))?;
        let lock_path = path.join("lock");
        let lock = File::create(&lock_path).map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LogError::Taken(path.to_owned())),
            Err(TryLockError::Error(source)) => return Err(at(&lock_path)(source)),
        }
        Ok(Self {
            id: read_or_make_id(path)?,
            path: path.to_owned(),
            _lock: lock,
        })
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:016}.log"))
    }

    /// The numbers of the files that are there, the first first.
    fn files(&self) -> Result<Vec<u64>, LogError> {
        let number = |name: &std::ffi::OsStr| {
            let digits = name.to_str()?.strip_suffix(".log")?;
            digits.parse::<u64>().ok()
        };
        let entries = std::fs::read_dir(&self.path).map_err(at(&self.path))?;
        let names: Result<Vec<_>, _> = entries.map(|e| e.map(|e| e.file_name())).collect();
        let names = names.map_err(at(&self.path))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// 32 hexadecimal digits from the kernel, written once.
fn read_or_make_id(folder: &Path) -> Result<String, LogError> {
    let path = folder.join("id");
    match std::fs::read_to_string(&path) {
        Ok(id) if is_id(id.trim_end()) => return Ok(id.trim_end().to_owned()),
        Ok(_) => return Err(LogError::Id(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(at(&path)(error)),
    }
    let random = || -> io::Result<String> {
        let mut bytes = [0; 16];
        io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
        Ok(hex::encode(bytes))
    };
    let id = random().map_err(at(Path::new("/dev/urandom")))?;
    // Whole or not at all: a crash between leaves no half id.
    let draft = folder.join("id.new");
    std::fs::write(&draft, &id).map_err(at(&draft))?;
    std::fs::rename(&draft, &path).map_err(at(&path))?;
    Ok(id)
}

fn is_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}
