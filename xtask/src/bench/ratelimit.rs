//! `cargo xtask bench ratelimit`: what a local limit costs, against the same Envoy without it.

use super::compare::USER_LIMIT;
use super::turns::{self, Arguments, Load, Names};
use crate::up::Stop;
use anyhow::{Context, Result};
use std::process::ExitCode;
use weir_stack::envoy::EnvoyConfig;
use weir_stack::report::Console;
use weir_stack::tools::{Options, Tools};
use weir_stack::wasm::{self, Messages};

const USERS: &str = include_str!("users.lua");

const NAMES: Names = Names {
    bare: "Envoy alone",
    ours: "with a limit per user",
    bar: 0.75,
};

pub(super) fn run(arguments: &Arguments, tools: Options) -> Result<ExitCode> {
    turns::check_tools()?;
    let tools = Tools::find_or_get(&tools, &mut Console)?;
    wasm::build_filters(&tools.wasm, Messages::Show)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        tokio::select! {
            measured = measure(arguments, &tools) => measured,
            () = stop.asked() => anyhow::bail!("stopped"),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(arguments: &Arguments, tools: &Tools) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a folder")?;
    let script = dir.path().join("users.lua");
    std::fs::write(&script, USERS).context("cannot write wrk's script")?;
    let bare = EnvoyConfig::ratelimit(false)?.without_limiter()?;
    let limited = EnvoyConfig::ratelimit(false)?.limiter_config(USER_LIMIT)?;
    let bare = turns::start(tools, bare, &dir.path().join("bare")).await?;
    let limited = turns::start(tools, limited, &dir.path().join("limited")).await?;
    let script = script.to_str().context("the folder is not UTF-8")?;
    let load = Load {
        path: "",
        wrk: &["--script", script],
    };
    turns::measure(arguments, NAMES, [&bare, &limited], load)?;
    Ok(())
}
