//! The licenses of third-party code in a release: what MIT, BSD and Apache-2.0 require of binaries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::metadata::{Metadata, Package};

/// The start of the names of license files, in lower case.
const NAMES: [&str; 6] = [
    "copying",
    "copyright",
    "licence",
    "license",
    "notice",
    "unlicense",
];

/// How deep they are: crates with C code have a second project in a subfolder.
const DEPTH: usize = 3;

/// The license of code without a license file, and of musl.
const MIT: &str = include_str!("../licenses/MIT.txt");
const APACHE: &str = include_str!("../../../LICENSE");

/// Code that cargo does not know.
const TOOLCHAIN: [(&str, &str); 2] = [
    (
        "Rust standard library (MIT OR Apache-2.0)",
        "Copyright (c) The Rust Project Contributors",
    ),
    (
        "musl libc (MIT)",
        "Copyright (c) 2005-2020 Rich Felker, et al.",
    ),
];

/// Creates the text.
///
/// # Errors
/// A license file cannot be read, or code without one has another license than MIT or Apache-2.0.
pub fn make(metadata: &Metadata) -> Result<String> {
    let edges = metadata.shipped_edges();
    let shipped = edges.keys().filter_map(|id| metadata.package(id));
    let mut packages: Vec<_> = shipped.filter(|one| one.source.is_some()).collect();
    packages.sort_by_key(|package| (&package.name, &package.version));
    let mut text = format!(
        "Third-party code in Weir {}, followed by its licenses.\n\n",
        weir_version::VERSION
    );
    let mut licenses = BTreeMap::<String, BTreeSet<String>>::new();
    let mut add = |text: String, user: &str| {
        licenses.entry(text).or_default().insert(user.to_owned());
    };
    for package in packages {
        let title = title(package);
        text += &format!("{title}\n");
        let files = files(package.folder(), DEPTH);
        let files = files.with_context(|| format!("cannot list licenses of {}", package.name))?;
        if files.is_empty() {
            add(standard_text(package)?, &title);
        }
        for file in files {
            let bytes =
                fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            add(String::from_utf8_lossy(&bytes).into_owned(), &title);
        }
    }
    for (title, copyright) in TOOLCHAIN {
        text += &format!("{title}\n");
        add(format!("{copyright}\n\n{MIT}"), title);
    }
    for (license, users) in licenses {
        let users = users.into_iter().collect::<Vec<_>>().join("\n");
        text += &format!("\n{}\n{users}\n\n{}\n", "=".repeat(80), license.trim());
    }
    Ok(text)
}

/// Such as `serde 1.0.228 (MIT OR Apache-2.0)`.
fn title(package: &Package) -> String {
    let license = package.license.as_deref().unwrap_or("see its license file");
    format!("{} {} ({license})", package.name, package.version)
}

/// The license files in a folder of sources.
fn files(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && depth > 0 {
            found.extend(files(&path, depth - 1)?);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_lowercase();
        if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The license of a crate whose package has no license file.
fn standard_text(package: &Package) -> Result<String> {
    let license = package.license.as_deref().unwrap_or_default();
    if license.contains("Apache-2.0") {
        return Ok(APACHE.to_owned());
    }
    ensure!(
        license == "MIT",
        "{} has no license file, and the license {license:?}: add its text to dev/dist/licenses",
        package.name
    );
    let authors = match package.authors.is_empty() {
        true => format!("The authors of {}", package.name),
        false => package.authors.join(", "),
    };
    Ok(format!("Copyright (c) {authors}\n\n{MIT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn license_of_each_shipped_crate_is_included() {
        let metadata = Metadata::read().unwrap();
        let text = make(&metadata).unwrap();
        for id in metadata.shipped_edges().keys() {
            let package = metadata.package(id).unwrap();
            if package.source.is_some() {
                assert_eq!(
                    text.lines()
                        .filter(|line| *line == title(package))
                        .take(2)
                        .count(),
                    2,
                    "{} needs a line in the list and one above a license",
                    package.name
                );
            }
        }
        for part in [
            "Magnus Edenhill",
            "Rich Felker",
            "Permission is hereby granted",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("\nwasmtime "), "tests are not shipped");
    }
}
