//! Builds the filters from their sources into `target/weir/<filter>.wasm`.
//!
//! No caller may load an outdated filter, so callers use [`filter`] or [`ensure_filters`] first. These compare a
//! fingerprint of all inputs, which takes milliseconds, and rebuild if anything differs.
//!
//! A build is `cargo build --profile wasm`, then [`prune`]. The SDK exports all callbacks, and Envoy calls every
//! exported one, so a filter declares those it uses in its `Cargo.toml`:
//!
//! ```toml
//! [package.metadata.weir]
//! callbacks = ["proxy_on_tick", "proxy_on_request_headers"]
//! ```
//!
//! If a callback adds a cost to every request and only some users need it, a variant declares it. A variant is a
//! separate module: `[package.metadata.weir.variants.<name>]` with `features` and additional `callbacks`.
//!
//! The only optimisation is rustc's `-O3` with fat LTO. Binaryen's `wasm-opt -O3` (132) made a pruned module of 92 KiB
//! another 19 % smaller, Debian's (108) 12 %, in 2.5 s. It is not used, because the gain does not justify its cost: a
//! module is loaded once per VM, and V8 optimises it. The crate of `wasm-opt` compiles C++ for minutes, npm's needs
//! node, and distributions have different versions, so that two machines would build different bytes.
//!
//! The output depends on the commit and the toolchain, not on the folder or the date: paths are remapped, and the
//! environment's build settings do not reach the nested cargo.

mod cargo;
pub mod prune;
mod stamp;

use crate::report::{Reporter, SilentReporter};
use crate::tools::WasmToolchain;
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// A built filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltFilter {
    /// The name of its folder under `filters/`, or of a variant.
    pub name: String,
    /// `target/weir/<name>.wasm`.
    pub path: PathBuf,
    /// The size after rustc, in bytes.
    pub size_raw: u64,
    /// The size after removing unused exports and code, in bytes.
    pub size_final: u64,
}

/// The destination of cargo's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Messages {
    /// Standard error, immediately.
    Show,
    /// Kept, and included in the error if the build fails.
    Keep,
}

/// Sources can change during a build, which is then repeated, up to this limit.
const ATTEMPTS_MAX: u32 = 3;

/// Builds outdated filters and returns all filters.
pub fn ensure_filters() -> Result<Vec<BuiltFilter>> {
    let toolchain = WasmToolchain::find_or_get(&mut SilentReporter)?;
    build_filters(&toolchain, Messages::Keep)
}

/// The path of one filter's module, which is built first if it is outdated. `name` is its folder under `filters/`, or a
/// variant.
pub fn filter(name: &str) -> Result<PathBuf> {
    let filters = ensure_filters()?;
    match filters.iter().find(|filter| filter.name == name) {
        Some(filter) => Ok(filter.path.clone()),
        None => {
            let names: Vec<_> = filters.iter().map(|filter| filter.name.as_str()).collect();
            bail!(
                "unknown filter {name:?}; the filters are {}",
                names.join(", ")
            )
        }
    }
}

/// As [`ensure_filters`], with a toolchain and a destination for messages.
pub fn build_filters(toolchain: &WasmToolchain, messages: Messages) -> Result<Vec<BuiltFilter>> {
    let _lock = workspace::lock("wasm")?;
    let root = workspace::root();
    let out = workspace::out_dir();
    let settings = cargo::settings(toolchain, &root)?;
    for _ in 0..ATTEMPTS_MAX {
        let fingerprint = stamp::fingerprint(&root, toolchain, &settings)?;
        if let Some(filters) = stamp::up_to_date(&out, &fingerprint) {
            return Ok(filters);
        }
        stamp::remove(&out)?;
        let filters = cargo::build(toolchain, &settings, &root, cargo::FILTERS, &out, messages)?;
        if stamp::fingerprint(&root, toolchain, &settings)? == fingerprint {
            stamp::write(&out, &fingerprint, &filters)?;
            return Ok(filters);
        }
    }
    bail!("the filters' sources changed during each of {ATTEMPTS_MAX} builds; build again")
}

/// Builds the benchmark's wasm peers, the packages in `bench/peers`, into `target/weir/peers/`.
pub fn build_peers(toolchain: &WasmToolchain, messages: Messages) -> Result<Vec<BuiltFilter>> {
    build_folder(toolchain, cargo::PEERS, "peers", messages)
}

/// Builds an example's module and returns its path. `name` is its folder in `docs/examples`.
pub fn example(name: &str) -> Result<PathBuf> {
    let toolchain = WasmToolchain::find_or_get(&mut SilentReporter)?;
    let examples = build_folder(&toolchain, cargo::EXAMPLES, "examples", Messages::Keep)?;
    let example = examples.into_iter().find(|example| example.name == name);
    let example = example.with_context(|| format!("unknown example {name:?}"))?;
    Ok(example.path)
}

/// Builds the packages of a folder into a folder of `target/weir`. Cargo detects what is up to date.
fn build_folder(
    toolchain: &WasmToolchain,
    home: &str,
    name: &str,
    messages: Messages,
) -> Result<Vec<BuiltFilter>> {
    let _lock = workspace::lock("wasm")?;
    let root = workspace::root();
    let out = workspace::out_dir().join(name);
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let settings = cargo::settings(toolchain, &root)?;
    cargo::build(toolchain, &settings, &root, home, &out, messages)
}

/// A table of sizes.
pub fn table(filters: &[BuiltFilter]) -> String {
    use std::fmt::Write;
    let mut table = format!(
        "{:<20} {:>12} {:>12}   file\n",
        "filter", "from rustc", "final"
    );
    for filter in filters {
        let path = filter.path.strip_prefix(workspace::root());
        let path = path.unwrap_or(&filter.path).display();
        let (raw, done) = (kib(filter.size_raw), kib(filter.size_final));
        // Writing to a String cannot fail.
        writeln!(table, "{:<20} {raw:>12} {done:>12}   {path}", filter.name).ok();
    }
    table
}

fn kib(bytes: u64) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}

/// Bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

/// The SHA-256 digest of a file, in hexadecimal.
fn sha256_of(path: &std::path::Path) -> Result<String> {
    use sha2::Digest;
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hex(&sha2::Sha256::digest(bytes)))
}

/// Reports one line per built filter.
pub fn report(filters: &[BuiltFilter], reporter: &mut dyn Reporter) {
    for filter in filters {
        let text = format!("{} ({})", filter.path.display(), kib(filter.size_final));
        reporter.line(&filter.name, &text);
    }
}
