//! `weir-edge-bindgen <module.wasm> <folder>`: what `wasm-bindgen --target web` does, of the version that the lock file has.

use anyhow::{Context, Result};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let module = arguments
        .next()
        .context("usage: bindgen MODULE FOLDER: MODULE is missing")?;
    let folder = arguments
        .next()
        .context("usage: bindgen MODULE FOLDER: FOLDER is missing")?;
    Bindgen::new()
        .input_path(module)
        .out_name("weir_edge")
        .web(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(folder)
}
