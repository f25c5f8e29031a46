//! Lets both filters be linked into one program.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Each filter defines `_initialize`, which a Wasm host calls and nothing calls here. Whether a
    // linker sees both depends on how rustc cuts the crates into objects: with one object a crate,
    // as cargo-fuzz builds, it does.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-link-arg=-Wl,--allow-multiple-definition");
    }
}
