//! The packages of a release, in the forms in which registries take them. `.ci/publish` publishes them.
//!
//! | package | goes to |
//! |---|---|
//! | `weir-<version>-<arch>-linux.tar.gz`: the release folder | the release on GitHub; its images to a registry |
//! | `weir-<version>.tgz`: the Helm chart | a registry |
//! | `crates/*.crate` | crates.io |
//! | `npm/*.tgz`: the client library | npm |
//! | `sbom.cdx.json`, `THIRD-PARTY-NOTICES.txt`, `SHA256SUMS` | the release |

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use weir_stack::report::{Console, Reporter};
use weir_stack::tools::Helm;
use weir_stack::{command, workspace};

use crate::chart;
use crate::folder::Folder;
use crate::metadata::Metadata;

/// No package is compiled.
const LIMIT: Duration = Duration::from_secs(300);

/// Packs a release into `path`, and replaces earlier packages.
///
/// # Errors
/// A package cannot be made.
pub fn make(path: &Path, release: &Folder, metadata: &Metadata) -> Result<Folder> {
    let packages = Folder::empty(path)?;
    let version = weir_version::VERSION;
    let name = format!("weir-{version}-{}-linux", std::env::consts::ARCH);
    pack(&packages.at(&format!("{name}.tar.gz")), release, &name)?;
    for file in ["sbom.cdx.json", "THIRD-PARTY-NOTICES.txt"] {
        packages.copy(file, &release.at(file))?;
    }
    let helm = Helm::find_or_get(&mut Console)?;
    let chart = release.at(chart::CHART).display().to_string();
    let to = path.display().to_string();
    helm.run(&["package", &chart, "--destination", &to])?;
    pack_crates(&packages, metadata)?;
    pack_npm(&packages)?;
    packages.write_sums()?;
    Ok(packages)
}

/// Prints what `.ci/publish` would do with the packages.
///
/// # Errors
/// It fails.
pub fn dry_run(packages: &Folder) -> Result<String> {
    let root = workspace::root();
    let mut publish = Command::new("bash");
    publish.arg(root.join(".ci/publish")).arg("--dry-run");
    command::succeed(publish.arg(packages.path()), LIMIT)
}

/// A tar without owners and times, so that two builds are identical.
fn pack(to: &Path, release: &Folder, name: &str) -> Result<()> {
    let file = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
    let zip = GzBuilder::new().write(file, Compression::best());
    let mut tar = tar::Builder::new(zip);
    for file in release.files()? {
        let from = release.at(&file);
        let mut content = File::open(&from)?;
        let mut header = tar::Header::new_ustar();
        header.set_metadata_in_mode(&content.metadata()?, tar::HeaderMode::Deterministic);
        header.set_mtime(0);
        let packed = tar.append_data(&mut header, format!("{name}/{file}"), &mut content);
        packed.with_context(|| format!("cannot pack {}", from.display()))?;
    }
    tar.into_inner()?.finish()?.sync_all()?;
    Ok(())
}

fn pack_crates(packages: &Folder, metadata: &Metadata) -> Result<()> {
    let temp = tempfile::tempdir().context("cannot create a folder for crates")?;
    let mut cargo = command::cargo();
    // A release is built from a tag; a dry run also packs what is not committed.
    cargo.args(["package", "--locked", "--no-verify", "--allow-dirty"]);
    for package in metadata.published() {
        cargo.args(["--package", &package.name]);
    }
    cargo.arg("--target-dir").arg(temp.path());
    command::succeed(cargo.current_dir(workspace::root()), LIMIT)?;
    for package in metadata.published() {
        let file = format!("{}-{}.crate", package.name, package.version);
        packages.copy(
            &format!("crates/{file}"),
            &temp.path().join("package").join(&file),
        )?;
    }
    Ok(())
}

/// Packs the client library. npm builds it first, by its script `prepack`.
fn pack_npm(packages: &Folder) -> Result<()> {
    let sdk = workspace::root().join("sdk");
    if !sdk.join("package.json").is_file() {
        Console.line("npm", "not packed: sdk has no package.json");
        return Ok(());
    }
    let npm = command::on_path("npm").context("npm is not on PATH: install Node.js")?;
    let folder = packages.at("npm");
    fs::create_dir_all(&folder)?;
    for arguments in [
        &["ci", "--ignore-scripts", "--no-audit", "--no-fund"][..],
        &["pack", "--pack-destination", &folder.display().to_string()],
    ] {
        let mut npm = Command::new(&npm);
        command::succeed(npm.args(arguments).current_dir(&sdk), LIMIT)?;
    }
    let count = fs::read_dir(&folder)?.count();
    ensure!(count == 1, "npm pack wrote {count} packages");
    Ok(())
}
