//! The settings pages are generated from the definitions of the flags and of the filters' configurations.
//! `WEIR_WRITE_DOCS=1 cargo test --test origin -- settings` rewrites them.

mod filters;

use std::fmt::Write;

use clap::{Arg, CommandFactory};
use weir_origin::config::Config;
use weir_registry::FILTERS;

const WRITE: &str = "WEIR_WRITE_DOCS";

/// Compares a page of `docs/` with the generated text, or writes it.
fn hold(name: &str, text: &str) {
    let path = weir_stack::workspace::root().join("docs").join(name);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        is == text,
        "docs/{name} differs from the code: set {WRITE}=1 to rewrite it"
    );
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('\n', " ")
        .replace('<', "&lt;")
}

#[test]
fn settings_page_of_the_origin_matches_its_flags() {
    let command = Config::command();
    let mut page = String::from(
        "# Settings of the origin\n\nEvery flag of `weir-origin` also has an environment variable; the flag wins.\nThis page is generated from the \
         code; `weir-origin --help` prints the same texts.\n\n",
    );
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        row(&mut page, arg);
    }
    page.push_str("\n## Secrets\n\n```text\n");
    let secrets = command.get_after_help().unwrap().to_string();
    writeln!(page, "{}\n```\n\n## Commands\n", secrets.trim_end()).unwrap();
    for command in command.get_subcommands() {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        writeln!(page, "- `weir-origin {}`: {about}", command.get_name()).unwrap();
    }
    hold("settings.md", &page);
}

fn row(page: &mut String, arg: &Arg) {
    let Some(flag) = arg.get_long() else { return };
    write!(page, "- `--{flag}`").unwrap();
    if let Some(variable) = arg.get_env() {
        write!(page, ", `{}`", variable.to_string_lossy()).unwrap();
    }
    for value in arg.get_default_values() {
        write!(page, ", default `{}`", value.to_string_lossy()).unwrap();
    }
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    writeln!(page, ": {}", cell(&help)).unwrap();
}

#[test]
fn settings_page_of_the_filters_matches_their_types() {
    let mut page = String::from(
        "# Settings of the filters\n\nA filter's `configuration` is JSON. Envoy refuses unknown fields and invalid values at startup, with the field's \
         path.\n\nA field is optional unless marked `required`.\nNumbers in fields with the suffix `_ms` are milliseconds. A duration is a \
         string such as `100ms`, `10s`, `5m`, `1h` or `1d`.\nA value with a type is an object: `{\"header\": \"x-sku\"}`.\nThis page is generated \
         from the filters' types.\n",
    );
    let crates = weir_stack::workspace::root().join("crates");
    page += &filters::sections(&crates, FILTERS);
    hold("settings-filters.md", &page);
}
