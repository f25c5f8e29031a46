//! The images of the `Dockerfile`, built by BuildKit as `docker build` does, and the compose file, parsed by Compose.
//!
//! No registry is used: a local folder replaces Envoy's image.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use weir_dist::binaries::Build;
use weir_dist::make;
use weir_stack::command;
use weir_stack::tools::{BuildKit, ENVOY_VERSION, docker_compose};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn both_images_are_built_with_everything_they_run() -> Result<()> {
    let Some(kit) = crate::found(BuildKit::find(), "1 test of the Dockerfile") else {
        return Ok(());
    };
    let temp = tempfile::tempdir()?;
    let folder = make(&temp.path().join("dist"), Build::Fast)?;
    let builder = kit.start(&temp.path().join("buildkit")).await?;
    let out = |name: &str| temp.path().join(name);
    let to = |kind: &str, name: &str| {
        vec![
            "--output".into(),
            format!("type={kind},dest={}", out(name).display()),
        ]
    };

    builder.build(folder.path(), "origin", &to("local", "origin"))?;
    let program = out("origin").join("bin/weir-origin");
    assert_eq!(fs::read(&program)?, fs::read(folder.at("bin/weir-origin"))?);
    let output = command::succeed(Command::new(&program).arg("--version"), LIMIT)?;
    assert!(output.starts_with("weir-origin "), "{output}");
    assert!(out("origin").join("var/lib/weir").is_dir());
    let mut layout = to("oci,tar=false", "layout");
    layout.push("--no-cache".into());
    builder.build(folder.path(), "origin", &layout)?;
    let config = &config_of(&out("layout"))?["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], json!(["/bin/weir-origin"]));
    assert_eq!(config["WorkingDir"], "/var/lib/weir");

    fs::create_dir(out("envoy"))?;
    fs::write(out("envoy").join("base"), "")?;
    let mut gateway = to("local", "gateway");
    let base = out("envoy");
    gateway.extend([
        "--local".into(),
        format!("envoy={}", base.display()),
        "--opt".into(),
        format!("context:envoyproxy/envoy:v{ENVOY_VERSION}=local:envoy"),
    ]);
    builder.build(folder.path(), "gateway", &gateway)?;
    assert!(out("gateway").join("base").is_file());
    for filter in fs::read_dir(folder.at("filters"))? {
        let name = filter?.file_name();
        let copied = out("gateway").join("weir/filters").join(&name);
        assert!(copied.is_file(), "{name:?}");
    }
    Ok(())
}

/// The configuration of the image in an OCI layout.
fn config_of(layout: &Path) -> Result<Value> {
    let blob = |digest: &Value| {
        let digest = digest.as_str().context("no digest")?.replace(':', "/");
        read(&layout.join("blobs").join(digest))
    };
    let index = read(&layout.join("index.json"))?;
    let mut manifest = blob(&index["manifests"][0]["digest"])?;
    // One image per platform, and their attestations.
    if manifest["manifests"].is_array() {
        manifest = blob(&manifest["manifests"][0]["digest"])?;
    }
    blob(&manifest["config"]["digest"])
}

fn read(file: &Path) -> Result<Value> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// As the file documents: `weir-origin init`, then `docker compose`.
#[test]
fn compose_accepts_its_file_with_the_output_of_init() -> Result<()> {
    let Some(compose) = crate::found(docker_compose(), "1 test of compose.yaml") else {
        return Ok(());
    };
    let temp = tempfile::tempdir()?;
    let folder = make(&temp.path().join("dist"), Build::Fast)?;
    let mut init = Command::new(folder.at("bin/weir-origin"));
    init.current_dir(folder.path());
    init.args(["init", "shop", "--for", "all", "--filters", "/weir/filters"]);
    command::succeed(&mut init, LIMIT)?;
    let mut config = Command::new(compose);
    config.current_dir(folder.path());
    config.args(["config", "--format", "json"]);
    let services =
        &serde_json::from_str::<Value>(&command::succeed(&mut config, LIMIT)?)?["services"];
    let variables = &services["origin"]["environment"];
    for name in ["WEIR_CLAIM_SECRET", "WEIR_ADMIN_TOKEN"] {
        assert!(variables[name].is_string(), "{name}");
    }
    assert_eq!(services["origin"]["build"]["target"], "origin");
    for service in ["gateway", "origin"] {
        for volume in services[service]["volumes"].as_array().context("volumes")? {
            let source = volume["source"].as_str().context("source")?;
            let is_there = volume["type"] != "bind" || Path::new(source).exists();
            assert!(is_there, "{service}: {source}");
        }
    }
    Ok(())
}
