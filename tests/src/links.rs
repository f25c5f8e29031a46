//! Gateways with only short links, from `envoy/shortlink.yaml`, with an origin and a Redis.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::http::{self, Connection, Method, Response};
use weir_stack::native::Host;
use weir_stack::origin::{Origin, OriginOptions, ensure_built};
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{DataDir, Secrets, ports, tools};

use crate::limiters::{check_envoys, redis_in};
use crate::until;

/// The only domain, whose host is the gateways' address.
const DOMAINS: &str = r#"{ "domains": [{ "id": "s", "hosts": ["127.0.0.1"], "scheme": "http",
    "not_found_page": "<p>nothing here" }] }"#;

/// The parameters of [`LinkGateways`].
#[derive(Clone, Copy, Debug)]
pub struct LinkSetup<'a> {
    /// The number of gateways.
    pub gateways: usize,
    /// Workers per gateway.
    pub workers: u32,
    /// The filter's configuration as JSON, if it is not the shipped one.
    pub config: Option<&'a str>,
}

/// Gateways, their origin and their Redis.
#[derive(Debug)]
pub struct LinkGateways {
    // Fields are dropped in this order: clients before their servers.
    /// The gateways.
    pub envoys: Vec<Envoy>,
    /// The origin.
    pub origin: Origin,
    /// Redis without persistence.
    pub redis: RedisServer,
    secrets: Secrets,
    config: EnvoyConfig,
    data: DataDir,
}

impl LinkSetup<'_> {
    /// Builds outdated programs, and starts everything.
    ///
    /// # Errors
    /// A process does not start. The error contains Envoy's message about an invalid configuration.
    pub async fn start(self) -> Result<LinkGateways> {
        Host::of_run().ensure_built()?;
        let data = DataDir::open(None)?;
        let redis = redis_in(&data).await?;
        let secrets = Secrets::random()?;
        let origin = origin_in(&data, &redis, &secrets).await?;
        let mut config = EnvoyConfig::shortlink()?;
        if let Some(json) = self.config {
            config = config.links_config(json)?;
        }
        let address = origin.url().trim_start_matches("http://").parse()?;
        let config = config.origin(address)?.redis("127.0.0.1", redis.port())?;
        let mut gateways = LinkGateways {
            envoys: vec![],
            origin,
            redis,
            secrets,
            config,
            data,
        };
        for _ in 0..self.gateways {
            gateways.add_envoy(self.workers).await?;
        }
        Ok(gateways)
    }
}

async fn origin_in(data: &DataDir, redis: &RedisServer, secrets: &Secrets) -> Result<Origin> {
    let domains = data.path.join("links.json");
    std::fs::write(&domains, DOMAINS)?;
    let options = OriginOptions {
        events_log: None,
        fitment: None,
        edge_secret: None,
        port: ports::free()?,
        admin_port: ports::free()?,
        database: data.path.join("weir.db"),
        redis_url: redis.url(),
        redis_ca: None,
        key_prefix: "weir".to_owned(),
        risk_rules: None,
        links: Some(domains),
        // No payments occur.
        provider_port: 9,
        flags: vec![],
        secrets: secrets.clone(),
    };
    Origin::start(&ensure_built()?, options, &data.path.join("origin.log")).await
}

impl LinkGateways {
    /// Starts another gateway, and waits until its workers have loaded their domains.
    ///
    /// # Errors
    /// It does not start.
    pub async fn add_envoy(&mut self, workers: u32) -> Result<()> {
        let tool = tools::Envoy::find_or_get(&tools::Options::default(), &mut SilentReporter)?;
        let config = self.config.clone().gateway_port(ports::free()?)?;
        let number = self.envoys.len();
        let options = EnvoyOptions {
            clock_ahead_ms: None,
            drain_s: None,
            config: config.admin_port(ports::free()?)?,
            workers,
            log_level: "info".to_owned(),
            variables: vec![],
            dir: self.data.path.join(format!("gateway-{number}")),
        };
        self.envoys.push(Envoy::start(&tool, &options).await?);
        // Until a worker has loaded its domains, requests pass the filter and the origin answers.
        let loaded = "wasmcustom.weir_shortlink_domains_loaded_total";
        until("each worker has read its domains", async || {
            // Each connection reaches any worker, and a worker starts to poll at its first request.
            let _ = self.ask(number, "/", &[]).await;
            let count = self.envoys[number].stat(loaded).await;
            count.is_ok_and(|count| count >= Host::of_run().engines(workers))
        })
        .await
    }

    /// The folder of their data.
    pub fn data(&self) -> &std::path::Path {
        &self.data.path
    }

    /// A gateway's authority, `127.0.0.1:port`.
    pub fn authority(&self, gateway: usize) -> String {
        let url = self.envoys[gateway].url();
        url.trim_start_matches("http://").to_owned()
    }

    /// Sends one GET to a gateway over a new connection, which reaches any worker.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn ask(
        &self,
        gateway: usize,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response> {
        let mut connection = Connection::open(&self.authority(gateway)).await?;
        connection.send(Method::GET, path, headers, "").await
    }

    /// The target of a click on `code` at a gateway.
    ///
    /// # Errors
    /// The answer is not a redirect.
    pub async fn location(&self, gateway: usize, code: &str) -> Result<String> {
        let answer = self.ask(gateway, &format!("/{code}"), &[]).await?;
        let location = answer.header("location");
        let location = location.with_context(|| format!("{}: {}", answer.status, answer.text()))?;
        Ok(location.to_owned())
    }

    /// Sends a request to the origin's admin port, which must return `status`.
    ///
    /// # Errors
    /// It does not.
    pub async fn admin(
        &self,
        method: Method,
        path: &str,
        body: Value,
        status: u16,
    ) -> Result<Value> {
        let url = format!("{}{path}", self.origin.admin_url());
        let token = format!("Bearer {}", self.secrets.admin_token);
        let headers = [
            ("authorization", token.as_str()),
            ("content-type", "application/json"),
        ];
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = http::send(method, &url, &headers, body).await?;
        ensure!(
            answer.status == status,
            "{}: {}",
            answer.status,
            answer.text()
        );
        match answer.body.is_empty() {
            true => Ok(Value::Null),
            false => answer.json(),
        }
    }

    /// Creates a link to `target` with additional `fields`, and returns its code.
    ///
    /// # Errors
    /// The origin refuses.
    pub async fn create(&self, target: &str, fields: Value) -> Result<String> {
        let mut link = json!({ "target": target });
        if let (Some(link), Some(fields)) = (link.as_object_mut(), fields.as_object()) {
            link.extend(fields.clone());
        }
        let response = self.admin(Method::POST, "/links", link, 201).await?;
        let code = response["code"].as_str().context("no code")?;
        Ok(code.to_owned())
    }

    /// A counter of the filter, by the end of its name, summed over all gateways.
    ///
    /// # Errors
    /// A gateway does not report it.
    pub async fn count(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for envoy in &self.envoys {
            sum += envoy
                .stat(&format!("wasmcustom.weir_shortlink_{name}"))
                .await?;
        }
        Ok(sum)
    }

    /// Checks that all gateways are running and that no filter has trapped.
    ///
    /// # Errors
    /// A gateway ended, or a filter trapped.
    pub fn check(&mut self) -> Result<()> {
        check_envoys(&mut self.envoys)
    }
}

impl Drop for LinkGateways {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.data.keep();
            eprintln!("logs are in {}", self.data.path.display());
        }
    }
}
