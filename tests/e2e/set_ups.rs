//! Wrong set-ups: the filter's log and `weir-origin doctor` report the problem. Valid set-ups of all filters load.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions, validate};
use weir_stack::http::{self, Method};
use weir_stack::native::Host;
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::tools::{self, Options};
use weir_stack::{Secrets, Stack, origin, ports, wasm, workspace};
use weir_tests::{Server, buy, is_left_out_on_native, response, stock_balance, until, verdict};

/// Envoy's environment variables.
fn variables() -> Result<Vec<(String, String)>> {
    let secrets = Secrets::random()?;
    let variables = BTreeMap::from([
        ("WEIR_ROOM_SECRET", Secrets::random()?.claim),
        ("WEIR_CLAIM_SECRET", secrets.claim),
        ("WEIR_TOKEN_SECRET", secrets.token),
        ("WEIR_EVENTS_KEY_SHOP", secrets.events),
    ]);
    let owned = variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    Ok(owned.collect())
}

fn options(config: EnvoyConfig, dir: &tempfile::TempDir) -> Result<EnvoyOptions> {
    Ok(EnvoyOptions {
        config,
        workers: 1,
        log_level: "info".into(),
        variables: variables()?,
        clock_ahead_ms: None,
        drain_s: None,
        dir: dir.path().to_path_buf(),
    })
}

/// Returns Envoy, after building the filters.
fn tool() -> Result<tools::Envoy> {
    wasm::ensure_filters()?;
    tools::Envoy::find_or_get(&Options::default(), &mut SilentReporter)
}

/// Starts a gateway with this edit of its configuration, sends it an order, and waits for `words` in its log.
async fn logs(words: &str, redis_port: u16, edit: impl FnOnce(&mut Value)) -> Result<String> {
    let dir = tempfile::tempdir()?;
    let config = EnvoyConfig::shipped()?.redis("127.0.0.1", redis_port)?;
    let mut tree: Value = serde_json::from_str(&config.render()?)?;
    edit(&mut tree);
    let config = EnvoyConfig::parse(&tree.to_string())?
        .gateway_port(ports::free()?)?
        .admin_port(ports::free()?)?;
    let envoy = Envoy::start(&tool()?, &options(config, &dir)?).await?;
    let order = format!("{}/sales/s1/orders", envoy.url());
    let log = dir.path().join("envoy.log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    // A worker without requests polls less and less often.
    let is_said = async || {
        let _ = http::send(Method::POST, &order, &[("x-user-id", "u1")], String::new()).await;
        read().contains(words)
    };
    let response = until(words, is_said).await;
    response.with_context(read)?;
    Ok(read())
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_with_wrong_claim_secret_sells_nothing_and_logs_why() -> Result<()> {
    let stack = Stack::builder().workers(1).start().await?;
    stack.open_sale("s1", 5, 1).await?;
    let redis = stack.redis.server.as_ref().context("its own Redis")?;
    let dir = tempfile::tempdir()?;
    let config = EnvoyConfig::shipped()?
        .host(Host::of_run())
        .redis("127.0.0.1", redis.port())?
        .gateway_port(ports::free()?)?
        .admin_port(ports::free()?)?;
    // Its secrets differ.
    let other = Envoy::start(&tool()?, &options(config, &dir)?).await?;
    let order = format!("{}/sales/s1/orders", other.url());
    let user = [("x-user-id", "u1")];
    until("the other gateway knows of the sale", async || {
        let answer = http::send(Method::POST, &order, &user, String::new()).await;
        answer.is_ok_and(|answer| verdict(&answer) == "misconfigured" && answer.status == 503)
    })
    .await?;
    let log = std::fs::read_to_string(dir.path().join("envoy.log"))?;
    assert!(
        log.contains("orders are refused: this gateway signs claims"),
        "{log}"
    );
    let before = stock_balance(&stack, "s1").await?;
    assert_eq!((before.held, before.stock), (0, 5));
    assert_eq!(buy(&stack, "s1", "u1").await?.status, 201);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn causes_of_redis_failures_are_distinguished() -> Result<()> {
    if is_left_out_on_native("the bridge") {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let redis = tools::Redis::find_or_get(&mut SilentReporter)?;
    let port = ports::free()?;
    let _redis =
        RedisServer::start(&redis, port, dir.path(), &dir.path().join("redis.log")).await?;
    let listeners = "/static_resources/listeners";
    let clusters = "/static_resources/clusters";

    let right = logs("Redis answers through cluster weir_redis", port, |_| {}).await?;
    let started = "configured, uses Redis through cluster weir_redis";
    assert_eq!(right.matches(started).count(), 1, "{right}");
    assert!(
        !right.contains("lost the connection to the bridge"),
        "{right}"
    );

    let unreachable = ports::free()?;
    logs(
        "cluster weir_redis: the bridge cannot reach Redis",
        unreachable,
        |_| {},
    )
    .await?;
    logs("cluster weir_redis: it is not the bridge", port, |tree| {
        let filters = tree
            .pointer_mut(&format!("{listeners}/1/filter_chains/0/filters"))
            .unwrap();
        filters.as_array_mut().unwrap().remove(0);
    })
    .await?;
    logs(
        "cluster weir_redis: its internal listener does not exist",
        port,
        |tree| {
            tree.pointer_mut(listeners)
                .unwrap()
                .as_array_mut()
                .unwrap()
                .remove(1);
        },
    )
    .await?;
    logs("cluster weir_redis: it is not the bridge", port, |tree| {
        let clusters = tree.pointer_mut(clusters).unwrap();
        let mut endpoints = clusters[1]["load_assignment"].clone();
        endpoints["cluster_name"] = json!("weir_redis");
        clusters[0]["load_assignment"] = endpoints;
    })
    .await?;
    logs(
        "cannot call cluster weir_redis: the cluster does not exist",
        port,
        |tree| {
            let cluster = &mut tree.pointer_mut(clusters).unwrap()[0];
            cluster["name"] = json!("other");
            cluster["load_assignment"]["cluster_name"] = json!("other");
        },
    )
    .await?;
    Ok(())
}

/// The VMs of Envoy's main thread cannot reach Redis and must not try: each attempt would count as a failure.
#[tokio::test(flavor = "multi_thread")]
async fn idle_gateway_counts_no_failures_and_logs_no_warnings() -> Result<()> {
    if is_left_out_on_native("the bridge") {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let redis = tools::Redis::find_or_get(&mut SilentReporter)?;
    let port = ports::free()?;
    let _redis =
        RedisServer::start(&redis, port, dir.path(), &dir.path().join("redis.log")).await?;
    // Health checks of an origin that is away are failures.
    let serving = |_: &hyper::Request<()>, _: hyper::body::Bytes| response(200, "text/plain", "");
    let origin = Server::start(0, Arc::new(serving)).await?;
    let config = EnvoyConfig::all()?
        .origin(origin.address())?
        .redis("127.0.0.1", port)?
        .gateway_port(ports::free()?)?
        .admin_port(ports::free()?)?;
    let envoy = Envoy::start(&tool()?, &options(config, &dir)?).await?;
    let failures = async || -> Result<Vec<(String, u64)>> {
        let is_failure = |name: &str| name.contains("fail") || name.contains("_5xx");
        let stats = envoy.stats().await?.into_iter();
        // The first check of the origin may time out while Envoy compiles the filters.
        let allowed = |name: &str| u64::from(name.starts_with("cluster.origin.health_check."));
        let is_bad = |(name, count): &(String, u64)| *count > allowed(name) && is_failure(name);
        Ok(stats.filter(is_bad).collect())
    };
    let read = || std::fs::read_to_string(dir.path().join("envoy.log")).unwrap_or_default();
    let warnings = || {
        let log = read();
        let grave = log.lines().filter(|line| {
            line.contains("wasm log") && ["[warn", "[error"].iter().any(|it| line.contains(it))
        });
        grave.map(str::to_owned).collect::<Vec<_>>()
    };
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(failures().await?, [], "{}", read());
    assert_eq!(warnings(), [""; 0]);
    let order = format!("{}/sales/none/orders", envoy.url());
    until("Redis answers", async || {
        let _ = http::send(Method::POST, &order, &[("x-user-id", "u1")], String::new()).await;
        read().contains("seckill-gate: Redis answers")
    })
    .await?;
    let name = "cluster.weir_redis.upstream_cx_connect_fail";
    assert_eq!(envoy.stat(name).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_filters_load_on_one_listener() -> Result<()> {
    if is_left_out_on_native("the shipped file for WebAssembly") {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    validate(&tool()?, &options(EnvoyConfig::all()?, &dir)?)
}

/// Answers every request with 200.
async fn answer_all(listener: TcpListener) {
    while let Ok((mut client, _)) = listener.accept().await {
        let _ = client.read(&mut [0; 4_096]).await;
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let _ = client.write_all(answer).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_move_to_another_origin_during_an_outage() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let config = EnvoyConfig::shipped()?
        .origin(listener.local_addr()?)?
        .edit_cluster("origin", |cluster| {
            // Retries alone must suffice: checks notice an outage later.
            let fields = cluster.as_object_mut().context("no cluster")?;
            fields.remove("health_checks").context("no checks")?;
            let endpoints = &mut cluster["load_assignment"]["endpoints"][0]["lb_endpoints"];
            let endpoints = endpoints.as_array_mut().context("no endpoints")?;
            let mut away = endpoints[0].clone();
            let address = &mut away["endpoint"]["address"]["socket_address"];
            address["port_value"] = json!(ports::free()?);
            endpoints.push(away);
            Ok(())
        })?
        .gateway_port(ports::free()?)?
        .admin_port(ports::free()?)?;
    tokio::spawn(answer_all(listener));
    let envoy = Envoy::start(&tool()?, &options(config, &dir)?).await?;
    for number in 0..16 {
        let url = format!("{}/public-sales", envoy.url());
        let answer = http::send(Method::GET, &url, &[], String::new()).await?;
        assert_eq!(answer.status, 200, "{number}: {}", answer.text());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_accepts_every_complete_file() -> Result<()> {
    if is_left_out_on_native("the shipped files for WebAssembly") {
        return Ok(());
    }
    let (tool, out) = (tool()?, workspace::out_dir());
    let mut count = 0;
    for entry in std::fs::read_dir(workspace::root().join("envoy"))? {
        let path = entry?.path();
        // A separate test covers the native module's file.
        let is_native = path.ends_with("native.yaml");
        if is_native || path.extension().is_none_or(|ending| ending != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let text = text.replace("target/weir/", &format!("{}/", out.display()));
        let dir = tempfile::tempdir()?;
        let config = EnvoyConfig::parse(&text)?;
        validate(&tool, &options(config, &dir)?).with_context(|| path.display().to_string())?;
        count += 1;
    }
    assert!(count >= 8, "{count}");
    Ok(())
}

/// The doctor reads a running gateway's admin interface.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_nothing_for_a_running_stack() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("doctor")
        .start()
        .await?;
    let of = |name: &str| {
        let mut variables = stack.gateway_variables().iter();
        let found = variables.find(|(existing, _)| existing == name);
        found
            .map(|(_, value)| value.clone())
            .context("no such secret")
    };
    let authority = |url: String| url.trim_start_matches("http://").to_owned();
    let output = Command::new(origin::ensure_built()?)
        .args(["doctor", "--envoy-admin", &stack.envoy_admin_url()])
        .env_clear()
        .env("WEIR_CLAIM_SECRET", of("WEIR_CLAIM_SECRET")?)
        .env("WEIR_ADMIN_TOKEN", "0123456789abcdef0123456789abcdef")
        .env("WEIR_KEY_PREFIX", "doctor")
        .env("WEIR_REDIS_URL", stack.redis_url())
        .env("WEIR_LISTEN", authority(stack.origin_url()))
        .env("WEIR_ADMIN_LISTEN", authority(stack.origin_admin_url()))
        .output()?;
    assert_eq!(String::from_utf8(output.stdout)?, "");
    assert_eq!(output.status.code(), Some(0));
    Ok(())
}
