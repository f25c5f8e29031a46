//! Runs the shell blocks of `docs/start.md` as if they were pasted: in one shell for each section, one after the other.
//!
//! Each section runs in a network namespace of its own, so that ports of other tests do not matter. Lines that build are left
//! out, because everything is built already. Where no namespace can be made, these tests pass without running anything.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_stack::report::Console;
use weir_stack::{build, command, tools, wasm, workspace};

const LIMIT: Duration = Duration::from_secs(120);

/// Makes a namespace with a loopback device; everything in it ends with the script.
const NAMESPACE: &[&str] = &[
    "--map-root-user",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
];

/// The shell blocks of the section with this title.
fn blocks(document: &str, title: &str) -> Result<String> {
    let heading = format!("\n## {title}\n");
    let (_, section) = document.split_once(&heading).context("no such section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines);
    let pasted = lines.filter(|line| !line.starts_with("cargo "));
    Ok(pasted.map(|line| format!("{line}\n")).collect())
}

/// `PATH` with the programs that the document builds and unpacks in front.
fn path() -> Result<String> {
    let origin = build::binary("weir-origin", &[], None)?;
    let envoy = tools::Envoy::find_or_get(&tools::Options::default(), &mut Console)?.path;
    let redis = tools::Redis::find_or_get(&mut Console)?.path;
    let folder = |path: &Path| path.parent().map(PathBuf::from);
    let folders: Option<Vec<_>> = [origin, envoy, redis]
        .iter()
        .map(|path| folder(path))
        .collect();
    let folders = folders.context("a program has no folder")?;
    let own = std::env::join_paths(folders)?;
    let own = own.to_str().context("a folder is not UTF-8")?;
    Ok(format!("{own}:{}", std::env::var("PATH")?))
}

/// The output of the pasted section; `None` where no namespace can be made.
fn pasted(title: &str) -> Result<Option<String>> {
    let mut probe = Command::new("unshare");
    probe
        .args(NAMESPACE)
        .args(["ip", "link", "set", "lo", "up"]);
    if let Err(error) = command::succeed(&mut probe, LIMIT) {
        eprintln!("skipped: no network namespace: {error}");
        return Ok(None);
    }
    wasm::ensure_filters()?;
    let document = std::fs::read_to_string(workspace::root().join("docs/start.md"))?;
    let script = blocks(&document, title)?;
    ensure!(!script.is_empty(), "{title} has no shell block");
    let temp = tempfile::tempdir()?;
    let script = format!("set -e\nip link set lo up\n{script}");
    let mut shell = Command::new("unshare");
    shell
        .args(NAMESPACE)
        .args(["bash", "-c", &script])
        .env("WEIR", workspace::root())
        .env("PATH", path()?)
        .env("TMPDIR", temp.path())
        .current_dir(temp.path());
    command::succeed(&mut shell, LIMIT).map(Some)
}

#[test]
fn limit_of_the_first_five_minutes_refuses_too_many() -> Result<()> {
    let Some(seen) = pasted("Limit a service of yours, without Redis")? else {
        return Ok(());
    };
    // `uniq -c`: how many, and of what.
    let count = |line: &'_ str| {
        let (count, status) = line.trim_start().split_once(' ')?;
        count.parse::<u32>().ok().map(|_| status.to_owned())
    };
    let counts = seen.lines().filter_map(count);
    assert_eq!(
        counts.collect::<BTreeSet<_>>(),
        ["200", "429"].map(str::to_owned).into(),
        "{seen}"
    );
    Ok(())
}

#[test]
fn sale_of_the_first_five_minutes_sells() -> Result<()> {
    let Some(seen) = pasted("Sell something")? else {
        return Ok(());
    };
    ensure!(seen.contains("HTTP/1.1 201 Created"), "{seen}");
    ensure!(seen.contains("x-weir-verdict: granted"), "{seen}");
    Ok(())
}

#[test]
fn link_of_the_first_five_minutes_leads_somewhere() -> Result<()> {
    let Some(seen) = pasted("Shorten a link")? else {
        return Ok(());
    };
    ensure!(seen.contains("HTTP/1.1 302 Found"), "{seen}");
    ensure!(seen.contains("location: https://example.com/"), "{seen}");
    Ok(())
}
