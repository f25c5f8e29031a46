//! Links the library so that it stays loaded. Its threads briefly outlive a filter configuration, and Envoy unloads a
//! module with its last configuration unless `do_not_close` is set.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
