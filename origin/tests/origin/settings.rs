//! The pages of settings say what the code says: they are written from the flags' and the filters' own definitions.
//! `WEIR_WRITE_DOCS=1 cargo test --test origin -- settings` writes them anew.

mod filters;

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, CommandFactory};
use weir_origin::config::Config;
use weir_registry::FILTERS;

const WRITE: &str = "WEIR_WRITE_DOCS";

/// Compares a page of `docs/` with what it must be, or writes it.
fn hold(name: &str, text: &str) {
    let path = weir_stack::workspace::root().join("docs").join(name);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        is == text,
        "docs/{name} is not what the code says: set {WRITE}=1 to write it anew"
    );
}

/// In a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('\n', " ")
        .replace('<', "&lt;")
}

#[test]
fn the_page_of_the_origins_flags_is_what_they_say_themselves() {
    let command = Config::command();
    let mut page = String::from(
        "# Settings of the origin\n\nEvery flag of `weir-origin` has a variable, too; the flag wins. This page is written from the program's own \
         definitions: `weir-origin --help` says the same.\n\n| flag | variable | unless set | what it sets |\n|---|---|---|---|\n",
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
    let variable = arg
        .get_env()
        .map(|name| format!("`{}`", name.to_string_lossy()));
    let defaults = arg.get_default_values().iter();
    let defaults: Vec<String> = defaults
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (variable, help) = (variable.unwrap_or_default(), cell(&help));
    writeln!(
        page,
        "| `--{flag}` | {variable} | {} | {help} |",
        defaults.join(", ")
    )
    .unwrap();
}

#[test]
fn the_page_of_the_filters_settings_is_what_their_types_say() {
    let mut page = String::from(
        "# Settings of the filters\n\nA filter's `configuration` is JSON. A field that a filter does not know, or a value that it may not have, is \
         refused when Envoy loads it, with the field's path. This page is written from the types that read it; a field of a type with a name is \
         described below its filter.\n",
    );
    let crates = weir_stack::workspace::root().join("crates");
    for filter in FILTERS {
        write!(page, "\n## `{}`\n", filter.name).unwrap();
        page += &filters::tables(&crates, Path::new(filter.crate_folder));
    }
    hold("settings-filters.md", &page);
}
