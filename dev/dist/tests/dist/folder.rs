//! A release as a user sees it who has only the folder, Envoy and Redis.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use weir_dist::binaries::Build;
use weir_dist::folder::Folder;
use weir_dist::{five_minutes, make, oci};
use weir_stack::command;
use weir_stack::report::Console;
use weir_stack::tools::{ENVOY_VERSION, ENVOY_VERSIONS, Envoy};

const LIMIT: Duration = Duration::from_secs(60);

/// The files of a release without the parts that this build skips.
const FILES: [&str; 14] = [
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "Dockerfile",
    "compose.yaml",
    "systemd/weir-origin.service",
    "helm/weir/files/envoy.yaml",
    "envoy/all.yaml",
    "envoy/kubernetes/istio.yaml",
    "docs/install.md",
    "observe/prometheus/prometheus.yml",
    "oci/index.json",
    "sbom.cdx.json",
    "THIRD-PARTY-NOTICES.txt",
];

#[tokio::test(flavor = "multi_thread")]
async fn dist_folder_runs_limits_links_and_sales_on_each_envoy() -> Result<()> {
    let temp = tempfile::tempdir()?;
    let folder = make(&temp.path().join("dist"), Build::Fast)?;
    oci::check(&folder)?;
    has_everything(&folder)?;
    for version in versions() {
        let envoy = Envoy::of_version(version, &mut Console)?;
        assert_eq!(envoy.version, version);
        let done = five_minutes::check(&folder, &envoy).await;
        done.map_err(|error| error.context(format!("on Envoy {version}")))?;
    }
    Ok(())
}

/// The goal that a newcomer gets a limit, a link and a sale in.
const FIVE_MINUTES: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn one_command_runs_everything_with_an_empty_path() -> Result<()> {
    let temp = tempfile::tempdir()?;
    let folder = make(&temp.path().join("dist"), Build::Fast)?;
    let envoy = Envoy::of_version(ENVOY_VERSION, &mut Console)?;
    let took = five_minutes::check_up(&folder, &envoy).await?;
    eprintln!("limits, a link and a sale {took:?} after the command");
    assert!(took < FIVE_MINUTES, "{took:?}");
    Ok(())
}

/// systemd verifies the unit, with the release's binary in place.
#[test]
fn systemd_accepts_the_unit() -> Result<()> {
    let Some(systemd) = command::on_path("systemd-analyze") else {
        eprintln!("left out: systemd-analyze is not on PATH");
        return Ok(());
    };
    let unit = include_str!("../../files/systemd/weir-origin.service");
    let here = "ExecStart=/usr/local/bin/weir-origin";
    assert!(unit.contains(here));
    let temp = tempfile::tempdir()?;
    let file = temp.path().join("weir-origin.service");
    std::fs::write(&file, unit.replace(here, "ExecStart=/bin/true"))?;
    let mut verify = Command::new(systemd);
    let done = command::run(verify.arg("verify").arg(&file), LIMIT)?;
    assert!(
        done.status.success() && done.stderr.is_empty(),
        "{}",
        done.stderr
    );
    Ok(())
}

/// The wheels of older versions are pinned for only one processor.
fn versions() -> Vec<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => ENVOY_VERSIONS.to_vec(),
        arch => {
            eprintln!("left out: all Envoys but {ENVOY_VERSION}, on {arch}");
            vec![ENVOY_VERSION]
        }
    }
}

fn has_everything(folder: &Folder) -> Result<()> {
    for name in FILES {
        assert!(folder.at(name).is_file(), "{name}");
    }
    for name in [
        "README.md",
        "compose.yaml",
        "Dockerfile",
        "helm/weir/Chart.yaml",
    ] {
        let text = std::fs::read_to_string(folder.at(name))?;
        assert!(!text.contains("@VERSION@"), "{name}");
    }
    let filters = std::fs::read_dir(folder.at("filters"))?;
    assert!(filters.count() >= 7);
    Ok(())
}

/// The table of versions in docs/install.md lists the tested versions.
#[test]
fn documents_name_the_tested_envoy_versions() {
    let docs = include_str!("../../../../docs/install.md");
    for version in ENVOY_VERSIONS {
        assert!(docs.contains(&format!("| {version} |")), "{version}");
    }
}
