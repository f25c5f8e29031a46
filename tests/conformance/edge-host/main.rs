//! Runs a `wasi:http` component in tests: one order per line on stdin, one result per line on stdout, both JSON.
//!
//! It is `wasmtime-wasi-http` with three changes. The clock shows the time of the order. The network is simulated: an
//! order contains feeds and the gateway's answer, and the result contains what the component sent there. One instance
//! serves all orders until the next `start`, as on hosts that reuse instances.
//!
//! Bytes are encoded as text with one character per byte (ISO 8859-1).

mod order;
mod world;

use std::io::{BufRead, Write};

use wasmtime::component::{Component, Linker};
use wasmtime::error::Context;
use wasmtime::{Config, Engine, Result};
use wasmtime_wasi_http::p2::bindings::ProxyPre;

use order::Order;
use world::{Host, Instance};

#[tokio::main]
async fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("which component?")?;
    let engine = Engine::new(&Config::new())?;
    let component = Component::from_file(&engine, &path)?;
    let mut linker = Linker::<Host>::new(&engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    let pre = ProxyPre::new(linker.instantiate_pre(&component)?)?;
    let mut instance = None;
    for line in std::io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Order::Start(start) => {
                instance = Some(Instance::start(&pre, &start).await?);
                "{}".to_owned()
            }
            Order::Ask(ask) => {
                let instance = instance.as_mut().context("no instance: start one")?;
                match instance.ask(ask).await {
                    Ok(done) => serde_json::to_string(&done)?,
                    // For example, a request that is not valid HTTP.
                    Err(error) => serde_json::json!({ "error": format!("{error:#}") }).to_string(),
                }
            }
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
