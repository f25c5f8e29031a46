//! Runs a nested cargo that builds every package under `filters/`.

use super::{BuiltFilter, Messages, prune};
use crate::command;
use crate::tools::{Source, TARGET, WasmToolchain};
use crate::workspace::{self, write_atomic};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The profile in the root `Cargo.toml`.
const PROFILE: &str = "wasm";

/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const FLAG_SEPARATOR: &str = "\u{1f}";

/// Environment variables that the build keeps. Other `CARGO_*` and `RUST*` variables could change the output
/// (`RUSTFLAGS`, `CARGO_PROFILE_…`) or its location (`CARGO_TARGET_DIR`).
const KEPT_VARIABLES: [&str; 5] = [
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "CARGO_TERM_COLOR",
    "RUST_BACKTRACE",
];

/// Prefixes of more variables to keep: settings for registry access.
const KEPT_PREFIXES: [&str; 4] = [
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTR",
    "CARGO_SOURCE_",
];

/// The settings of the nested cargo, except its location.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    rustflags: Vec<String>,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Settings {
    /// The settings that can change the output's bytes. Folder names cannot, because the flags remap them.
    pub(super) fn identity(&self) -> String {
        let remapped_to: Vec<_> = self
            .rustflags
            .iter()
            .filter_map(|flag| flag.rsplit_once('='))
            .map(|(_, to)| to)
            .collect();
        format!("{remapped_to:?} {:?} {:?}", self.arguments, self.variables)
    }
}

pub(super) fn settings(toolchain: &WasmToolchain, root: &Path) -> Result<Settings> {
    let mut arguments = ["build", "--locked", "--keep-going"]
        .map(str::to_owned)
        .to_vec();
    arguments.push(format!("--profile={PROFILE}"));
    arguments.push(format!("--target={TARGET}"));
    arguments.push("--message-format=json-render-diagnostics".to_owned());
    let mut variables = Vec::new();
    if let Source::BuildStd { linker } = &toolchain.source {
        arguments.push("-Zbuild-std=std,panic_abort".to_owned());
        // Debian's compiler is a stable one, which accepts -Z only with this variable.
        variables.push(("RUSTC_BOOTSTRAP", "1".to_owned()));
        let linker = linker.to_str().context("the linker's path is not UTF-8")?;
        variables.push((
            "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER",
            linker.to_owned(),
        ));
    }
    Ok(Settings {
        rustflags: remaps(toolchain, root),
        arguments,
        variables,
    })
}

/// Panic messages contain source paths. These flags make the paths equal on every machine, which also keeps the
/// builder's folders out of shipped files.
fn remaps(toolchain: &WasmToolchain, root: &Path) -> Vec<String> {
    [
        (root.to_path_buf(), "/weir"),
        (cargo_home(), "/cargo"),
        (toolchain.std_sources.clone(), "/rust"),
    ]
    .into_iter()
    .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
    .collect()
}

fn cargo_home() -> PathBuf {
    let home = || std::env::home_dir().unwrap_or_default().join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(home, PathBuf::from)
}

/// The folder of the filters' packages in the workspace.
pub(super) const FILTERS: &str = "filters";
/// The folder of the benchmark peers' packages.
pub(super) const PEERS: &str = "bench/peers";

/// The folder of the examples' packages.
pub(super) const EXAMPLES: &str = "docs/examples";

/// A module to build: a package, or one of its variants.
#[derive(Debug)]
struct Filter {
    /// The name of the module's file.
    name: String,
    /// The package's folder, relative to the workspace's root.
    folder: PathBuf,
    package: String,
    features: Vec<String>,
    callbacks: Vec<String>,
}

/// The manifest's section `[package.metadata.weir]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WeirMetadata {
    callbacks: Vec<String>,
    /// Additional modules of the package, by name.
    #[serde(default)]
    variants: BTreeMap<String, Variant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    features: Vec<String>,
    /// Callbacks in addition to those of the package.
    callbacks: Vec<String>,
}

/// Builds all packages of the folder `home` into `out`. If one fails, its file is removed, and the others are still
/// written.
pub(super) fn build(
    toolchain: &WasmToolchain,
    settings: &Settings,
    root: &Path,
    home: &str,
    out: &Path,
    messages: Messages,
) -> Result<Vec<BuiltFilter>> {
    let filters = discover(toolchain, root, home)?;
    let (variants, plain): (Vec<_>, Vec<_>) = filters
        .iter()
        .partition(|filter| !filter.features.is_empty());
    let mut built = Vec::new();
    let mut errors = Vec::new();
    // In one run, cargo would build everything with the union of the features.
    let runs = std::iter::once(plain).chain(variants.into_iter().map(|variant| vec![variant]));
    for together in runs {
        let mut cargo = cargo(toolchain, root);
        cargo
            .args(&settings.arguments)
            .envs(settings.variables.iter().map(|(name, value)| (name, value)))
            .env(
                "CARGO_ENCODED_RUSTFLAGS",
                settings.rustflags.join(FLAG_SEPARATOR),
            )
            .env("CARGO_TARGET_DIR", workspace::out_dir().join("cargo"));
        for filter in &together {
            cargo.args(["-p", &filter.package]);
            cargo.args(filter.features.iter().flat_map(|name| ["-F", name]));
        }
        let (compiled, failure) = run(cargo, messages)?;
        errors.extend(failure);
        for filter in together {
            match finish_or_remove(filter, &compiled, out) {
                Ok(filter) => built.extend(filter),
                Err(error) => errors.push(format!("{error:#}")),
            }
        }
    }
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    ensure!(
        built.len() == filters.len(),
        "cargo succeeded but did not build a filter"
    );
    built.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(built)
}

/// Finishes the filter if it was compiled; otherwise removes its old file.
fn finish_or_remove(
    filter: &Filter,
    compiled: &[Artifact],
    out: &Path,
) -> Result<Option<BuiltFilter>> {
    let path = out.join(format!("{}.wasm", filter.name));
    let module = compiled.iter().find(|artifact| artifact.is_of(filter));
    let finished = module.map(|artifact| finish(filter, artifact, &path));
    let finished = finished.transpose();
    if !matches!(finished, Ok(Some(_))) {
        std::fs::remove_file(&path).ok();
    }
    finished
}

/// Removes unused exports and writes the module to the path in Envoy's configuration.
fn finish(filter: &Filter, artifact: &Artifact, path: &Path) -> Result<BuiltFilter> {
    let file = artifact.wasm().with_context(|| {
        format!(
            "{}: cargo built no .wasm; is it a cdylib?",
            filter.folder.display()
        )
    })?;
    let raw = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let pruned = prune::prune(&raw, &filter.callbacks)
        .with_context(|| format!("{}/Cargo.toml, callbacks", filter.folder.display()))?;
    write_atomic(path, &pruned)?;
    Ok(BuiltFilter {
        name: filter.name.clone(),
        path: path.to_path_buf(),
        size_raw: raw.len() as u64,
        size_final: pruned.len() as u64,
    })
}

/// The used part of cargo's messages about compiled artifacts.
#[derive(Debug, Deserialize)]
struct Artifact {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

impl Artifact {
    fn is_of(&self, filter: &Filter) -> bool {
        self.reason == "compiler-artifact"
            && self
                .manifest_path
                .ends_with(filter.folder.join("Cargo.toml"))
            && self.wasm().is_some()
    }

    fn wasm(&self) -> Option<&PathBuf> {
        let is_wasm = |file: &&PathBuf| file.extension().is_some_and(|ext| ext == "wasm");
        self.filenames.iter().find(is_wasm)
    }
}

/// Runs cargo. Returns the compiled artifacts, and an error text if it failed.
fn run(mut cargo: Command, messages: Messages) -> Result<(Vec<Artifact>, Option<String>)> {
    cargo.stdin(Stdio::null()).stdout(Stdio::piped());
    cargo.stderr(match messages {
        Messages::Show => Stdio::inherit(),
        Messages::Keep => Stdio::piped(),
    });
    let child = cargo.spawn().context("cannot start cargo")?;
    let output = child.wait_with_output().context("cannot wait for cargo")?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let artifacts = stdout
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let failure = (!output.status.success()).then(|| {
        let printed = String::from_utf8_lossy(&output.stderr);
        format!(
            "building the filters failed ({})\n{}",
            output.status,
            printed.trim_end()
        )
    });
    Ok((artifacts, failure))
}

/// A cargo with the same environment for all callers.
fn cargo(toolchain: &WasmToolchain, root: &Path) -> Command {
    let mut cargo = Command::new(&toolchain.cargo);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if !is_kept(&name) {
            cargo.env_remove(name);
        }
    }
    cargo
        .current_dir(root)
        .env("RUSTC", &toolchain.rustc)
        // An empty value disables a wrapper, also one in the person's own configuration file, whose cache may ignore
        // the remapped paths.
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "")
        .env("CARGO_INCREMENTAL", "0");
    cargo
}

fn is_kept(variable: &str) -> bool {
    let is_cargos = variable.starts_with("CARGO") || variable.starts_with("RUST");
    // `cargo run` sets LD_LIBRARY_PATH to its own toolchain, which may differ from the one used here.
    let changes_the_build = is_cargos || variable == "LD_LIBRARY_PATH" || variable == "MAKEFLAGS";
    !changes_the_build
        || KEPT_VARIABLES.contains(&variable)
        || KEPT_PREFIXES
            .iter()
            .any(|prefix| variable.starts_with(prefix))
}

/// The packages in `home` and their variants, sorted by name, with the declarations in their manifests.
fn discover(toolchain: &WasmToolchain, root: &Path, home: &str) -> Result<Vec<Filter>> {
    let mut metadata = cargo(toolchain, root);
    metadata.args(["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let output = command::succeed(&mut metadata, Duration::from_secs(60))?;
    let metadata: Metadata = serde_json::from_str(&output).context("cargo metadata")?;
    let home = root.join(home);
    let mut filters = Vec::new();
    for package in metadata.packages {
        let folder = package.manifest_path.parent().unwrap_or(&home);
        if folder.parent() != Some(&home) || !package.is_cdylib() {
            continue;
        }
        let own_name = folder.file_name().unwrap_or_default().to_string_lossy();
        let folder = folder.strip_prefix(root).unwrap_or(folder);
        let declared = declared(folder, &package.metadata)?;
        let filter = |name: &str, features, callbacks| Filter {
            name: name.to_owned(),
            folder: folder.to_path_buf(),
            package: package.name.clone(),
            features,
            callbacks,
        };
        for (name, variant) in declared.variants {
            let callbacks = [declared.callbacks.clone(), variant.callbacks].concat();
            filters.push(filter(&name, variant.features, callbacks));
        }
        filters.push(filter(&own_name, Vec::new(), declared.callbacks));
    }
    filters.sort_by(|a, b| a.name.cmp(&b.name));
    if filters.is_empty() {
        bail!("no package under {} is a cdylib", home.display());
    }
    Ok(filters)
}

fn declared(folder: &Path, metadata: &serde_json::Value) -> Result<WeirMetadata> {
    let folder = folder.display();
    let declared = metadata.get("weir").with_context(|| {
        format!(
            "{folder}/Cargo.toml has no [package.metadata.weir] callbacks = [\"proxy_on_…\"]: \
             the callbacks that the filter uses, in addition to the common ones"
        )
    })?;
    serde_json::from_value(declared.clone())
        .with_context(|| format!("{folder}/Cargo.toml, [package.metadata.weir]"))
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    #[serde(default)]
    metadata: serde_json::Value,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    crate_types: Vec<String>,
}

impl Package {
    fn is_cdylib(&self) -> bool {
        let mut kinds = self.targets.iter().flat_map(|target| &target.crate_types);
        kinds.any(|kind| kind == "cdylib")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_settings_of_the_environment_are_ignored() {
        for leak in [
            "RUSTFLAGS",
            "CARGO_TARGET_DIR",
            "RUSTC_WRAPPER",
            "CARGO_PROFILE_WASM_LTO",
        ] {
            assert!(!is_kept(leak), "{leak}");
        }
        for needed in [
            "PATH",
            "HOME",
            "CARGO_HOME",
            "CARGO_HTTP_PROXY",
            "RUSTUP_TOOLCHAIN",
        ] {
            assert!(is_kept(needed), "{needed}");
        }
    }

    #[test]
    fn filter_without_callbacks_is_named() {
        let error = declared(Path::new("filters/ratelimit"), &serde_json::Value::Null).unwrap_err();
        assert!(
            error.to_string().contains("filters/ratelimit/Cargo.toml"),
            "{error}"
        );
    }
}
