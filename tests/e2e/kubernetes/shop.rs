//! A shop behind a gateway that a control plane has configured: its manifests' local values, and a sale through it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use url::Url;
use weir_stack::http::{self, Method};
use weir_stack::sale::known_at;
use weir_stack::{Stack, wasm, workspace};
use weir_tests::{Crowd, sold_out_exactly, users, verdict};

const STOCK: usize = 60;
const USERS: usize = 200;
const CONNECTIONS: usize = 8;

/// Replacements for values in manifests that differ locally; a missing value is an error.
pub(super) struct Places(Vec<(&'static str, String)>);

impl Places {
    /// The replacements common to all manifests: the modules, Redis, and its key prefix.
    pub(super) fn of(stack: &Stack) -> Result<Self> {
        let places = Self::without_prefix(stack)?;
        let prefix = format!("key_prefix: {}\n", stack.key_prefix);
        Ok(places.and("key_prefix: weir\n", prefix))
    }

    /// The same for a manifest with a JSON filter configuration.
    pub(super) fn of_json(stack: &Stack) -> Result<Self> {
        let places = Self::without_prefix(stack)?;
        let prefix = format!("\"key_prefix\": \"{}\"", stack.key_prefix);
        Ok(places.and("\"key_prefix\": \"weir\"", prefix))
    }

    fn without_prefix(stack: &Stack) -> Result<Self> {
        wasm::ensure_filters()?;
        let redis = port_of(stack.redis_url())?;
        Ok(Self(vec![
            ("/etc/weir/", format!("{}/", workspace::out_dir().display())),
            (
                "{ address: redis.weir.svc.cluster.local, port_value: 6379 }",
                format!("{{ address: 127.0.0.1, port_value: {redis} }}"),
            ),
        ]))
    }

    pub(super) fn and(mut self, from: &'static str, to: impl Into<String>) -> Self {
        self.0.push((from, to.into()));
        self
    }

    /// A manifest of `envoy/kubernetes` with all replacements.
    pub(super) fn put_into(&self, file: &str) -> Result<String> {
        let path = workspace::root().join("envoy/kubernetes").join(file);
        let mut text =
            std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for (from, to) in &self.0 {
            ensure!(text.contains(from), "{file} has no {from}");
            text = text.replace(from, to);
        }
        Ok(text)
    }
}

/// The port of a URL.
pub(super) fn port_of(url: &str) -> Result<u16> {
    Url::parse(url)?
        .port()
        .with_context(|| format!("no port: {url}"))
}

/// The gateway secrets of the stack.
pub(super) fn secrets(stack: &Stack) -> BTreeMap<String, String> {
    stack.gateway_variables().iter().cloned().collect()
}

/// The bytes of a module, for gateways that do not read files.
pub(super) fn module(name: &str) -> Result<Vec<u8>> {
    let path: &Path = &workspace::out_dir().join(name);
    std::fs::read(path).with_context(|| path.display().to_string())
}

/// A crowd buys only through this gateway: exactly the stock. Then one order is read and cancelled, and another is
/// requested while the origin is down.
pub(super) async fn sells(stack: &mut Stack, gateway: &str) -> Result<()> {
    stack.open_sale("mesh", STOCK as u64, 4).await?;
    stack.open_sale("later", 5, 1).await?;
    known_at(gateway, "mesh").await?;
    let gateways = vec![gateway.to_owned()];
    let crowd = Crowd::start_at(gateways, "mesh", users(0..USERS), CONNECTIONS);
    let verdicts = crowd.finish().await?;
    ensure!(
        verdicts.get("granted") == Some(&STOCK),
        "through the gateway: {verdicts:?}"
    );
    ensure!(
        verdicts.get("sold_out") == Some(&(USERS - STOCK)),
        "through the gateway: {verdicts:?}"
    );
    sold_out_exactly(stack, "mesh").await?;
    order_is_readable_and_cancellable(gateway).await?;
    origin_outage_returns_503(stack, gateway).await
}

async fn ask(gateway: &str, method: Method, path: &str, user: &str) -> Result<http::Response> {
    http::send(
        method,
        &format!("{gateway}{path}"),
        &[("x-user-id", user)],
        "",
    )
    .await
}

async fn order_is_readable_and_cancellable(gateway: &str) -> Result<()> {
    known_at(gateway, "later").await?;
    let answer = ask(gateway, Method::POST, "/sales/later/orders", "alice").await?;
    ensure!(answer.status == 201, "{}: {}", answer.status, answer.text());
    let answer: Value = answer.json()?;
    let path = format!("/orders/{}", answer["order"].as_str().context("no order")?);
    let response = ask(gateway, Method::GET, &path, "alice").await?;
    ensure!(
        response.status == 200,
        "{}: {}",
        response.status,
        response.text()
    );
    let others = ask(gateway, Method::GET, &path, "bob").await?;
    ensure!(others.status == 404, "{}: {}", others.status, others.text());
    let ended = ask(gateway, Method::POST, &format!("{path}/cancel"), "alice").await?;
    ensure!(ended.status == 200, "{}: {}", ended.status, ended.text());
    Ok(())
}

async fn origin_outage_returns_503(stack: &mut Stack, gateway: &str) -> Result<()> {
    stack.origin.process().kill();
    let answer = ask(gateway, Method::POST, "/sales/later/orders", "carol").await?;
    ensure!(answer.status == 503, "{}: {}", answer.status, answer.text());
    ensure!(verdict(&answer) == "unavailable", "{:?}", answer.headers);
    ensure!(
        answer.header("retry-after") == Some("1"),
        "{:?}",
        answer.headers
    );
    let problem = answer.json()?;
    ensure!(
        problem["type"] == "urn:weir:problem:unavailable",
        "{problem}"
    );
    Ok(())
}
