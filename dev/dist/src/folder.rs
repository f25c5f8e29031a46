//! The layout of a release folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use weir_stack::workspace;

/// The version placeholder in the files of `dev/dist/files`.
const VERSION_PLACE: &str = "@VERSION@";

/// The file with the checksums of all other files.
pub const SUMS: &str = "SHA256SUMS";

/// A release folder.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder, and deletes an earlier release.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn empty(path: &Path) -> Result<Self> {
        let reply = || format!("cannot make {}", path.display());
        if path.exists() {
            fs::remove_dir_all(path).with_context(reply)?;
        }
        fs::create_dir_all(path).with_context(reply)?;
        Ok(Self(path.to_path_buf()))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a complete file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        workspace::write_atomic(&self.at(name), bytes)
    }

    /// Copies a non-executable file.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn copy(&self, name: &str, from: &Path) -> Result<()> {
        let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.write(name, &bytes)
    }

    /// Copies an executable file.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn copy_program(&self, name: &str, from: &Path) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        self.copy(name, from)?;
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Copies the files that exist in the sources: Envoy files, documents, and files for systemd and containers.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn copy_documents(&self) -> Result<()> {
        let root = workspace::root();
        for name in ["LICENSE", "CHANGELOG.md"] {
            self.copy(name, &root.join(name))?;
        }
        self.copy_all("envoy", &root.join("envoy"))?;
        self.copy_all("docs", &root.join("docs"))?;
        self.copy_all("observe", &root.join("observe"))?;
        self.copy_all(".", &root.join("dev/dist/files"))
    }

    /// Copies a folder and replaces the version placeholder.
    fn copy_all(&self, name: &str, from: &Path) -> Result<()> {
        for file in files(from)? {
            let path = from.join(&file);
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let bytes = match String::from_utf8(bytes) {
                Ok(text) => text
                    .replace(VERSION_PLACE, weir_version::VERSION)
                    .into_bytes(),
                Err(binary) => binary.into_bytes(),
            };
            self.write(&format!("{name}/{file}"), &bytes)?;
        }
        Ok(())
    }

    /// The relative paths of all files, sorted.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn files(&self) -> Result<Vec<String>> {
        files(&self.0)
    }

    /// Writes the checksums of all files in the format of `sha256sum --check`. Returns their number.
    ///
    /// # Errors
    /// A file cannot be read, or the checksums cannot be written.
    pub fn write_sums(&self) -> Result<usize> {
        let files = self.files()?;
        let mut sums = String::new();
        for file in &files {
            sums += &format!("{}  {file}\n", sha256_hex(&fs::read(self.at(file))?));
        }
        self.write(SUMS, sums.as_bytes())?;
        Ok(files.len())
    }

    /// Verifies all files against the checksums, and that each file has one.
    ///
    /// # Errors
    /// Names the file that differs.
    pub fn check_sums(&self) -> Result<()> {
        let sums = fs::read_to_string(self.at(SUMS))?;
        let count = self.files()?.len();
        ensure!(
            count == sums.lines().count() + 1,
            "{count} files, but {SUMS} does not have one checksum per file"
        );
        for line in sums.lines() {
            let (sum, file) = line.split_once("  ").context("line without a checksum")?;
            let is_right = sha256_hex(&fs::read(self.at(file))?) == sum;
            ensure!(is_right, "{file} does not match its checksum in {SUMS}");
        }
        Ok(())
    }
}

/// The relative paths of all files below a folder, sorted.
fn files(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        let entries =
            fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder)?.to_str();
            found.push(name.context("a file name is not UTF-8")?.to_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// The SHA-256 digest in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_is_detected_by_its_checksum() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::empty(&temp.path().join("dist")).unwrap();
        folder.write("a/b", b"one").unwrap();
        folder.write("c", b"two").unwrap();
        assert_eq!(folder.write_sums().unwrap(), 2);
        folder.check_sums().unwrap();
        folder.write("more", b"").unwrap();
        assert!(folder.check_sums().is_err());
        fs::remove_file(folder.at("more")).unwrap();
        folder.write("a/b", b"other").unwrap();
        let error = folder.check_sums().unwrap_err().to_string();
        assert!(error.contains("a/b"), "{error}");
    }

    #[test]
    fn earlier_release_leaves_nothing_in_the_next() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("dist");
        Folder::empty(&path).unwrap().write("old", b"").unwrap();
        let folder = Folder::empty(&path).unwrap();
        assert!(!folder.at("old").exists());
    }
}
