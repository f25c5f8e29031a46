//! `weir-edge-bindgen <module.wasm> <folder>`: the equivalent of `wasm-bindgen --target web`, in the version of the
//! lock file.

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
