//! The folder that a release is: made, and tried as it is.
//!
//! | module | |
//! |---|---|
//! | [`folder`] | what is where in it; sums |
//! | [`binaries`] | filters, origin, native module |
//! | [`twice`] | whether another build gives the same filters |
//! | [`sbom`] | what they are made of |
//! | [`oci`] | the filters as OCI images, written and read back |
//! | [`chart`] | the Helm chart, and what helm and the schemas of Kubernetes say of it |
//! | [`five_minutes`] | the first five minutes of somebody who has only this folder |

pub mod binaries;
pub mod chart;
pub mod five_minutes;
pub mod folder;
pub mod oci;
pub mod sbom;
pub mod twice;

use std::path::Path;

use anyhow::Result;

use crate::binaries::Build;
use crate::folder::Folder;

/// Makes a release in `path`, in the place of what is there.
///
/// # Errors
/// When something cannot be built or written.
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
    folder.write("sbom.cdx.json", sbom::make()?.as_bytes())?;
    chart::write(&folder)?;
    folder.write_sums()?;
    Ok(folder)
}
