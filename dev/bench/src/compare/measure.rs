//! Rounds: measures every system in turn, then repeats.

use super::cores::{Cores, on_core_ns};
use super::report::{Point, Round, SkippedSystem};
use super::request::Writer;
use super::scenario::{Connections, FEW, ONE, Scenario};
use super::server::{BenchEnv, Server};
use super::statistics::Spread;
use super::system::System;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_load::{FullAnswer, Outcome, Pace, Plan, RunMark, ask};

/// How much to measure.
#[derive(Debug, Clone)]
pub(super) struct Effort {
    pub(super) rounds: u32,
    pub(super) warm_up: Duration,
    pub(super) window: Duration,
    pub(super) connections: Vec<usize>,
    /// The Weir host that was not selected.
    pub(super) left_out: Option<System>,
    /// Additional open loop rates, for scenarios with all connection counts. If empty, the open loop runs only at
    /// [`OPEN_SHARE`].
    pub(super) rates: &'static [f64],
}

/// The open loop's rate, relative to the slowest system's closed loop rate. It is the same for all systems and below
/// each one's limit.
const OPEN_SHARE: f64 = 0.7;

/// An additional open loop rate for large requests: the rate in the seed document of fitment.
const FEW_RATE: f64 = 1_000.0;

/// With fewer connections, an open loop rarely has a free one.
const OPEN_CONNECTIONS_MIN: usize = 8;

/// The number of user IDs reserved for one run.
const USERS_A_RUN: u64 = 10_000_000;

const READY_LIMIT: Duration = Duration::from_secs(30);

/// Headers that identify servers, and connection headers.
const OWN_HEADERS: [&str; 3] = ["server", "date", "connection"];

impl Effort {
    /// Whether `scenario` measures Weir.
    pub(super) fn has_weir(&self, scenario: &Scenario) -> bool {
        let mut systems = self.systems(scenario);
        systems.any(|system| {
            matches!(
                system,
                System::Weir | System::WeirNative | System::WeirNativeHttp
            )
        })
    }

    fn systems(&self, scenario: &Scenario) -> impl Iterator<Item = System> {
        let requested = |system: &System| Some(*system) != self.left_out;
        scenario.systems.iter().copied().filter(requested)
    }
}

/// Starts all systems of `scenario` and measures them.
pub(super) async fn measure(
    scenario: &Scenario,
    effort: &Effort,
    bench_env: &BenchEnv<'_>,
) -> Result<(Vec<Point>, Vec<SkippedSystem>)> {
    let (mut servers, absent) = start_all(scenario, effort, bench_env).await?;
    let mut run = Run::new(scenario, effort, bench_env.cores);
    for server in &mut servers {
        server.ready(scenario)?;
    }
    if scenario.same_answers {
        same_answers(&servers, scenario)?;
    }
    for connections in scenario.connections.of(&effort.connections) {
        run.closed(&mut servers, connections).await?;
        run.open(&mut servers, connections).await?;
    }
    Ok((run.points, absent))
}

/// Starts all systems. A missing peer is reported and skipped; a missing Weir is an error.
pub(super) async fn start_all(
    scenario: &Scenario,
    effort: &Effort,
    bench_env: &BenchEnv<'_>,
) -> Result<(Vec<Server>, Vec<SkippedSystem>)> {
    let (mut servers, mut absent) = (Vec::new(), Vec::new());
    for system in effort.systems(scenario) {
        match bench_env.start(system, scenario.kind).await {
            Ok(server) => servers.push(server),
            Err(error) if matches!(system, System::Weir | System::WeirNative) => {
                return Err(error);
            }
            Err(error) => absent.push(SkippedSystem {
                system,
                reason: format!("{error:#}"),
            }),
        }
    }
    Ok((servers, absent))
}

/// Checks that all systems do the same work: equal status, headers and body length.
fn same_answers(servers: &[Server], scenario: &Scenario) -> Result<()> {
    let mut observed: Option<(System, String)> = None;
    for server in servers {
        let shape = shape(&server.example(scenario)?);
        match &observed {
            None => observed = Some((server.system, shape)),
            Some((first, expected)) => ensure!(
                *expected == shape,
                "{} answers differently from {}:\n{shape}\n{expected}",
                server.system.label(),
                first.label()
            ),
        }
    }
    Ok(())
}

fn shape(answer: &FullAnswer) -> String {
    let names = answer.headers.iter().map(|(name, _)| name.as_str());
    let names: BTreeSet<&str> = names.filter(|name| !OWN_HEADERS.contains(name)).collect();
    format!(
        "{} {names:?}, a body of {} bytes",
        answer.status,
        answer.body.len()
    )
}

impl Server {
    /// Waits until the server answers as the scenario requires.
    pub(super) fn ready(&self, scenario: &Scenario) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            let answer = self.example(scenario);
            if answer
                .as_ref()
                .is_ok_and(|answer| scenario.statuses.contains(&answer.status))
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                let label = self.system.label();
                bail!("{label} is not ready for {}: {answer:?}", scenario.name);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn example(&self, scenario: &Scenario) -> Result<FullAnswer> {
        let mut text = Vec::new();
        writer(scenario, self.system)?.write(0, &mut text);
        ask(self.address, &text)
    }
}

/// Each system has its own users.
fn writer(scenario: &Scenario, system: System) -> Result<Writer> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let first = NEXT.fetch_add(1, Ordering::Relaxed) * USERS_A_RUN;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Writer::new(
        scenario.kind,
        system,
        first,
        u64::try_from(now.as_millis())?,
    )
}

/// The rounds of one scenario.
pub(super) struct Run<'a> {
    scenario: &'a Scenario,
    effort: &'a Effort,
    cores: Cores,
    points: Vec<Point>,
}

impl<'a> Run<'a> {
    pub(super) fn new(scenario: &'a Scenario, effort: &'a Effort, cores: Cores) -> Self {
        Self {
            scenario,
            effort,
            cores,
            points: Vec::new(),
        }
    }

    async fn closed(&mut self, servers: &mut [Server], connections: usize) -> Result<()> {
        let systems: Vec<System> = servers.iter().map(|server| server.system).collect();
        self.rounds(servers, &systems, connections, Pace::Closed)
            .await
    }

    async fn open(&mut self, servers: &mut [Server], connections: usize) -> Result<()> {
        let requested = self.scenario.open_loop;
        let is_asked = |system: &System| requested.systems.contains(system);
        let systems = servers.iter().map(|server| server.system);
        let systems: Vec<System> = systems.filter(is_asked).collect();
        let is_wanted = requested
            .connections
            .of(&self.effort.connections)
            .contains(&connections);
        let is_everywhere = requested.connections == Connections::All;
        let is_too_much = !is_everywhere && self.effort.rates.is_empty();
        if !is_wanted || is_too_much || connections < OPEN_CONNECTIONS_MIN || systems.len() < 2 {
            return Ok(());
        }
        let slowest = systems
            .iter()
            .filter_map(|system| self.closed_rate(*system, connections));
        let slowest = slowest.reduce(f64::min).context("nothing was measured")?;
        let mut rates = vec![(slowest * OPEN_SHARE / 100.0).floor() * 100.0];
        if is_everywhere && connections == ONE {
            rates.extend(self.effort.rates.iter().filter(|rate| **rate < slowest));
        }
        if connections == FEW && slowest > FEW_RATE {
            rates.push(FEW_RATE);
        }
        for per_second in rates {
            let pace = Pace::Open { per_second };
            self.rounds(servers, &systems, connections, pace).await?;
        }
        Ok(())
    }

    fn closed_rate(&self, system: System, connections: usize) -> Option<f64> {
        let is_it = |point: &&Point| {
            point.system == system && point.connections == connections && point.offered.is_none()
        };
        let point = self.points.iter().find(is_it)?;
        let rates = point.rounds.iter().map(|round| round.rate);
        Spread::from_values(rates).map(|spread| spread.median)
    }

    /// Measures A B C, A B C, …, so that other load on the machine affects all systems alike.
    async fn rounds(
        &mut self,
        servers: &mut [Server],
        systems: &[System],
        connections: usize,
        pace: Pace,
    ) -> Result<()> {
        let offered = match pace {
            Pace::Closed => None,
            Pace::Open { per_second } => Some(per_second),
        };
        let mut points: Vec<Point> = Vec::new();
        for round in 0..self.effort.rounds {
            for server in servers
                .iter_mut()
                .filter(|server| systems.contains(&server.system))
            {
                let measured = self.one(server, connections, pace).await?;
                print_round(self.scenario, server.system, connections, &measured);
                if round == 0 {
                    points.push(Point {
                        system: server.system,
                        connections,
                        offered,
                        rounds: Vec::new(),
                    });
                }
                let point = points
                    .iter_mut()
                    .find(|point| point.system == server.system);
                point.context("a point")?.rounds.push(measured);
            }
        }
        self.points.append(&mut points);
        Ok(())
    }

    pub(super) async fn one(
        &self,
        server: &mut Server,
        connections: usize,
        pace: Pace,
    ) -> Result<Round> {
        let mut calls = 0;
        if let Some(store) = &mut server.store {
            if self.scenario.kind.claims() {
                store.rebalance().await?;
            }
            calls = store.script_calls().await?;
        }
        let plan = Plan {
            server: server.address,
            connections,
            pace,
            warm_up: self.effort.warm_up,
            window: self.effort.window,
            core: Some(self.cores.load),
        };
        let redis: Vec<u32> = server.store.iter().map(|store| store.pid).collect();
        let writer = writer(self.scenario, server.system)?;
        let (outcome, cpu_ns) = load(plan, writer, server.pids.clone(), redis).await?;
        server.check()?;
        if let Some(store) = &server.store {
            calls = store.script_calls().await? - calls;
        }
        Ok(round(&outcome, cpu_ns, calls, self.scenario))
    }
}

/// Runs the generator on its own thread, pinned to its core. Returns its results, and the CPU time of server and Redis
/// within the window, in nanoseconds.
async fn load(
    plan: Plan,
    mut writer: Writer,
    server: Vec<u32>,
    redis: Vec<u32>,
) -> Result<(Outcome, [u64; 2])> {
    let (done, outcome) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let read = || [on_core_ns(&server), on_core_ns(&redis)];
        let (mut begin, mut end) = ([0; 2], [0; 2]);
        let mut mark = |mark| match mark {
            RunMark::Begin => begin = read(),
            RunMark::End => end = read(),
        };
        let outcome = weir_load::run(&plan, &mut |n, to| writer.write(n, to), &mut mark);
        // The sum decreases only if a thread ended meanwhile.
        let spent = [0, 1].map(|of: usize| end[of].saturating_sub(begin[of]));
        // After Ctrl-C the receiver is gone.
        done.send(outcome.map(|outcome| (outcome, spent))).ok();
    });
    outcome.await.context("the load generator has ended")?
}

fn round(outcome: &Outcome, cpu_ns: [u64; 2], script_calls: u64, scenario: &Scenario) -> Round {
    let answers = outcome.answers.max(1) as f64;
    let all: u64 = outcome.statuses.values().sum();
    let right = outcome
        .statuses
        .iter()
        .filter(|(status, _)| scenario.statuses.contains(status));
    let right: u64 = right.map(|(_, count)| *count).sum();
    let percentile = |percentile| outcome.latencies.percentile_ms(percentile);
    let [server, redis] = cpu_ns.map(|ns| ns as f64 / answers / 1_000.0);
    Round {
        rate: outcome.rate(),
        p50_ms: percentile(50.0),
        p99_ms: percentile(99.0),
        p999_ms: percentile(99.9),
        server_us: server,
        redis_us: redis,
        script_calls: script_calls as f64 / all.max(1) as f64,
        server_busy: cpu_ns[0] as f64 / outcome.window.as_nanos() as f64,
        load_busy: outcome.busy,
        unanswered: outcome.unanswered,
        wrong: all - right,
        statuses: outcome.statuses.clone(),
    }
}

fn print_round(scenario: &Scenario, system: System, connections: usize, round: &Round) {
    println!(
        "{:<13} {:<23} {connections:>5} {:>9.0}/s  p50 {:>8.3}  p99 {:>8.3} ms  {:>6.1} + {:>5.1} µs  core {:>3.0} %, load {:>3.0} %{}",
        scenario.name,
        system.label(),
        round.rate,
        round.p50_ms,
        round.p99_ms,
        round.server_us,
        round.redis_us,
        round.server_busy * 100.0,
        round.load_busy * 100.0,
        if round.wrong > 0 {
            format!("  {} wrong: {:?}", round.wrong, round.statuses)
        } else {
            String::new()
        },
    );
}
