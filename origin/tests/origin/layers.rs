//! The walls inside the origin: domains do not know each other, and shared parts know no domain.

use std::path::{Path, PathBuf};

const DOMAINS: [&str; 7] = [
    "events", "fitment", "history", "limits", "links", "rooms", "sales",
];

/// Where domains meet. Nothing else may name these.
const START_UP: [&str; 11] = [
    "change_events",
    "config",
    "conversions",
    "doctor",
    "init",
    "migrations",
    "origin",
    "run",
    "shard_proxy",
    "tenant_rules",
    "views",
];

/// Shared parts, a file or a folder each.
const SHARED: [&str; 16] = [
    "access",
    "background",
    "clock",
    "console",
    "disk",
    "http",
    "json_schema",
    "metrics",
    "outbox",
    "process",
    "redis",
    "secret",
    "sql",
    "tenants",
    "traces",
    "unavailable",
];

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

/// The crate's modules that a source text names: `crate::a`, or `crate::{a, b::c}`.
fn named(text: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        let is_word = |char: &char| char.is_alphanumeric() || *char == '_';
        text.trim_start().chars().take_while(is_word).collect()
    };
    let mut names = Vec::new();
    for rest in text.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            // Deeper groups only add names that are none of a module.
            Some(group) => {
                let end = group.find(';').unwrap_or(group.len());
                names.extend(group[..end].split([',', '{']).map(word));
            }
            None => names.push(word(rest)),
        }
    }
    names
}

/// The first part of a file's path below `src`, without its ending.
fn module(src: &Path, file: &Path) -> String {
    let first = file.strip_prefix(src).unwrap().iter().next().unwrap();
    first.to_str().unwrap().trim_end_matches(".rs").to_owned()
}

#[test]
fn domains_meet_only_in_start_up() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    assert!(files.len() > 50, "{files:?}");
    for file in files {
        let module = module(&src, &file);
        if START_UP.contains(&&*module) || ["lib", "main"].contains(&&*module) {
            continue;
        }
        let is_domain = DOMAINS.contains(&&*module);
        assert!(is_domain || SHARED.contains(&&*module), "what is {module}?");
        for name in named(&std::fs::read_to_string(&file).unwrap()) {
            let is_other_domain = DOMAINS.contains(&&*name) && name != module;
            let is_wrong = is_other_domain || START_UP.contains(&&*name);
            assert!(!is_wrong, "{} names crate::{name}", file.display());
        }
    }
}

#[test]
fn names_are_found_alone_and_in_groups() {
    let text = "use crate::sql::SqlError;\nuse crate::{links, sales::Sales};\ncrate::run::run()";
    assert_eq!(named(text), ["sql", "links", "sales", "run"]);
}
