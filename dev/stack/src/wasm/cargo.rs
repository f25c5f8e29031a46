//! The inner cargo: builds every package under `filters/`.

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

/// Separates the flags in `CARGO_ENCODED_RUSTFLAGS`.
const FLAG_SEPARATOR: &str = "\u{1f}";

/// The environment's variables for cargo and rustc that the build keeps. The rest of
/// `CARGO_*` and `RUST*` would change what is built (`RUSTFLAGS`, `CARGO_PROFILE_…`) or
/// where to (`CARGO_TARGET_DIR`).
const KEPT_VARIABLES: [&str; 5] = [
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "CARGO_TERM_COLOR",
    "RUST_BACKTRACE",
];

/// Prefixes of more that it keeps: how to reach the registry.
const KEPT_PREFIXES: [&str; 4] = [
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTR",
    "CARGO_SOURCE_",
];

/// How the inner cargo is called, apart from where.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    rustflags: Vec<String>,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Settings {
    /// What of it can change the bytes that come out. The folders' names can't: taking them
    /// out is what the flags are for.
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
        // Debian's compiler is a stable one; -Z needs its consent.
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

/// Panic messages carry the paths of sources. These flags give them the same text on every
/// machine, which also keeps the builder's folders out of what is shipped.
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

/// Where the filters' packages are, in the workspace.
pub(super) const FILTERS: &str = "filters";
/// Where the packages of what the benchmark compares them with are.
pub(super) const PEERS: &str = "bench/peers";

/// Where the packages of examples are.
pub(super) const EXAMPLES: &str = "docs/examples";

/// A module to be built: a package in a folder of such packages, or one of its variants.
#[derive(Debug)]
struct Filter {
    /// That of the module's file.
    name: String,
    /// The package's, from the workspace's root on.
    folder: PathBuf,
    package: String,
    features: Vec<String>,
    callbacks: Vec<String>,
}

/// What a manifest says under `[package.metadata.weir]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WeirMetadata {
    callbacks: Vec<String>,
    /// Further modules of the package, by name.
    #[serde(default)]
    variants: BTreeMap<String, Variant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    features: Vec<String>,
    /// Beside those of the package.
    callbacks: Vec<String>,
}

/// Builds all packages of the folder `home` into `out`. If one can't be built the others are written all the same,
/// and its own file is removed.
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
    // Cargo builds all that it is given at once with the union of their features.
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

/// The filter, if it was compiled. If not, no older file of it stays.
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

/// Drops what the filter doesn't use and writes the module where Envoy's config names it.
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

/// What cargo says of each thing it compiled, as far as it matters here.
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

/// Runs cargo; returns what it compiled, and an error's text if it failed.
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
        let kept = String::from_utf8_lossy(&output.stderr);
        format!(
            "building the filters failed ({})\n{}",
            output.status,
            kept.trim_end()
        )
    });
    Ok((artifacts, failure))
}

/// A cargo whose environment is the same whoever calls.
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
        // Empty means none, also against a wrapper in the person's own config file: it
        // could be one whose cache doesn't know the remapped paths.
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "")
        .env("CARGO_INCREMENTAL", "0");
    cargo
}

fn is_kept(variable: &str) -> bool {
    let is_cargos = variable.starts_with("CARGO") || variable.starts_with("RUST");
    // `cargo run` points LD_LIBRARY_PATH at its own toolchain, which may be another than
    // the one that compiles here.
    let changes_the_build = is_cargos || variable == "LD_LIBRARY_PATH" || variable == "MAKEFLAGS";
    !changes_the_build
        || KEPT_VARIABLES.contains(&variable)
        || KEPT_PREFIXES
            .iter()
            .any(|prefix| variable.starts_with(prefix))
}

/// The packages in `home` and their variants, in the order of their names, with what their manifests declare.
fn discover(toolchain: &WasmToolchain, root: &Path, home: &str) -> Result<Vec<Filter>> {
    let mut metadata = cargo(toolchain, root);
    metadata.args(["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let said = command::succeed(&mut metadata, Duration::from_secs(60))?;
    let metadata: Metadata = serde_json::from_str(&said).context("cargo metadata")?;
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
    fn build_settings_of_the_environment_stay_outside() {
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
    fn a_filter_without_callbacks_is_named() {
        let error = declared(Path::new("filters/ratelimit"), &serde_json::Value::Null).unwrap_err();
        assert!(
            error.to_string().contains("filters/ratelimit/Cargo.toml"),
            "{error}"
        );
    }
}
