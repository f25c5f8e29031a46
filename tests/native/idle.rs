//! An idle gateway with the native module counts no failures and logs no warnings.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::native::Host;
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{DataDir, ports, tools};
use weir_tests::{Server, response};

/// Whether a statistic counts failures.
fn is_failure(name: &str) -> bool {
    ["fail", "_5xx", "panics", "refused"]
        .iter()
        .any(|word| name.contains(word))
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_native_gateway_counts_no_failure_and_logs_no_warning() -> Result<()> {
    Host::Native.choose();
    let data = DataDir::open(None)?;
    let redis = tools::Redis::find_or_get(&mut SilentReporter)?;
    let log = data.path.join("redis.log");
    let server = RedisServer::start(&redis, ports::free()?, &data.path, &log).await?;
    // Health checks of an origin that is away are failures.
    let serving = |_: &hyper::Request<()>, _: hyper::body::Bytes| response(200, "text/plain", "");
    let origin = Server::start(0, Arc::new(serving)).await?;
    let config = EnvoyConfig::native(&Host::Native.library()?, server.port())?
        .origin(origin.address())?
        .gateway_port(ports::free()?)?
        .admin_port(ports::free()?)?;
    let secrets = ["WEIR_CLAIM_SECRET", "WEIR_TOKEN_SECRET"];
    let secret = "0123456789abcdef0123456789abcdef";
    let options = EnvoyOptions {
        config,
        workers: 2,
        log_level: "info".to_owned(),
        variables: secrets
            .map(|name| (name.to_owned(), secret.to_owned()))
            .to_vec(),
        clock_ahead_ms: None,
        drain_s: None,
        dir: data.path.clone(),
    };
    let tool = tools::Envoy::find_or_get(&tools::Options::default(), &mut SilentReporter)?;
    let envoy = Envoy::start(&tool, &options).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stats = envoy.stats().await?;
    ensure!(!stats.is_empty());
    let failures: Vec<_> = stats
        .iter()
        .filter(|(name, count)| **count > 0 && is_failure(name))
        .collect();
    assert_eq!(failures, []);
    let log = std::fs::read_to_string(data.path.join("envoy.log"))?;
    let grave = log.lines().filter(|line| {
        line.contains("weir") && ["[warn", "[error"].iter().any(|level| line.contains(level))
    });
    assert_eq!(grave.collect::<Vec<_>>(), [""; 0]);
    Ok(())
}
