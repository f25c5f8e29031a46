//! The folder of a log.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::{LogError, at};

/// A folder that this process has locked until it drops the value.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) id: String,
    _lock: File,
}

impl Folder {
    /// Creates the folder if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<Self, LogError> {
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

    pub(crate) fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:016}.log"))
    }

    /// The file for damaged bytes, for manual inspection.
    pub(crate) fn damaged(&self, number: u64) -> PathBuf {
        self.file(number).with_extension("damaged")
    }

    /// The numbers of the existing files, in ascending order.
    pub(crate) fn files(&self) -> Result<Vec<u64>, LogError> {
        let number = |name: &OsStr| {
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

    /// Creates a file and syncs the folder, so that the file's name survives a power failure.
    pub(crate) fn create(&self, number: u64) -> Result<File, LogError> {
        let path = self.file(number);
        let file = File::create_new(&path).map_err(at(&path))?;
        self.sync()?;
        Ok(file)
    }

    fn sync(&self) -> Result<(), LogError> {
        let synced = File::open(&self.path).and_then(|folder| folder.sync_all());
        synced.map_err(at(&self.path))
    }
}

/// Replaces a small file atomically and durably.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), LogError> {
    let draft = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = File::create(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        match path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(at(path))
}

/// 32 random hexadecimal digits from the kernel, written once.
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
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(hex::encode(bytes))
    };
    let id = random().map_err(at(Path::new("/dev/urandom")))?;
    replace(&path, &id)?;
    Ok(id)
}

fn is_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}
