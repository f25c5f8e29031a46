//! Checks that a second build produces identical filters: from a copy of the sources, in another folder, without cached
//! output.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_stack::{command, workspace};

use crate::binaries::Filter;
use crate::folder::{Folder, sha256_hex};

/// The limit on a busy machine with two cores.
const BUILD_LIMIT: Duration = Duration::from_secs(1_200);
const GIT_LIMIT: Duration = Duration::from_secs(60);

/// One checksum line per filter.
pub fn sums(filters: &[Filter]) -> String {
    let line = |filter: &Filter| {
        format!(
            "{}  filters/{}.wasm\n",
            sha256_hex(&filter.bytes),
            filter.name
        )
    };
    filters.iter().map(line).collect()
}

/// Builds the filters again and compares them with those in `folder`.
///
/// # Errors
/// The filters differ or cannot be built.
pub fn check(folder: &Folder) -> Result<()> {
    let temp = tempfile::tempdir_in(workspace::out_dir())
        .context("cannot create a folder for the second build")?;
    let copy = temp.path().join("sources-elsewhere");
    copy_sources(&copy)?;
    // Runs this program again, which reads the workspace path from this variable.
    let mut again = Command::new(std::env::current_exe()?);
    again
        .arg("filters")
        .current_dir(&copy)
        .env("CARGO_MANIFEST_DIR", copy.join("dev/dist"));
    let output = command::succeed(&mut again, BUILD_LIMIT).context("the second build")?;
    let second = of_filters(&output);
    ensure!(
        !second.is_empty(),
        "the second build printed no filters: {output}"
    );
    let sums = std::fs::read_to_string(folder.at(crate::folder::SUMS))?;
    let first = of_filters(&sums);
    ensure!(
        first == second,
        "two builds differ:\n{}\n\n{}",
        first.join("\n"),
        second.join("\n")
    );
    Ok(())
}

/// The lines of filters in one order: checksum files sort by full path, filters by name.
fn of_filters(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("  filters/"))
        .collect();
    lines.sort_unstable();
    lines
}

/// Copies tracked and unignored files in their current state.
fn copy_sources(to: &Path) -> Result<()> {
    let root = workspace::root();
    let mut list = Command::new("git");
    list.args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]);
    let names = command::succeed(list.current_dir(&root), GIT_LIMIT)?;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), to.join(name));
        // A deleted file may still be in git's index.
        if !from.is_file() {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("file without a folder")?)?;
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {name}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_compared_in_any_order_of_names() {
        let one = "aa  README.md\n1  filters/a-b.wasm\n2  filters/a.wasm\n";
        assert_eq!(
            of_filters(one),
            of_filters("2  filters/a.wasm\n1  filters/a-b.wasm\n")
        );
        assert_ne!(
            of_filters(one),
            of_filters("2  filters/a.wasm\n3  filters/a-b.wasm\n")
        );
    }
}
