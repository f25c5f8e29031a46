//! The bill of materials of a release in CycloneDX 1.5, from cargo's dependency graph.
//!
//! It contains the crates that are compiled into the origin, the filters and the native module, with all features of
//! the shipped origin. It excludes build and test dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cyclonedx_bom::models::component::{Classification, Component, Components};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::prelude::*;
use serde::Deserialize;
use weir_stack::origin::SHIPPED_FEATURES;
use weir_stack::{command, workspace};

const LIMIT: Duration = Duration::from_secs(120);

/// The used part of `cargo metadata`.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// `None` for crates of this workspace.
    source: Option<String>,
    manifest_path: String,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDependency>,
}

#[derive(Debug, Deserialize)]
struct NodeDependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    /// `None` for normal dependencies; set for build and dev dependencies.
    kind: Option<String>,
}

impl Package {
    fn is_shipped(&self) -> bool {
        let is_filter = self.source.is_none() && self.manifest_path.contains("/filters/");
        is_filter || matches!(self.name.as_str(), "weir-origin" | "weir-native")
    }
}

/// Creates the bill of materials as JSON.
///
/// # Errors
/// `cargo metadata` fails, or the bill is invalid.
pub fn make() -> Result<String> {
    let features = SHIPPED_FEATURES
        .split(',')
        .map(|name| format!("weir-origin/{name}"));
    let features = features.collect::<Vec<_>>().join(",");
    let mut cargo = command::cargo();
    cargo
        .args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--features",
            &features,
        ])
        .args(["--filter-platform", "x86_64-unknown-linux-musl"])
        .current_dir(workspace::root());
    let output = command::succeed(&mut cargo, LIMIT)?;
    json_of(&serde_json::from_str(&output).context("cargo metadata")?)
}

fn json_of(metadata: &Metadata) -> Result<String> {
    let edges = shipped_edges(metadata);
    let packages = metadata.packages.iter();
    let packages = packages.filter(|package| edges.contains_key(package.id.as_str()));
    let components = packages.map(component).collect();
    let dependencies = edges.iter().map(|(id, needs)| Dependency {
        dependency_ref: reference(metadata, id),
        dependencies: needs.iter().map(|id| reference(metadata, id)).collect(),
    });
    let bom = Bom {
        components: Some(Components(components)),
        dependencies: Some(Dependencies(dependencies.collect())),
        // A random number would make builds differ.
        serial_number: None,
        ..Bom::default()
    };
    let validated = bom.validate_version(SpecVersion::V1_5);
    ensure!(
        validated.passed(),
        "the bill of materials is invalid: {validated:?}"
    );
    let mut json = Vec::new();
    bom.output_as_json_v1_5(&mut json)?;
    Ok(String::from_utf8(json)?)
}

/// Shipped crates with their shipped dependencies.
fn shipped_edges(metadata: &Metadata) -> BTreeMap<&str, BTreeSet<&str>> {
    let nodes: BTreeMap<&str, &Node> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (&*node.id, node))
        .collect();
    let roots = metadata
        .packages
        .iter()
        .filter(|package| package.is_shipped());
    let mut to_do: Vec<&str> = roots.map(|package| &*package.id).collect();
    let mut edges = BTreeMap::new();
    while let Some(id) = to_do.pop() {
        let Some(node) = nodes.get(id).filter(|_| !edges.contains_key(id)) else {
            continue;
        };
        let needs = node
            .deps
            .iter()
            .filter(|dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        let needs: BTreeSet<&str> = needs.map(|dependency| &*dependency.pkg).collect();
        to_do.extend(&needs);
        edges.insert(id, needs);
    }
    edges
}

fn component(package: &Package) -> Component {
    let reference = reference_of(package);
    let kind = match package.is_shipped() {
        true => Classification::Application,
        false => Classification::Library,
    };
    let mut component = Component::new(kind, &package.name, &package.version, Some(reference));
    component.purl = Purl::new("cargo", &package.name, &package.version).ok();
    let license = package
        .license
        .as_deref()
        .map(|license| license.replace('/', " OR "));
    let license = license.and_then(|text| SpdxExpression::try_from(text).ok());
    component.licenses = license.map(|license| Licenses(vec![LicenseChoice::Expression(license)]));
    component
}

fn reference(metadata: &Metadata, id: &str) -> String {
    let package = metadata.packages.iter().find(|package| package.id == id);
    package.map_or_else(|| id.to_owned(), reference_of)
}

/// A reference without the builder's folders, which cargo's own ID contains.
fn reference_of(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "packages": [
            { "id": "o", "name": "weir-origin", "version": "0.1.0", "license": "Apache-2.0", "source": null, "manifest_path": "/w/origin/Cargo.toml" },
            { "id": "a", "name": "used", "version": "1.2.3", "license": "MIT/Apache-2.0", "source": "registry", "manifest_path": "/r/used/Cargo.toml" },
            { "id": "b", "name": "only-tests", "version": "1.0.0", "license": null, "source": "registry", "manifest_path": "/r/t/Cargo.toml" }
        ],
        "resolve": { "nodes": [
            { "id": "o", "deps": [
                { "pkg": "a", "dep_kinds": [{ "kind": null }, { "kind": "build" }] },
                { "pkg": "b", "dep_kinds": [{ "kind": "dev" }] }
            ] },
            { "id": "a", "deps": [] },
            { "id": "b", "deps": [] }
        ] }
    }"#;

    #[test]
    fn compiled_crates_are_listed_with_license_and_tests_are_not() {
        let json = json_of(&serde_json::from_str(METADATA).unwrap()).unwrap();
        assert_eq!(
            json,
            json_of(&serde_json::from_str(METADATA).unwrap()).unwrap()
        );
        let bom: serde_json::Value = serde_json::from_str(&json).unwrap();
        let names: Vec<_> = bom["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["weir-origin", "used"]);
        assert_eq!(bom["components"][1]["purl"], "pkg:cargo/used@1.2.3");
        assert_eq!(
            bom["components"][1]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert_eq!(bom["bomFormat"], "CycloneDX");
        assert!(
            !json.contains("only-tests") && !json.contains("/w/origin"),
            "{json}"
        );
    }
}
