//! `cargo xtask bench redirect`: what a short link from a gateway's memory costs, against a redirect that the same
//! Envoy makes by its own route, without Weir. Clicks are counted, and go to Redis.

use super::turns::{self, Arguments, Load, Names};
use crate::up::Stop;
use anyhow::{Context, Result, ensure};
use std::process::ExitCode;
use std::time::Duration;
use weir_link::code::LinkId;
use weir_link::record::Link;
use weir_scripts::keys::{DEFAULT_PREFIX, LinkKeys, link_domains};
use weir_stack::envoy::{Envoy, EnvoyConfig};
use weir_stack::http::{Connection, Method};
use weir_stack::redis::{RedisOptions, RedisServer};
use weir_stack::report::Console;
use weir_stack::tools::{self, Options, Tools};
use weir_stack::wasm::{self, Messages};
use weir_stack::{DataDir, ports};

const NAMES: Names = Names {
    bare: "Envoy's own redirect",
    ours: "a short link",
    bar: 0.75,
};

const LINK: &str = "b/aZ3k9Qx";
const PATH: &str = "/aZ3k9Qx";
/// Where both lead: as long a `Location` as Envoy's.
const TARGET: &str = "https://target.example/page";
/// Any host with this name, whatever its port: wrk sends it by itself.
const DOMAINS: &str = r#"{"version":1,"domains":[{"id":"b","hosts":["127.0.0.1"]}]}"#;

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
    let data = DataDir::open(None)?;
    let redis = redis_with_link(&data).await?;
    let bare = EnvoyConfig::shortlink()?.redirecting()?;
    let ours = EnvoyConfig::shortlink()?.redis("127.0.0.1", redis.port())?;
    let bare = turns::start(tools, bare, &data.path.join("bare")).await?;
    let ours = turns::start(tools, ours, &data.path.join("ours")).await?;
    for envoy in [&bare, &ours] {
        wait_for_redirect(envoy).await?;
    }
    let load = Load {
        path: PATH,
        wrk: &[],
    };
    turns::measure(arguments, NAMES, [&bare, &ours], load)?;
    check_memory(&ours).await
}

async fn redis_with_link(data: &DataDir) -> Result<RedisServer> {
    let tool = tools::Redis::find_or_get(&mut Console)?;
    let log = data.path.join("redis.log");
    let options = RedisOptions {
        durable: false,
        ..RedisOptions::durable(ports::free()?, &data.path, &log)
    };
    let server = RedisServer::start_with(&tool, &options).await?;
    let mut connection = server.connection().await?;
    let link: LinkId = LINK.parse().context("the link has a bad name")?;
    let record = LinkKeys::new(DEFAULT_PREFIX, &link).record();
    let pairs = [
        (link_domains(DEFAULT_PREFIX), DOMAINS.as_bytes().to_vec()),
        (record, Link::to(TARGET).encode()),
    ];
    for (key, value) in pairs {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(value);
        set.query_async::<()>(&mut connection).await?;
    }
    Ok(server)
}

/// Until the worker has read its domains, requests go past the filter.
async fn wait_for_redirect(envoy: &Envoy) -> Result<()> {
    let url = envoy.url();
    let authority = url.trim_start_matches("http://");
    let mut last = String::new();
    for _ in 0..100 {
        let mut connection = Connection::open(authority).await?;
        let answer = connection.send(Method::GET, PATH, &[], "").await?;
        if answer.header("location") == Some(TARGET) {
            return Ok(());
        }
        last = format!("{} {:?}", answer.status, answer.header("location"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("{url} does not redirect: {last}")
}

/// The link was in memory all the time, and every click was counted.
async fn check_memory(envoy: &Envoy) -> Result<()> {
    let stat = async |name: &str| {
        envoy
            .stat(&format!("wasmcustom.weir_shortlink_{name}"))
            .await
    };
    let (memory, redis) = (
        stat("found_total.place.memory").await?,
        stat("found_total.place.redis").await?,
    );
    let clicks = stat("clicks_total.outcome.counted").await?;
    println!("{memory} from memory, {redis} from Redis; {clicks} clicks counted");
    ensure!(
        redis * 1_000 < memory,
        "it was not memory that was measured"
    );
    ensure!(clicks >= memory, "clicks were not counted");
    Ok(())
}
