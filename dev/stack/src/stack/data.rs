//! The folder of one run.

use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::PathBuf;

/// The folder of one run, locked against a second stack in it. It goes when this is dropped, unless it was
/// named.
#[derive(Debug)]
pub struct DataDir {
    /// Where it is.
    pub path: PathBuf,
    temporary: Option<tempfile::TempDir>,
    _lock: File,
}

impl DataDir {
    /// The folder `named`, or a new one.
    ///
    /// # Errors
    /// When it cannot be made, or another one holds it.
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

    /// It stays when this is dropped, so that somebody can look into it.
    pub fn keep(&mut self) {
        if let Some(temporary) = &mut self.temporary {
            temporary.disable_cleanup(true);
        }
    }

    /// Writes the file `name`, if there is something to write.
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
    fn a_data_folder_holds_one_stack() {
        let temp = tempfile::tempdir().unwrap();
        let _first = DataDir::open(Some(temp.path().to_path_buf())).unwrap();
        assert!(DataDir::open(Some(temp.path().to_path_buf())).is_err());
    }
}
