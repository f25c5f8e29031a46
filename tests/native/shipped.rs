//! The shipped `envoy/native.yaml`.

use anyhow::{Context, Result};
use weir_stack::Stack;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::http::{self, Method};
use weir_stack::native::Host;
use weir_stack::report::SilentReporter;
use weir_stack::{DataDir, ports, tools};
use weir_tests::{until, use_garage};

#[tokio::test(flavor = "multi_thread")]
async fn shipped_configuration_sells_and_stores_garages() -> Result<()> {
    // Uses Redis, origin and secrets of a stack; the stack's own gateway is unused.
    let mut stack = Stack::builder()
        .host(Host::Native)
        .workers(1)
        .fitment()
        .start()
        .await?;
    stack.open_sale("shipped", 3, 1).await?;
    let server = stack.redis.server.as_ref().context("its own Redis")?;
    let origin = stack.origin_url();
    let data = DataDir::open(None)?;
    let config = EnvoyConfig::native(&Host::Native.library()?, server.port())?
        .gateway_port(ports::free()?)?
        .admin_port(ports::free()?)?
        .origin(origin.trim_start_matches("http://").parse()?)?;
    let options = EnvoyOptions {
        config,
        workers: 2,
        log_level: "info".to_owned(),
        variables: stack.gateway_variables().to_vec(),
        clock_ahead_ms: None,
        drain_s: None,
        dir: data.path.clone(),
    };
    let tool = tools::Envoy::find_or_get(&tools::Options::default(), &mut SilentReporter)?;
    let envoy = Envoy::start(&tool, &options).await?;
    let url = format!("{}/sales/shipped/orders", envoy.url());
    for user in ["a", "b", "c"] {
        until("it is granted", async || {
            let answer = http::send(Method::POST, &url, &[("x-user-id", user)], "").await;
            answer.is_ok_and(|answer| matches!(answer.status, 200 | 201))
        })
        .await?;
    }
    until("it is sold out", async || {
        let answer = http::send(Method::POST, &url, &[("x-user-id", "d")], "").await;
        answer.is_ok_and(|answer| answer.status == 409)
    })
    .await?;
    use_garage(&stack, &envoy.url()).await?;
    Ok(stack.check_children()?)
}
