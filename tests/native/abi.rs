//! Compares the ABI's declarations with real Envoys.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result};
use weir_envoy_abi::EXPORTS;
use weir_envoy_abi::api::CALLBACKS;
use weir_stack::report::SilentReporter;
use weir_stack::tools::{Envoy, Options, oldest_envoy};

/// Hooks that Envoy calls only if they exist.
const OPTIONAL: [&str; 10] = [
    "envoy_dynamic_module_on_http_filter_config_http_callout_done",
    "envoy_dynamic_module_on_http_filter_config_http_stream_complete",
    "envoy_dynamic_module_on_http_filter_config_http_stream_data",
    "envoy_dynamic_module_on_http_filter_config_http_stream_headers",
    "envoy_dynamic_module_on_http_filter_config_http_stream_reset",
    "envoy_dynamic_module_on_http_filter_config_http_stream_trailers",
    "envoy_dynamic_module_on_http_filter_config_scheduled",
    "envoy_dynamic_module_on_http_filter_local_reply",
    "envoy_dynamic_module_on_http_filter_per_route_config_destroy",
    "envoy_dynamic_module_on_http_filter_per_route_config_new",
];

fn envoys() -> Result<[PathBuf; 2]> {
    let usual = Envoy::find_or_get(&Options::default(), &mut SilentReporter)?;
    Ok([oldest_envoy(&mut SilentReporter)?, usual.path])
}

/// All strings of a program with this prefix, up to their NUL: symbols and constants alike.
fn texts(program: &[u8], start: &str) -> BTreeSet<String> {
    let mut texts = BTreeSet::new();
    for text in program.split(|&byte| byte == 0) {
        if text.starts_with(start.as_bytes())
            && let Ok(text) = str::from_utf8(text)
        {
            texts.insert(text.to_owned());
        }
    }
    texts
}

#[test]
fn every_called_function_exists_in_each_envoy() -> Result<()> {
    for envoy in envoys()? {
        let program = std::fs::read(&envoy).context("no Envoy")?;
        let there = texts(&program, "envoy_dynamic_module_callback_");
        for called in CALLBACKS {
            assert!(there.contains(*called), "{}: {called}", envoy.display());
        }
    }
    Ok(())
}

#[test]
fn every_required_envoy_hook_is_exported() -> Result<()> {
    for envoy in envoys()? {
        let program = std::fs::read(&envoy).context("no Envoy")?;
        let mut hooks = texts(&program, "envoy_dynamic_module_on_http_filter_");
        assert!(hooks.len() > 20, "{}: {hooks:?}", envoy.display());
        hooks.extend(texts(
            &program,
            "envoy_dynamic_module_on_bootstrap_extension_",
        ));
        for hook in hooks.iter().filter(|hook| !hook.contains(' ')) {
            let is_known = EXPORTS.contains(&hook.as_str()) || OPTIONAL.contains(&hook.as_str());
            assert!(is_known, "{} demands {hook}", envoy.display());
        }
    }
    Ok(())
}
