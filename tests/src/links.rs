//! Gateways that do nothing but answer short links, from `envoy/shortlink.yaml`, with an origin and a Redis.

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

/// The one domain: gateways are asked by their address, and that is its host.
const DOMAINS: &str = r#"{ "domains": [{ "id": "s", "hosts": ["127.0.0.1"], "scheme": "http",
    "not_found_page": "<p>nothing here" }] }"#;

/// What to start.
#[derive(Clone, Copy, Debug)]
pub struct LinkSetup<'a> {
    /// How many Envoys.
    pub gateways: usize,
    /// The workers of each.
    pub workers: u32,
    /// The filter's configuration, in JSON, if it is not the shipped one.
    pub config: Option<&'a str>,
}

/// Gateways, their origin and their Redis.
#[derive(Debug)]
pub struct LinkGateways {
    // Fields are dropped in this order: what sends goes before what it sends to.
    /// The gateways.
    pub envoys: Vec<Envoy>,
    /// The origin.
    pub origin: Origin,
    /// Redis; it forgets all when it stops.
    pub redis: RedisServer,
    secrets: Secrets,
    config: EnvoyConfig,
    data: DataDir,
}

impl LinkSetup<'_> {
    /// Builds what is not up to date, and starts everything.
    ///
    /// # Errors
    /// When something does not start. What Envoy has against a configuration is told.
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
        // Nobody pays here.
        provider_port: 9,
        flags: vec![],
        secrets: secrets.clone(),
    };
    Origin::start(&ensure_built()?, options, &data.path.join("origin.log")).await
}

impl LinkGateways {
    /// Starts one more gateway, and waits until its workers know their domains.
    ///
    /// # Errors
    /// When it does not start.
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
        // Past the filter the origin would answer, without the file: so long a worker knows nothing.
        let loaded = "wasmcustom.weir_shortlink_domains_loaded_total";
        until("each worker has read its domains", async || {
            // Each connection meets any worker, and a worker begins to poll with its first request.
            let _ = self.ask(number, "/", &[]).await;
            let count = self.envoys[number].stat(loaded).await;
            count.is_ok_and(|count| count >= Host::of_run().engines(workers))
        })
        .await
    }

    /// The folder of what they write.
    pub fn data(&self) -> &std::path::Path {
        &self.data.path
    }

    /// Where a gateway listens, as `127.0.0.1:port`.
    pub fn authority(&self, gateway: usize) -> String {
        let url = self.envoys[gateway].url();
        url.trim_start_matches("http://").to_owned()
    }

    /// One GET at a gateway, over a connection of its own: so it meets any worker.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn ask(
        &self,
        gateway: usize,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response> {
        let mut connection = Connection::open(&self.authority(gateway)).await?;
        connection.send(Method::GET, path, headers, "").await
    }

    /// Where a gateway sends a click on `code`.
    ///
    /// # Errors
    /// When it is no redirect.
    pub async fn location(&self, gateway: usize, code: &str) -> Result<String> {
        let answer = self.ask(gateway, &format!("/{code}"), &[]).await?;
        let location = answer.header("location");
        let location = location.with_context(|| format!("{}: {}", answer.status, answer.text()))?;
        Ok(location.to_owned())
    }

    /// A request to the origin's admin port, which must be answered with `status`.
    ///
    /// # Errors
    /// When it is not.
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

    /// Makes a link to `target` with further `fields`, and returns its code.
    ///
    /// # Errors
    /// When the origin does not make it.
    pub async fn create(&self, target: &str, fields: Value) -> Result<String> {
        let mut link = json!({ "target": target });
        if let (Some(link), Some(fields)) = (link.as_object_mut(), fields.as_object()) {
            link.extend(fields.clone());
        }
        let made = self.admin(Method::POST, "/links", link, 201).await?;
        let code = made["code"].as_str().context("no code")?;
        Ok(code.to_owned())
    }

    /// A counter of the filter, by the end of its name, of all gateways together.
    ///
    /// # Errors
    /// When one does not tell.
    pub async fn count(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for envoy in &self.envoys {
            sum += envoy
                .stat(&format!("wasmcustom.weir_shortlink_{name}"))
                .await?;
        }
        Ok(sum)
    }

    /// An error if a gateway has ended, or a filter of its has trapped.
    ///
    /// # Errors
    /// So.
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
