//! Removes from a built module the exports that its filter does not use, code that only they reach, and sections that
//! only tools read.

use anyhow::{Context, Result, ensure};
use walrus::{ExportItem, Module, ModuleConfig};

/// The exports of every filter, independent of its declarations.
///
/// The SDK maintains its context tables in `proxy_on_context_create` and `proxy_on_delete`, and exports its allocator
/// as `malloc` on `wasm32-unknown-unknown`. Without `proxy_on_done` a context is done immediately, which is also the
/// SDK's default.
pub const ALWAYS_KEPT: [&str; 9] = [
    "memory",
    "_initialize",
    "malloc",
    "proxy_on_memory_allocate",
    "proxy_on_context_create",
    "proxy_on_vm_start",
    "proxy_on_configure",
    "proxy_on_delete",
    "proxy_abi_version_0_2_1",
];

/// Any ABI version is kept, so that a newer SDK needs no change here.
const ABI_VERSION_PREFIX: &str = "proxy_abi_version_";
const CALLBACK_PREFIX: &str = "proxy_on_";

/// Returns `wasm` with only the exports in [`ALWAYS_KEPT`] and `callbacks`.
///
/// A name in `callbacks` that the module does not export, or that is not a callback, is an error: a misspelt callback
/// would silently never be called.
pub fn prune(wasm: &[u8], callbacks: &[String]) -> Result<Vec<u8>> {
    let mut config = ModuleConfig::new();
    config.generate_name_section(false);
    config.generate_producers_section(false);
    config.generate_dwarf(false);
    let mut module = config.parse(wasm).context("not a wasm module")?;
    for name in callbacks {
        check_callback(&module, name)?;
    }
    drop_exports(&mut module, callbacks);
    drop_custom_sections(&mut module);
    walrus::passes::gc::run(&mut module);
    Ok(module.emit_wasm())
}

fn check_callback(module: &Module, name: &str) -> Result<()> {
    let is_function = |item: &ExportItem| matches!(item, ExportItem::Function(_));
    let all: Vec<&str> = module
        .exports
        .iter()
        .filter(|export| is_function(&export.item) && export.name.starts_with(CALLBACK_PREFIX))
        .map(|export| export.name.as_str())
        .collect();
    ensure!(
        all.contains(&name),
        "{name:?} is not an exported callback; the module exports {}",
        all.join(", ")
    );
    Ok(())
}

fn drop_exports(module: &mut Module, callbacks: &[String]) {
    let retained = |name: &str| {
        ALWAYS_KEPT.contains(&name)
            || name.starts_with(ABI_VERSION_PREFIX)
            || callbacks.iter().any(|callback| callback == name)
    };
    let dropped: Vec<_> = module
        .exports
        .iter()
        .filter(|export| !retained(&export.name))
        .map(|export| export.id())
        .collect();
    for id in dropped {
        module.exports.delete(id);
    }
}

fn drop_custom_sections(module: &mut Module) {
    let sections: Vec<_> = module.customs.iter().map(|(id, _)| id).collect();
    for id in sections {
        module.customs.delete(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = r#"
        (module
          (import "env" "used" (func $used))
          (import "env" "unused" (func $unused))
          (memory (export "memory") 1)
          (global (export "__data_end") i32 (i32.const 1024))
          (func (export "_initialize"))
          (func (export "malloc") (param i32) (result i32) (i32.const 0))
          (func (export "proxy_abi_version_0_2_1"))
          (func (export "proxy_on_tick") (param i32) (call $used))
          (func (export "proxy_on_log") (param i32) (call $unused))
          (@custom "producers" "x"))"#;

    fn pruned(callbacks: &[&str]) -> Result<Module> {
        let wasm = wat::parse_str(MODULE).unwrap();
        let callbacks: Vec<String> = callbacks.iter().map(|&name| name.to_owned()).collect();
        Module::from_buffer(&prune(&wasm, &callbacks)?)
    }

    #[test]
    fn only_declared_or_always_kept_exports_remain() {
        let module = pruned(&["proxy_on_tick"]).unwrap();
        let mut names: Vec<_> = module.exports.iter().map(|e| e.name.as_str()).collect();
        names.sort_unstable();
        let expected = [
            "_initialize",
            "malloc",
            "memory",
            "proxy_abi_version_0_2_1",
            "proxy_on_tick",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn code_used_only_by_a_dropped_callback_is_removed() {
        let module = pruned(&["proxy_on_tick"]).unwrap();
        let imports: Vec<_> = module.imports.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(imports, ["used"]);
        assert_eq!(module.customs.iter().count(), 0);
    }

    #[test]
    fn misspelt_callback_is_an_error_that_lists_the_real_ones() {
        let error = pruned(&["proxy_on_tik"]).unwrap_err().to_string();
        assert!(
            error.contains("proxy_on_tik") && error.contains("proxy_on_log"),
            "{error}"
        );
    }

    #[test]
    fn export_other_than_a_callback_cannot_be_declared() {
        assert!(pruned(&["__data_end"]).is_err());
    }
}
