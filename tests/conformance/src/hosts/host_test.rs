//! The built filters in `host-test`. Calls go directly to Redis; the Envoy host covers the bridge.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::runtime::Runtime;
use weir_host_test::{Call, Host as Proxy, Reply, StreamState, Upstream};
use weir_stack::{wasm, workspace};

use crate::host::{self, Host, Replay};
use crate::hosts::engine::{
    HOLDS_MS, REDIS_CLUSTER, STARTS_BEFORE_MS, apply, dump, reads_bodies, request_headers, text,
};
use crate::store::{Store, changes};
use crate::text::{escape, unescape};
use crate::vector::{Headers, Outcome, Step, Vector};

/// The name of this host.
pub const NAME: &str = "host-test";

/// The origin's cluster name in `envoy/weir.yaml`.
pub const ORIGIN_CLUSTER: &str = "origin";

/// `host-test` and a Redis.
pub struct HostTest {
    store: Store,
}

impl HostTest {
    /// Builds the filters, and starts the Redis.
    ///
    /// # Errors
    /// The filters cannot be built, or Redis does not start.
    pub fn start(runtime: &Runtime) -> Result<Self> {
        wasm::ensure_filters()?;
        let store = Store::start(runtime)?;
        Ok(Self { store })
    }

    fn replay_one(&mut self, vector: &Vector) -> Result<Replay> {
        let first_ms = vector.steps.first().context("no steps")?.at_ms;
        self.store.clear()?;
        self.store.set_time(first_ms)?;
        self.store.load(&vector.stored)?;
        let prefix = vector.key_prefix();
        let mut before = dump(&mut self.store, prefix)?;
        let proxy = self.proxy(vector, first_ms)?;
        // An engine reads Redis from its first stream on.
        proxy.malformed_request(0);
        proxy.run_until_idle();
        let mut now_ms = first_ms - STARTS_BEFORE_MS;
        let mut outcomes = Vec::new();
        for step in &vector.steps {
            self.store.set_time(step.at_ms)?;
            self.store.change(&step.stored)?;
            apply(&step.stored, &mut before);
            if now_ms != step.at_ms {
                proxy.advance(Duration::from_millis(step.at_ms - now_ms));
                now_ms = step.at_ms;
                // The next poll reads what the last one announced.
                for _ in 0..2 {
                    proxy.tick();
                    proxy.run_until_idle();
                }
            }
            let outcome = ask(&proxy, vector, step)?.to_method(&step.request.method);
            outcomes.push(outcome.sorted());
        }
        ensure!(proxy.is_alive(0), "the VM has died: {:?}", proxy.logs());
        let after = dump(&mut self.store, prefix)?;
        Ok(Replay {
            outcomes,
            effect: changes(&before, &after),
        })
    }

    fn proxy(&self, vector: &Vector, first_ms: u64) -> Result<Proxy> {
        let origin = vector.clone();
        let fetched = move |call: &Call| {
            let path = call.headers.text(":path").unwrap_or_default();
            let answer = origin.origin_answer(path);
            let reply = Reply::status(answer.status, unescape(&answer.body).unwrap_or_default());
            answer
                .headers
                .iter()
                .fold(reply, |reply, (name, value)| reply.header(name, value))
        };
        let mut builder = Proxy::builder()
            .module_file(workspace::out_dir().join(format!("{}.wasm", vector.engine)))
            .vm_id("conformance")
            .plugin_config(vector.config.to_string())
            .start_at_ns((first_ms - STARTS_BEFORE_MS) * 1_000_000)
            .cluster(
                REDIS_CLUSTER,
                Upstream::resp(format!("127.0.0.1:{}", self.store.port())),
            )
            .cluster(ORIGIN_CLUSTER, Upstream::scripted(fetched));
        if reads_bodies(&vector.engine) {
            builder = builder.allow_on_headers_stop_iteration();
        }
        for (name, secret) in &vector.secrets {
            builder = builder.env(name, secret);
        }
        Ok(builder.start()?)
    }
}

/// At least the tick interval of an engine that holds requests.
const TICK_MS: u64 = 500;

/// Runs one request to its end.
fn ask(proxy: &Proxy, vector: &Vector, step: &Step) -> Result<Outcome> {
    let headers = request_headers(&step.request)?;
    let mut request = proxy
        .request(0)
        .without(":scheme")
        .property(&["source", "address"], &step.request.from);
    for (name, value) in &headers {
        request = request.header(std::str::from_utf8(name)?, value);
    }
    let body = unescape(&step.request.body)?;
    if !body.is_empty() {
        request = request.body(body);
    }
    let stream = request.send();
    proxy.run_until_idle();
    if stream.reply().is_none() && !stream.is_continued() {
        // The next tick finds that the time has passed.
        proxy.advance(Duration::from_millis(HOLDS_MS + TICK_MS));
        proxy.run_until_idle();
    }
    if let Some(reply) = stream.reply() {
        let headers = pairs(reply.headers.iter());
        return Ok(match reply.grpc_status {
            Some(status) => host::answered_in_grpc(status, headers, &reply.body),
            None => host::answered(reply.status, headers, &reply.body),
        });
    }
    if !stream.is_continued() {
        return Ok(Outcome::Unknown);
    }
    let observed = pairs(stream.upstream_request().headers.iter());
    let origin = vector.origin_answer(&step.request.path);
    let sent = origin
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    stream.respond(origin.status, sent, unescape(&origin.body)?);
    proxy.run_until_idle();
    let StreamState::Responded(response) = stream.state() else {
        return Ok(Outcome::Unknown);
    };
    let actual = pairs(response.headers.iter());
    Ok(host::went_on(&text(&headers), observed, &origin, actual))
}

fn pairs<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Headers {
    headers
        .map(|(name, value)| (name.to_owned(), escape(value)))
        .collect()
}

impl Host for HostTest {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cannot(&self, _vector: &Vector) -> Option<&'static str> {
        None
    }

    fn replay(&mut self, vectors: &[Vector]) -> Result<Vec<Result<Replay>>> {
        Ok(vectors
            .iter()
            .map(|vector| self.replay_one(vector))
            .collect())
    }
}
