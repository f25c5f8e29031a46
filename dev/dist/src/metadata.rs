//! Cargo's dependency graph, and the crates in it that are compiled into the origin, the filters and the native module:
//! with all features of the shipped origin, without build and test dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;
use weir_stack::origin::SHIPPED_FEATURES;
use weir_stack::{command, workspace};

const LIMIT: Duration = Duration::from_secs(120);

/// The used part of `cargo metadata`.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// All crates, including test crates.
    pub packages: Vec<Package>,
    resolve: Resolve,
    workspace_root: PathBuf,
}

/// A crate.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Cargo's own ID, which may contain folders of this machine.
    pub id: String,
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
    /// The SPDX expression, or the older form with `/` for `OR`.
    pub license: Option<String>,
    /// `None` for crates of this workspace.
    pub source: Option<String>,
    /// The path of `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// Its authors, if it names them.
    #[serde(default)]
    pub authors: Vec<String>,
    /// The oldest compiler, if it names one.
    pub rust_version: Option<String>,
    /// The registries that may have it: `None` for all, empty for none.
    pub publish: Option<Vec<String>>,
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

impl NodeDependency {
    fn is_of(&self, kind: Option<&str>) -> bool {
        self.dep_kinds.iter().any(|one| one.kind.as_deref() == kind)
    }
}

impl Package {
    /// The folder of its sources.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("."))
    }
}

impl Metadata {
    /// Runs `cargo metadata`.
    ///
    /// # Errors
    /// `cargo metadata` fails.
    pub fn read() -> Result<Self> {
        let features = SHIPPED_FEATURES
            .split(',')
            .map(|name| format!("weir-origin/{name}"));
        let features = features.collect::<Vec<_>>().join(",");
        let mut cargo = command::cargo();
        cargo
            .args(["metadata", "--format-version=1", "--locked"])
            .args(["--features", &features])
            .args(["--filter-platform", "x86_64-unknown-linux-musl"])
            .current_dir(workspace::root());
        let said = command::succeed(&mut cargo, LIMIT)?;
        serde_json::from_str(&said).context("cargo metadata")
    }

    /// The crate of an ID.
    pub fn package(&self, id: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.id == id)
    }

    /// The crates of this workspace that crates.io gets.
    pub fn published(&self) -> impl Iterator<Item = &Package> {
        let own = self
            .packages
            .iter()
            .filter(|package| package.source.is_none());
        own.filter(|package| package.publish.is_none())
    }

    /// Whether a release contains a binary of this crate.
    pub fn is_shipped(&self, package: &Package) -> bool {
        let is_filter = package
            .manifest_path
            .starts_with(self.workspace_root.join("filters"));
        let is_program = matches!(package.name.as_str(), "weir-origin" | "weir-native");
        package.source.is_none() && (is_filter || is_program)
    }

    /// Shipped crates with their shipped dependencies.
    pub fn shipped_edges(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let shipped = self
            .packages
            .iter()
            .filter(|package| self.is_shipped(package));
        self.edges(shipped, &[None])
    }

    /// Everything that compiles with a crate of this workspace: without test dependencies.
    pub fn compiled_with<'a>(&'a self, package: &'a Package) -> Vec<&'a Package> {
        let edges = self.edges([package].into_iter(), &[None, Some("build")]);
        edges.keys().filter_map(|id| self.package(id)).collect()
    }

    fn edges<'a>(
        &'a self,
        roots: impl Iterator<Item = &'a Package>,
        kinds: &[Option<&str>],
    ) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
        let nodes = self.resolve.nodes.iter();
        let nodes: BTreeMap<&str, &Node> = nodes.map(|node| (&*node.id, node)).collect();
        let mut to_do: Vec<&str> = roots.map(|package| &*package.id).collect();
        let mut edges = BTreeMap::new();
        while let Some(id) = to_do.pop() {
            let Some(node) = nodes.get(id).filter(|_| !edges.contains_key(id)) else {
                continue;
            };
            let is_compiled =
                |needed: &&NodeDependency| kinds.iter().any(|kind| needed.is_of(*kind));
            let needs = node.deps.iter().filter(is_compiled);
            let needs: BTreeSet<&str> = needs.map(|needed| &*needed.pkg).collect();
            to_do.extend(&needs);
            edges.insert(id, needs);
        }
        edges
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An origin with a dependency and a test dependency, and a crate of tests in a folder called `filters`.
    pub(crate) const METADATA: &str = r#"{
        "workspace_root": "/w",
        "packages": [
            { "id": "o", "name": "weir-origin", "version": "0.1.0", "license": "Apache-2.0", "source": null, "manifest_path": "/w/origin/Cargo.toml", "publish": [] },
            { "id": "t", "name": "weir-filter-tests", "version": "0.1.0", "license": "Apache-2.0", "source": null, "manifest_path": "/w/tests/filters/Cargo.toml", "publish": [] },
            { "id": "a", "name": "used", "version": "1.2.3", "license": "MIT/Apache-2.0", "source": "registry", "manifest_path": "/r/used/Cargo.toml" },
            { "id": "b", "name": "only-tests", "version": "1.0.0", "license": null, "source": "registry", "manifest_path": "/r/t/Cargo.toml" }
        ],
        "resolve": { "nodes": [
            { "id": "o", "deps": [
                { "pkg": "a", "dep_kinds": [{ "kind": null }, { "kind": "build" }] },
                { "pkg": "b", "dep_kinds": [{ "kind": "dev" }] }
            ] },
            { "id": "t", "deps": [{ "pkg": "b", "dep_kinds": [{ "kind": null }] }] },
            { "id": "a", "deps": [] },
            { "id": "b", "deps": [] }
        ] }
    }"#;

    #[test]
    fn test_crates_are_not_shipped() {
        let metadata: Metadata = serde_json::from_str(METADATA).unwrap();
        let edges = metadata.shipped_edges();
        assert_eq!(edges.keys().copied().collect::<Vec<_>>(), ["a", "o"]);
    }

    /// `1.88` and `1.88.0` are the same version.
    fn rust_version(package: &Package) -> Option<Vec<u32>> {
        let version = package.rust_version.as_deref()?;
        let numbers = version.split('.').map(|part| part.parse().unwrap());
        Some(numbers.chain([0]).take(3).collect())
    }

    #[test]
    fn oldest_compiler_of_a_crate_suffices_for_its_dependencies() {
        let metadata = Metadata::read().unwrap();
        let own = metadata.packages.iter();
        let mut too_new = Vec::new();
        for package in own.filter(|package| package.source.is_none()) {
            let version = rust_version(package);
            assert!(version.is_some(), "{} has no rust-version", package.name);
            for needed in metadata.compiled_with(package) {
                if rust_version(needed) > version {
                    too_new.push(format!(
                        "{} needs {}, {} of it",
                        needed.name,
                        needed.rust_version.as_deref().unwrap_or_default(),
                        package.name
                    ));
                }
            }
        }
        assert_eq!(too_new, [""; 0]);
    }

    #[test]
    fn only_crates_of_tests_and_tools_need_the_newest_compiler() {
        let metadata = Metadata::read().unwrap();
        for id in metadata.shipped_edges().keys() {
            let package = metadata.package(id).unwrap();
            let is_own = package.source.is_none();
            let is_old = rust_version(package) < Some(vec![1, 95, 0]);
            assert!(!is_own || is_old, "{}", package.name);
        }
    }
}
