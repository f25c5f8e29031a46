//! The packages of a release, and the commands that publish them.

use std::fs;

use anyhow::Result;
use weir_dist::binaries::Filter;
use weir_dist::folder::Folder;
use weir_dist::metadata::Metadata;
use weir_dist::{chart, notices, oci, packages, sbom};
use weir_stack::report::Console;
use weir_stack::tools::Helm;

/// A release without compiled code.
fn release(folder: Folder, metadata: &Metadata) -> Result<Folder> {
    let filter = Filter {
        name: "ratelimit".to_owned(),
        bytes: b"\0asm".to_vec(),
    };
    folder.write("filters/ratelimit.wasm", &filter.bytes)?;
    oci::add(&folder, &filter)?;
    folder.copy_documents()?;
    chart::write(&folder)?;
    folder.write("sbom.cdx.json", sbom::make(metadata)?.as_bytes())?;
    folder.write(
        "THIRD-PARTY-NOTICES.txt",
        notices::make(metadata)?.as_bytes(),
    )?;
    folder.write_sums()?;
    Ok(folder)
}

#[test]
fn dry_run_publishes_every_package_of_a_release() -> Result<()> {
    let helm = Helm::find_or_get(&mut Console);
    if crate::found(helm, "1 test of packages").is_none() {
        return Ok(());
    }
    let (temp, metadata) = (tempfile::tempdir()?, Metadata::read()?);
    let release = release(Folder::empty(&temp.path().join("dist"))?, &metadata)?;
    let packed = packages::make(&temp.path().join("packages"), &release, &metadata)?;
    packed.check_sums()?;
    let commands = packages::dry_run(&packed)?;
    for file in packed.files()? {
        let name = match file.strip_prefix("crates/") {
            Some(name) => name.split("-0.").next().unwrap_or(name),
            None => &file,
        };
        assert!(commands.contains(name), "{file}: {commands}");
    }
    for command in [
        "docker buildx build --target origin ",
        "docker buildx build --target gateway ",
        "oras cp --from-oci-layout ",
        "helm push ",
        "cargo publish ",
        "cosign sign --yes ghcr.io/owner/weir/filters@",
        "cosign sign-blob ",
        "gh release create v0.1.0 ",
    ] {
        assert!(commands.contains(command), "{command}: {commands}");
    }
    let again = packages::make(&temp.path().join("again"), &release, &metadata)?;
    let archives = packed.files()?;
    let archive = archives.iter().find(|name| name.ends_with(".tar.gz"));
    let archive = archive.map(|name| (fs::read(packed.at(name)), fs::read(again.at(name))));
    assert!(matches!(archive, Some((Ok(one), Ok(other))) if one == other));
    Ok(())
}

#[test]
fn changed_package_is_not_published() -> Result<()> {
    let temp = tempfile::tempdir()?;
    let packages = Folder::empty(&temp.path().join("packages"))?;
    packages.write("weir-0.1.0.tgz", b"chart")?;
    packages.write_sums()?;
    packages.write("weir-0.1.0.tgz", b"another")?;
    let error = packages::dry_run(&packages).unwrap_err();
    assert!(
        format!("{error:#}").contains("weir-0.1.0.tgz: FAILED"),
        "{error:#}"
    );
    Ok(())
}
