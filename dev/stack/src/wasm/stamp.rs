//! Detects outdated filters: a fingerprint of all their inputs, and the hash of each output file, in
//! `target/weir/wasm.stamp`.

use super::cargo::Settings;
use super::{BuiltFilter, hex, sha256_of};
use crate::tools::WasmToolchain;
use crate::workspace::write_atomic;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Files that every filter depends on, relative to the root of the workspace.
const FILES: [&str; 3] = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"];

/// Folders of which every file counts.
const FOLDERS: [&str; 2] = ["crates", "filters"];

/// The sources of this module, which also affect the output.
const OWN_SOURCES: [&str; 4] = [
    include_str!("mod.rs"),
    include_str!("cargo.rs"),
    include_str!("prune.rs"),
    include_str!("stamp.rs"),
];

#[derive(Debug, Serialize, Deserialize)]
struct Stamp {
    fingerprint: String,
    filters: Vec<ModuleStamp>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ModuleStamp {
    name: String,
    sha256: String,
    size_raw: u64,
    size_final: u64,
}

/// A hash over all inputs of the filters.
pub(super) fn fingerprint(
    root: &Path,
    toolchain: &WasmToolchain,
    settings: &Settings,
) -> Result<String> {
    let mut hasher = Sha256::new();
    for part in OWN_SOURCES {
        add(&mut hasher, part.as_bytes());
    }
    add(&mut hasher, toolchain.rustc_version.as_bytes());
    add(&mut hasher, format!("{:?}", toolchain.source).as_bytes());
    add(&mut hasher, settings.identity().as_bytes());
    for file in inputs(root)? {
        let name = file.strip_prefix(root).unwrap_or(&file);
        add(&mut hasher, name.as_os_str().as_encoded_bytes());
        let bytes = std::fs::read(&file);
        add(
            &mut hasher,
            &bytes.with_context(|| format!("cannot read {}", file.display()))?,
        );
    }
    Ok(hex(&hasher.finalize()))
}

/// Hashes the length first, so that different lists of parts have different bytes.
fn add(hasher: &mut Sha256, part: &[u8]) {
    hasher.update((part.len() as u64).to_le_bytes());
    hasher.update(part);
}

fn inputs(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = FILES.iter().map(|name| root.join(name)).collect();
    files.retain(|file| file.is_file());
    for folder in FOLDERS {
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// Collects all files below `dir`, except hidden ones and a nested `target`.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// The filters, if they were built from `fingerprint` and have not changed since.
pub(super) fn up_to_date(out: &Path, fingerprint: &str) -> Option<Vec<BuiltFilter>> {
    let stamp: Stamp = serde_json::from_slice(&std::fs::read(file(out)).ok()?).ok()?;
    if stamp.fingerprint != fingerprint {
        return None;
    }
    let built = |stamped: ModuleStamp| {
        let path = out.join(format!("{}.wasm", stamped.name));
        let same = sha256_of(&path).is_ok_and(|actual| actual == stamped.sha256);
        same.then_some(BuiltFilter {
            name: stamped.name,
            path,
            size_raw: stamped.size_raw,
            size_final: stamped.size_final,
        })
    };
    stamp.filters.into_iter().map(built).collect()
}

/// Removes the stamp before a build, because a build that fails or is killed must not leave one.
pub(super) fn remove(out: &Path) -> Result<()> {
    match std::fs::remove_file(file(out)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file(out).display()))
        }
        _ => Ok(()),
    }
}

pub(super) fn write(out: &Path, fingerprint: &str, filters: &[BuiltFilter]) -> Result<()> {
    let stamped = |filter: &BuiltFilter| -> Result<ModuleStamp> {
        Ok(ModuleStamp {
            name: filter.name.clone(),
            sha256: sha256_of(&filter.path)?,
            size_raw: filter.size_raw,
            size_final: filter.size_final,
        })
    };
    let stamp = Stamp {
        fingerprint: fingerprint.to_owned(),
        filters: filters.iter().map(stamped).collect::<Result<_>>()?,
    };
    write_atomic(&file(out), serde_json::to_string_pretty(&stamp)?.as_bytes())
}

fn file(out: &Path) -> PathBuf {
    out.join("wasm.stamp")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Source;

    /// A workspace with one filter, and an output folder with its module and stamp.
    struct Built {
        root: tempfile::TempDir,
        toolchain: WasmToolchain,
    }

    impl Built {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let built = Self {
                root,
                toolchain: WasmToolchain {
                    cargo: PathBuf::from("cargo"),
                    rustc: PathBuf::from("rustc"),
                    rustc_version: "rustc 1.0.0".to_owned(),
                    std_sources: PathBuf::from("/src"),
                    source: Source::Sysroot,
                },
            };
            built.write("Cargo.toml", "[workspace]");
            built.write("crates/base/src/lib.rs", "// base");
            built.write("dev/stack/src/lib.rs", "// stack");
            built.write("filters/gate/src/lib.rs", "// gate");
            built.write("out/gate.wasm", "module");
            let filter = BuiltFilter {
                name: "gate".to_owned(),
                path: built.out().join("gate.wasm"),
                size_raw: 6,
                size_final: 6,
            };
            write(&built.out(), &built.fingerprint(), &[filter]).unwrap();
            built
        }

        fn write(&self, name: &str, text: &str) {
            write_atomic(&self.root.path().join(name), text.as_bytes()).unwrap();
        }

        fn out(&self) -> PathBuf {
            self.root.path().join("out")
        }

        fn fingerprint(&self) -> String {
            let root = self.root.path();
            let settings = super::super::cargo::settings(&self.toolchain, root).unwrap();
            fingerprint(root, &self.toolchain, &settings).unwrap()
        }

        fn is_up_to_date(&self) -> bool {
            up_to_date(&self.out(), &self.fingerprint()).is_some()
        }
    }

    #[test]
    fn fresh_build_is_up_to_date_and_other_crates_are_ignored() {
        let built = Built::new();
        assert!(built.is_up_to_date());
        built.write("dev/stack/src/lib.rs", "// changed");
        built.write("filters/gate/target/x", "not an input");
        assert!(built.is_up_to_date());
    }

    #[test]
    fn changed_input_makes_the_filters_stale() {
        for (file, text) in [
            ("filters/gate/src/lib.rs", "// changed"),
            ("filters/gate/src/new.rs", ""),
            ("filters/another/Cargo.toml", ""),
            ("crates/base/src/lib.rs", "// changed"),
            ("crates/text/texts/de.json", "{}"),
            ("Cargo.lock", "another version"),
        ] {
            let built = Built::new();
            built.write(file, text);
            assert!(!built.is_up_to_date(), "{file}");
        }
    }

    #[test]
    fn another_compiler_makes_the_filters_stale() {
        let mut built = Built::new();
        built.toolchain.rustc_version = "rustc 1.0.1".to_owned();
        assert!(!built.is_up_to_date());
    }

    #[test]
    fn touched_or_removed_module_is_not_reused() {
        let built = Built::new();
        built.write("out/gate.wasm", "another module");
        assert!(!built.is_up_to_date());
        std::fs::remove_file(built.out().join("gate.wasm")).unwrap();
        assert!(!built.is_up_to_date());
    }

    #[test]
    fn unfinished_build_has_no_stamp() {
        let built = Built::new();
        remove(&built.out()).unwrap();
        assert!(!built.is_up_to_date());
        remove(&built.out()).unwrap();
    }
}
