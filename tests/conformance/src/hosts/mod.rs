//! The hosts, each in its own file.

pub mod engine;
pub mod envoy;
pub mod host_test;
pub mod served;
pub mod wasi;
mod wire;

use anyhow::{Result, ensure};
use tokio::runtime::Runtime;
use weir_stack::tools::Options;

use crate::host::Host;
use crate::text::escape;
use crate::vector::Headers;

/// The names of all hosts, in table order.
pub const NAMES: [&str; 8] = [
    engine::NAME,
    host_test::NAME,
    envoy::WASM,
    envoy::NATIVE,
    envoy::FAST_PATH,
    wasi::NAME,
    served::FASTLY,
    served::CLOUDFLARE,
];

/// Hosts that need a compiler for their own target, or a runtime that not every machine has.
pub const MAY_BE_ABSENT: [&str; 3] = [wasi::NAME, served::FASTLY, served::CLOUDFLARE];

/// Starts the host of this name. `tools` selects Envoy.
///
/// # Errors
/// The name is unknown, or a required tool is missing.
pub fn start(name: &str, runtime: &Runtime, tools: &Options) -> Result<Box<dyn Host>> {
    ensure!(
        NAMES.contains(&name),
        "there is no host {name}; there are {}",
        NAMES.join(", ")
    );
    Ok(match name {
        engine::NAME => Box::new(engine::EngineHost::start(runtime)?),
        host_test::NAME => Box::new(host_test::HostTest::start(runtime)?),
        wasi::NAME => Box::new(wasi::Wasi::start()?),
        served::FASTLY => Box::new(served::EdgeServer::start(served::FASTLY)?),
        served::CLOUDFLARE => Box::new(served::EdgeServer::start(served::CLOUDFLARE)?),
        name => Box::new(envoy::InEnvoy::new(tools, name)?),
    })
}

/// Converts headers to a vector's form.
fn pairs(headers: &[httparse::Header<'_>]) -> Headers {
    let pair =
        |header: &httparse::Header<'_>| (header.name.to_ascii_lowercase(), escape(header.value));
    headers.iter().map(pair).collect()
}
