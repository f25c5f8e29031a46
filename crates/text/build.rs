//! Writes `$OUT_DIR/texts.rs` from the tables in `texts`. `build/check.rs` has the rules for tables.

#[path = "build/check.rs"]
mod check;

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=texts");
    if let Err(problems) = write() {
        for problem in problems.lines() {
            println!("cargo::error={problem}");
        }
    }
}

fn write() -> Result<(), String> {
    let [english, chinese, german] = check::TAGS.map(read);
    let constants = check::constants([&english?, &chinese?, &german?])?;
    let out = std::env::var_os("OUT_DIR").ok_or("cannot find OUT_DIR: build with cargo")?;
    let file = PathBuf::from(out).join("texts.rs");
    std::fs::write(&file, constants)
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn read(tag: &str) -> Result<String, String> {
    let file = check::file(tag);
    std::fs::read_to_string(&file).map_err(|error| format!("cannot read {file}: {error}"))
}
