//! Builds and checks a release folder.
//!
//! | module | |
//! |---|---|
//! | [`folder`] | folder layout; checksums |
//! | [`binaries`] | filters, origin, native module |
//! | [`twice`] | reproducibility of the filters |
//! | [`metadata`] | cargo's dependency graph |
//! | [`sbom`] | bill of materials |
//! | [`notices`] | licenses of third-party code |
//! | [`oci`] | the filters as OCI images, written and read back |
//! | [`chart`] | the Helm chart, checked with helm and the Kubernetes schemas |
//! | [`packages`] | packages for registries |
//! | [`five_minutes`] | a user's first five minutes with only this folder |

pub mod binaries;
pub mod chart;
pub mod five_minutes;
pub mod folder;
pub mod metadata;
pub mod notices;
pub mod oci;
pub mod packages;
pub mod sbom;
pub mod twice;

use std::path::Path;

use anyhow::Result;

use crate::binaries::Build;
use crate::folder::Folder;
use crate::metadata::Metadata;

/// Builds a release in `path`, and replaces an earlier one.
///
/// # Errors
/// A part cannot be built or written.
pub fn make(path: &Path, build: Build) -> Result<Folder> {
    let folder = Folder::empty(path)?;
    for filter in binaries::filters()? {
        folder.write(&format!("filters/{}.wasm", filter.name), &filter.bytes)?;
        oci::add(&folder, &filter)?;
    }
    folder.copy_program(binaries::ORIGIN, &build.origin()?)?;
    binaries::check_version(&folder, build)?;
    if let Some(library) = build.native()? {
        folder.copy("native/libweir_native.so", &library)?;
    }
    folder.copy_documents()?;
    let metadata = Metadata::read()?;
    folder.write("sbom.cdx.json", sbom::make(&metadata)?.as_bytes())?;
    folder.write(
        "THIRD-PARTY-NOTICES.txt",
        notices::make(&metadata)?.as_bytes(),
    )?;
    chart::write(&folder)?;
    folder.write_sums()?;
    Ok(folder)
}
