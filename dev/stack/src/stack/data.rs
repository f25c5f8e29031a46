//! The folder of one run.

use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::PathBuf;

/// The folder of one run, locked against concurrent stacks. Dropping this deletes it unless it was named.
#[derive(Debug)]
pub struct DataDir {
    /// The path of the folder.
    pub path: PathBuf,
    temporary: Option<tempfile::TempDir>,
    _lock: File,
}

impl DataDir {
    /// Opens the folder `named`, or creates a temporary one.
    ///
    /// # Errors
    /// It cannot be created, or another stack has locked it.
    pub fn open(named: Option<PathBuf>) -> Result<Self> {
        let (path, temporary) = match named {
            Some(path) => (std::path::absolute(path)?, None),
            None => {
                let home = workspace::out_dir().join("run");
                std::fs::create_dir_all(&home)?;
                let temporary = tempfile::Builder::new().prefix("run-").tempdir_in(home)?;
                (temporary.path().to_path_buf(), Some(temporary))
            }
        };
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let lock = File::create(path.join("lock"))
            .with_context(|| format!("cannot write to {}", path.display()))?;
        ensure!(
            lock.try_lock().is_ok(),
            "another stack is running in {}",
            path.display()
        );
        Ok(Self {
            path,
            temporary,
            _lock: lock,
        })
    }

    /// Keeps the folder when this is dropped, for inspection.
    pub fn keep(&mut self) {
        if let Some(temporary) = &mut self.temporary {
            temporary.disable_cleanup(true);
        }
    }

    /// Writes the file `name` if `text` is set.
    pub(super) fn write(&self, name: &str, text: Option<&str>) -> Result<Option<PathBuf>> {
        let Some(text) = text else { return Ok(None) };
        let file = self.path.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Some(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_folder_is_locked_by_one_stack() {
        let temp = tempfile::tempdir().unwrap();
        let _first = DataDir::open(Some(temp.path().to_path_buf())).unwrap();
        assert!(DataDir::open(Some(temp.path().to_path_buf())).is_err());
    }
}
