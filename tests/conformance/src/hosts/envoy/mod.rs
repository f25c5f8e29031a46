//! The built filters in a real Envoy with Redis: in WebAssembly with the bridge, or as the native module with or without its
//! fast path.
//!
//! One Envoy has a listener with a Unix socket for each vector, and therefore an engine for each, in a few VMs or in
//! one library. Its clock and that of Redis are stopped. All events of one time run for all vectors before the clocks
//! advance, so no engine ever observes time going back.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

mod client;
mod listener;
mod origin;
mod polls;
mod rest;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions, worker_socket};
use weir_stack::native;
use weir_stack::ports;
use weir_stack::report::SilentReporter;
use weir_stack::tools::{self, Clock};

use self::client::Delivery;
use self::listener::Loader;
use self::origin::{MARK, Origin};
use self::polls::{Poll, Polls};
use self::rest::Threads;
use crate::host::{self, Host, Replay};
use crate::hosts::engine::{REDIS_CLUSTER, apply, dump, request_headers, text};
use crate::store::{Store, changes};
use crate::text::{escape, unescape};
use crate::vector::{Headers, Outcome, RedisKeys, Request, Step, Vector};

/// The name of the host with filters in WebAssembly.
pub const WASM: &str = "wasm";

/// The name of the host with the HTTP filters of the native module.
pub const NATIVE: &str = "native";

/// The name of the host with the native module and its fast path. It gets each request in several deliveries.
pub const FAST_PATH: &str = "fast-path";

/// The number of engines per Envoy: with more, reading their documents would take longer than starting another Envoy.
const WASM_VECTORS_MAX: usize = 100;

/// Each engine ticks on its own thread. With more engines, one would always be running, and Envoy [never idle](rest).
const NATIVE_VECTORS_MAX: usize = 25;

/// How long before the first step Envoy's clock is stopped during startup, and the steps by which it advances until all
/// engines have read their documents: engines whose first attempt failed retry.
const STARTS_BEFORE_MS: u64 = 20_000;
const NUDGE_MS: u64 = 100;
const NUDGE_EVERY: Duration = Duration::from_millis(20);
const START_LIMIT: Duration = Duration::from_secs(30);

/// Work started earlier must finish before later requests. The path through the bridge takes about as many event loop
/// turns as one fence.
const FENCES: usize = 2;

/// Replays vectors in several Envoys, one after the other.
pub struct InEnvoy {
    name: &'static str,
    runtime: Runtime,
    envoy: tools::Envoy,
    filters: native::Host,
}

impl InEnvoy {
    /// Finds Envoy and builds the filters of the host `name`.
    ///
    /// # Errors
    /// Envoy is missing, or the filters cannot be built.
    pub fn new(options: &tools::Options, name: &str) -> Result<Self> {
        let (name, filters) = match name {
            NATIVE => (NATIVE, native::Host::Native),
            FAST_PATH => (FAST_PATH, native::Host::Native),
            _ => (WASM, native::Host::Wasm),
        };
        filters.ensure_built()?;
        Ok(Self {
            name,
            filters,
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?,
            envoy: tools::Envoy::find_or_get(options, &mut SilentReporter)?,
        })
    }

    fn loader(&self, redis_port: u16, gateway_port: u16) -> Result<Loader> {
        Ok(match self.filters.is_native() {
            true => Loader::Native {
                library: self.filters.library()?,
                redis_port,
                worker_socket: worker_socket(REDIS_CLUSTER, gateway_port.into()),
            },
            false => Loader::Wasm,
        })
    }

    /// The deliveries in which this host gets each request.
    fn deliveries(&self) -> &'static [Delivery] {
        match self.name {
            FAST_PATH => &[Delivery::Whole, Delivery::Split, Delivery::Pipelined],
            _ => &[Delivery::Whole],
        }
    }

    fn replay_some(&self, vectors: &[Vector], delivery: Delivery) -> Result<Vec<Result<Replay>>> {
        let mut run = Run::start(self, vectors, delivery)?;
        let times: BTreeSet<u64> = run.steps().map(|step| step.at_ms).collect();
        for at_ms in times {
            run.at(at_ms)?;
        }
        let ended: Vec<_> = run.replays.drain(..).collect();
        run.envoy.check()?;
        Ok(ended.into_iter().map(|replay| replay.result).collect())
    }
}

impl Host for InEnvoy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cannot(&self, vector: &Vector) -> Option<&'static str> {
        let is_sent = |step: &Step| unescape(&step.request.path).is_ok_and(|path| path.is_ascii());
        if !vector.steps.iter().all(is_sent) {
            return Some("Envoy refuses a path with bytes beyond ASCII before any filter sees it");
        }
        // Without Redis, these engines hold a request until they give up the first poll; the gate holds none that
        // continues.
        let cluster = vector.config["redis"]["cluster"].as_str();
        let has_none = cluster.is_some_and(|cluster| cluster != REDIS_CLUSTER);
        let is_answered = |step: &Step| matches!(step.expect, Outcome::Answered { .. });
        let may_hold = match vector.engine.as_str() {
            "shortlink-redirect" => true,
            "seckill-gate" => vector.steps.iter().any(is_answered),
            _ => false,
        };
        (may_hold && has_none).then_some("its clock stands still while a request waits")
    }

    fn replay(&mut self, vectors: &[Vector]) -> Result<Vec<Result<Replay>>> {
        // Vectors whose engines must read again use separate Envoys: other vectors' work between two of their steps
        // would change the time of the read.
        let polls = |index: &usize| vectors[*index].steps.iter().any(|step| step.polls > 0);
        let (polling, others): (Vec<usize>, Vec<usize>) = (0..vectors.len()).partition(polls);
        let mut replays = BTreeMap::new();
        let count_max = match self.filters.is_native() {
            true => NATIVE_VECTORS_MAX,
            false => WASM_VECTORS_MAX,
        };
        for some in others.chunks(count_max).chain(polling.chunks(count_max)) {
            let requested: Vec<Vector> = some.iter().map(|&index| vectors[index].clone()).collect();
            for delivery in self.deliveries() {
                for (&index, replay) in some.iter().zip(self.replay_some(&requested, *delivery)?) {
                    let replay = replay.with_context(|| format!("delivered {delivery:?}"));
                    // The first wrong result is the one that counts.
                    let is_right = |replay: &Result<Replay>| {
                        let expected = Replay::expected(&vectors[index]);
                        replay.as_ref().is_ok_and(|replay| *replay == expected)
                    };
                    if replays.get(&index).is_none_or(is_right) {
                        replays.insert(index, replay);
                    }
                }
            }
        }
        Ok(replays.into_values().collect())
    }
}

/// One Envoy with its Redis and origin.
struct Run<'a> {
    vectors: &'a [Vector],
    delivery: Delivery,
    replays: Vec<Progress>,
    envoy: Envoy,
    /// Set if requests cannot show that all work has finished.
    threads: Option<Threads>,
    clock: Clock,
    store: Store,
    polls: Polls,
    origin: Origin,
    dir: TempDir,
}

/// The progress of a vector.
struct Progress {
    next: usize,
    before: RedisKeys,
    result: Result<Replay>,
}

impl<'a> Run<'a> {
    fn start(host: &InEnvoy, vectors: &'a [Vector], delivery: Delivery) -> Result<Self> {
        let first_ms = vectors.iter().filter_map(|vector| vector.steps.first());
        let first_ms = first_ms.map(|step| step.at_ms).min().context("no steps")?;
        let mut store = Store::start(&host.runtime)?;
        store.set_time(first_ms)?;
        let mut replays = Vec::new();
        for vector in vectors {
            store.load(&vector.stored)?;
            let before = dump(&mut store, vector.key_prefix())?;
            replays.push(Progress {
                next: 0,
                before,
                result: Ok(Replay::default()),
            });
        }
        let polls = Polls::watch(store.port())?;
        let origin = Origin::start()?;
        let dir = tempfile::tempdir()?;
        let starts_ms = first_ms - STARTS_BEFORE_MS;
        let clock = Clock::stopped(&dir.path().join("clock"), starts_ms.try_into()?)?;
        let mut variables: BTreeMap<String, String> = listener::shipped_secrets();
        variables.extend(clock.variables());
        for (name, secret) in vectors.iter().flat_map(|vector| &vector.secrets) {
            let other = variables.insert(name.clone(), secret.clone());
            ensure!(
                other.is_none_or(
                    |other| other == *secret || listener::shipped_secrets().contains_key(name)
                ),
                "two vectors have different secrets called {name}"
            );
        }
        let gateway_port = ports::free()?;
        let loader = host.loader(store.port(), gateway_port)?;
        let mut config = EnvoyConfig::shipped()?
            .gateway_port(gateway_port)?
            .admin_port(ports::free()?)?
            .origin(origin.address)?
            .redis("127.0.0.1", store.port())?
            .host(host.filters)
            .add_listener(&loader.fence(&socket(&dir, "fence"))?)?;
        for (index, vector) in vectors.iter().enumerate() {
            let socket = socket(&dir, &index.to_string());
            config = config.add_listener(&loader.listener(vector, &socket)?)?;
        }
        if host.name == NATIVE {
            config = config.without_fast_path()?;
        }
        let options = EnvoyOptions {
            config,
            workers: 1,
            log_level: "warning".into(),
            variables: variables.into_iter().collect(),
            clock_ahead_ms: None,
            drain_s: None,
            dir: dir.path().join("envoy"),
        };
        let mut envoy = host.runtime.block_on(Envoy::start(&host.envoy, &options))?;
        let threads = match loader {
            Loader::Native { .. } => Some(Threads::of(&mut envoy, &mut store)?),
            Loader::Wasm => None,
        };
        let run = Self {
            vectors,
            delivery,
            replays,
            envoy,
            threads,
            clock,
            store,
            polls,
            origin,
            dir,
        };
        run.wait_until_read(starts_ms)?;
        Ok(run)
    }

    fn steps(&self) -> impl Iterator<Item = &'a Step> + use<'a> {
        self.vectors.iter().flat_map(|vector| &vector.steps)
    }

    /// Waits until every engine has read its documents.
    fn wait_until_read(&self, starts_ms: u64) -> Result<()> {
        let started = Instant::now();
        for index in 0..self.vectors.len() {
            client::send_without_host(&socket(&self.dir, &index.to_string()))?;
        }
        let polls: Vec<Poll> = self.vectors.iter().filter_map(Poll::of).collect();
        let mut now_ms = starts_ms;
        let is_new = |poll: &&Poll| self.polls.count(poll) < poll.at_start;
        while let Some(poll) = polls.iter().find(is_new) {
            ensure!(
                started.elapsed() < START_LIMIT,
                "an engine reads nothing: {poll:?}"
            );
            std::thread::sleep(NUDGE_EVERY);
            now_ms = (now_ms + NUDGE_MS).min(starts_ms + STARTS_BEFORE_MS - 1);
            self.clock.stand_at(now_ms.try_into()?)?;
        }
        Ok(())
    }

    /// Runs all steps of one time.
    fn at(&mut self, at_ms: u64) -> Result<()> {
        let vectors = self.vectors;
        let due: Vec<usize> = (0..vectors.len())
            .filter(|&index| {
                let next = vectors[index].steps.get(self.replays[index].next);
                next.is_some_and(|step| step.at_ms == at_ms)
            })
            .collect();
        self.store.set_time(at_ms)?;
        let mut expected = Vec::new();
        for &index in &due {
            let progress = &mut self.replays[index];
            let step = &vectors[index].steps[progress.next];
            self.store.change(&step.stored)?;
            apply(&step.stored, &mut progress.before);
            if let Some(poll) = Poll::of(&vectors[index]).filter(|_| step.polls > 0) {
                expected.push((self.polls.count(&poll) + step.polls, poll));
            }
        }
        self.clock.stand_at(at_ms.try_into()?)?;
        for (count, poll) in &expected {
            self.polls.wait(poll, *count)?;
        }
        self.settle()?;
        for index in due {
            let mut is_first = true;
            while let Some(step) = vectors[index].steps.get(self.replays[index].next)
                && step.at_ms == at_ms
            {
                if !std::mem::take(&mut is_first) {
                    self.store.change(&step.stored)?;
                    apply(&step.stored, &mut self.replays[index].before);
                }
                self.step(index, step)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, index: usize, step: &Step) -> Result<()> {
        let vector = &self.vectors[index];
        let outcome = self.ask(index, step);
        self.settle()?;
        let progress = &mut self.replays[index];
        progress.next += 1;
        let is_last = progress.next == vector.steps.len();
        match (&mut progress.result, outcome) {
            (Ok(replay), Ok(outcome)) => replay.outcomes.push(outcome.sorted()),
            (result @ Ok(_), Err(error)) => *result = Err(error),
            (Err(_), _) => {}
        }
        if is_last && let Ok(replay) = &mut progress.result {
            let after = dump(&mut self.store, vector.key_prefix())?;
            replay.effect = changes(&progress.before, &after);
        }
        Ok(())
    }

    fn ask(&self, index: usize, step: &Step) -> Result<Outcome> {
        let vector = &self.vectors[index];
        self.origin.answer_for(vector);
        let socket = socket(&self.dir, &index.to_string());
        let response = client::send(&socket, &step.request, self.delivery)?;
        let is_mark = |(name, _): &(String, String)| name == MARK;
        if !response.headers.iter().any(is_mark) {
            return Ok(host::answered(
                response.status,
                response.headers,
                &response.body,
            ));
        }
        let headers: Headers = response
            .headers
            .into_iter()
            .filter(|header| !is_mark(header))
            .collect();
        let observed = self
            .origin
            .last_seen()
            .context("the origin has seen nothing")?;
        let origin = vector.origin_answer(&step.request.path);
        ensure!(
            response.status == origin.status,
            "the status is not the origin's: {}",
            response.status
        );
        ensure!(
            observed.body == unescape(&step.request.body)?,
            "the origin has got another body: {}",
            escape(&observed.body)
        );
        Ok(host::went_on(
            &text(&request_headers(&step.request)?),
            observed.headers,
            &origin,
            headers,
        ))
    }

    /// Waits until all started work has finished.
    fn settle(&self) -> Result<()> {
        match &self.threads {
            Some(threads) => threads.wait(),
            None => self.fence(),
        }
    }

    fn fence(&self) -> Result<()> {
        let request = Request {
            method: "GET".into(),
            path: "/".into(),
            host: "fence".into(),
            from: "192.0.2.254:1".into(),
            ..Request::default()
        };
        for _ in 0..FENCES {
            let response = client::send(&socket(&self.dir, "fence"), &request, Delivery::Whole)?;
            ensure!(
                response.status == 200,
                "the fence does not pass: {}",
                response.status
            );
        }
        Ok(())
    }
}

fn socket(dir: &TempDir, name: &str) -> PathBuf {
    dir.path().join(format!("{name}.sock"))
}
