//! The performance requirements (bars), and whether the measurements meet them.

use super::edges::{Edge, Edges, WORKERS};
use super::overload;
use super::report::{Point, Report, Round, ScenarioFigures};
use super::room::Positions;
use super::statistics::Spread;
use super::system::System::{
    self, EnvoyDirect, EnvoyLeast, EnvoyRoutes, EnvoyWebdis, NginxLua, Weir, WeirNative,
    WeirNativeHttp,
};

/// One requirement.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    pub(super) what: String,
    pub(super) limit: Limit,
    /// `None`: not measured.
    pub(super) measured: Option<Spread>,
}

/// The requirement on the median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    /// Whether the requirement is met; `None` if it was not measured.
    pub(super) fn is_met(&self) -> Option<bool> {
        let median = self.measured?.median;
        Some(match self.limit {
            Limit::AtLeast(limit) => median >= limit,
            Limit::AtMost(limit) => median <= limit,
        })
    }
}

/// A required ratio of two systems in a closed loop.
struct Ratio {
    what: &'static str,
    scenario: &'static str,
    of: System,
    to: System,
    connections: usize,
    at_least: f64,
}

const RATES: [Ratio; 2] = [
    Ratio {
        what: "rejected locally, sold out ÷ the least wasm",
        scenario: "sold-out",
        of: Weir,
        to: EnvoyLeast,
        connections: 128,
        at_least: 0.95,
    },
    Ratio {
        what: "cached redirect ÷ Envoy's redirect route",
        scenario: "redirect",
        of: Weir,
        to: EnvoyDirect,
        connections: 128,
        at_least: 0.82,
    },
];

/// The required ratios of the native module.
const NATIVE_RATES: [Ratio; 4] = [
    native(
        "local per-user limit ÷ bare Envoy",
        "user-limit",
        EnvoyDirect,
        128,
        0.88,
    ),
    native(
        "rejected locally, sold out ÷ Weir in wasm",
        "sold-out",
        Weir,
        128,
        1.15,
    ),
    native(
        "local per-user limit ÷ Weir in wasm",
        "user-limit",
        Weir,
        128,
        1.15,
    ),
    native(
        "cached redirect ÷ Weir in wasm",
        "redirect",
        Weir,
        128,
        1.15,
    ),
];

/// The required ratios of processor time per request, of system and Redis together: the peer's ÷ Weir's. On two cores the load
/// generator shares a core with Redis, so rates would measure the generator, too.
const COSTS: [Ratio; 12] = [
    native(SOLD_OUT, "sold-out", EnvoyDirect, 8, 2.0),
    native(SOLD_OUT, "sold-out", EnvoyDirect, 128, 2.0),
    native(SOLD_OUT, "sold-out", NginxLua, 8, 1.0),
    native(SOLD_OUT, "sold-out", NginxLua, 128, 1.1),
    native(SOLD_OUT, "sold-out", NginxLua, 1_024, 0.85),
    native(
        "redirect, clicks counted",
        "redirect",
        EnvoyDirect,
        128,
        1.8,
    ),
    Ratio {
        of: WeirNativeHttp,
        ..native(
            "redirect of the HTTP filter",
            "redirect",
            EnvoyRoutes,
            128,
            0.95,
        )
    },
    native("queue position", "room-position", EnvoyDirect, 128, 1.7),
    native("a whole sale", "sale", NginxLua, 128, 1.0),
    native("Redis admission", "redis", NginxLua, 8, 0.75),
    native("Redis admission", "redis", NginxLua, 32, 1.1),
    native("Redis admission", "redis", NginxLua, 128, 1.4),
];

const SOLD_OUT: &str = "sold out";

impl Ratio {
    /// The bar for processor time.
    fn cost_bar(&self, report: &Report) -> Bar {
        let ratio = |measured: &ScenarioFigures| {
            let (of, to) = (
                measured.closed(self.of, self.connections),
                measured.closed(self.to, self.connections),
            );
            ScenarioFigures::ratio(to, of, |round| round.server_us + round.redis_us)
        };
        Bar {
            what: format!(
                "processor time, {}: {} ÷ {}, {} connections",
                self.what,
                self.to.label(),
                self.of.label(),
                self.connections
            ),
            limit: Limit::AtLeast(self.at_least),
            measured: report.scenarios.get(self.scenario).and_then(ratio),
        }
    }
}

/// Bars of earlier issues that cannot be met, and why.
pub(super) const DROPPED: [(&str, &str); 6] = [
    (
        "refusals in wasm ÷ bare Envoy ≥ 0.85",
        "the least wasm filter, without any work, is below it",
    ),
    (
        "local limit in wasm ÷ bare Envoy ≥ 0.78",
        "a refusal needs three host calls, which is the least",
    ),
    (
        "admission in wasm ÷ nginx with Lua and Redis",
        "two borders more per call than the native module, which has bars of its own",
    ),
    (
        "native admission ÷ nginx with Lua, 512 and 1,024 connections",
        "Envoy's own cost of a connection, which no module changes",
    ),
    (
        "rates of admissions",
        "on two cores Redis and the load generator share one; processor time replaces them",
    ),
    (
        "p99 of admissions ÷ nginx' p99 ≤ 1",
        "on two cores every system's p99 is the load generator's wait for its core",
    ),
];

const fn native(
    subject: &'static str,
    scenario: &'static str,
    to: System,
    connections: usize,
    at_least: f64,
) -> Ratio {
    Ratio {
        what: subject,
        scenario,
        of: WeirNative,
        to,
        connections,
        at_least,
    }
}

/// The minimum ratio to Webdis, for all connection counts.
const WEBDIS: f64 = 2.0;
const NATIVE_P50: f64 = 1.2;
const P50_RATE: f64 = 2_000.0;
const COMMANDS: f64 = 0.05;
const VM_MIB: f64 = 16.0;
const EDGE_MIB: f64 = 1.0;
const WORKERS_P50_MS: f64 = 1.0;
const OVERLOAD_SHARE: f64 = 0.9;
const POSITION_P99_MS: f64 = 5.0;
const COMMANDS_A_POLL: f64 = 0.05;

/// All bars, in the order of the issues.
pub(super) fn bars(report: &Report) -> Vec<Bar> {
    let mut bars: Vec<Bar> = RATES.iter().map(|ratio| ratio.rate_bar(report)).collect();
    let redis = report.scenarios.get("redis");
    bars.push(commands(redis));
    bars.push(webdis(redis));
    bars.push(memory(report));
    bars.extend(NATIVE_RATES.iter().map(|ratio| ratio.rate_bar(report)));
    bars.extend(COSTS.iter().map(|ratio| ratio.cost_bar(report)));
    bars.push(p50(redis));
    bars.extend(edges(report));
    bars.extend(room(report));
    bars.extend(overload::SCENARIOS.map(|scenario| overload(report, scenario)));
    bars
}

impl Ratio {
    /// The bar for rates.
    fn rate_bar(&self, report: &Report) -> Bar {
        let measured = report.scenarios.get(self.scenario);
        let ratio = |measured: &ScenarioFigures| rate(measured, self.of, self.to, self.connections);
        Bar {
            what: format!(
                "{}{}, {} connections",
                prefix(self.of),
                self.what,
                self.connections
            ),
            limit: Limit::AtLeast(self.at_least),
            measured: measured.and_then(ratio),
        }
    }
}

/// A label prefix that distinguishes the native module's bars from those of the WebAssembly filters.
fn prefix(of: System) -> &'static str {
    match of {
        WeirNative => "native: ",
        _ => "",
    }
}

fn rate(measured: &ScenarioFigures, of: System, to: System, connections: usize) -> Option<Spread> {
    let (of, to) = (
        measured.closed(of, connections),
        measured.closed(to, connections),
    );
    ScenarioFigures::ratio(of, to, |round| round.rate)
}

/// The p50 in an open loop, at the same rate for both.
fn p50(redis: Option<&ScenarioFigures>) -> Bar {
    let ratio = |redis: &ScenarioFigures| {
        let [weir, nginx] =
            [WeirNative, NginxLua].map(|system| redis.open_at(system, 128, P50_RATE));
        ScenarioFigures::ratio(weir, nginx, |round| round.p50_ms)
    };
    Bar {
        what: "native: p50 of Redis admission ÷ nginx + Lua + Redis, open loop, 2,000 a second, 128 connections".to_owned(),
        limit: Limit::AtMost(NATIVE_P50),
        measured: redis.and_then(ratio),
    }
}

fn commands(redis: Option<&ScenarioFigures>) -> Bar {
    let calls = |round: &Round| round.script_calls;
    let point = redis.and_then(|redis| redis.closed(Weir, 128));
    Bar {
        what: "Redis commands per admitted request, 128 connections".to_owned(),
        limit: Limit::AtMost(COMMANDS),
        measured: point
            .filter(|point| point.is_right())
            .and_then(|point| point.spread(calls)),
    }
}

/// The connection count with the worst ratio for Weir.
fn webdis(redis: Option<&ScenarioFigures>) -> Bar {
    let all = redis.map(|redis| {
        let each = redis.connections().into_iter();
        each.filter_map(|connections| rate(redis, Weir, EnvoyWebdis, connections))
    });
    let worst = all.and_then(|all| all.min_by(|a, b| a.median.total_cmp(&b.median)));
    Bar {
        what: "Redis admission ÷ the same over Webdis, the least of all connections".to_owned(),
        limit: Limit::AtLeast(WEBDIS),
        measured: worst,
    }
}

fn memory(report: &Report) -> Bar {
    let memory = report
        .memory
        .as_ref()
        .and_then(|(_, memory)| memory.largest_vm_mib());
    Bar {
        what: "the largest VM's memory after 1,000,000 distinct users, MiB".to_owned(),
        limit: Limit::AtMost(VM_MIB),
        measured: memory.and_then(|mib| Spread::from_values([mib])),
    }
}

fn edges(report: &Report) -> [Bar; 2] {
    let edges = report.edges.as_ref().map(|(_, edges)| edges);
    let workers = edges.and_then(|edges| edges.named(WORKERS));
    let largest = edges.and_then(Edges::largest_mib);
    [
        Bar {
            what: "edges: the largest of them, gzipped, MiB".to_owned(),
            limit: Limit::AtMost(EDGE_MIB),
            measured: largest.and_then(|mib| Spread::from_values([mib])),
        },
        Bar {
            what: "edges: p50 of the slowest answer in workerd, ms".to_owned(),
            limit: Limit::AtMost(WORKERS_P50_MS),
            measured: workers.and_then(Edge::slowest_p50),
        },
    ]
}

fn room(report: &Report) -> [Bar; 2] {
    let spread = |of: fn(&Positions) -> f64| report.room.as_ref()?.1.spread(of);
    [
        Bar {
            what: "waiting room: p99 of a position among 1,000,000, through Envoy, ms".to_owned(),
            limit: Limit::AtMost(POSITION_P99_MS),
            measured: spread(|round| round.p99_ms),
        },
        Bar {
            what: "waiting room: Redis commands per position request".to_owned(),
            limit: Limit::AtMost(COMMANDS_A_POLL),
            measured: spread(|round| round.commands),
        },
    ]
}

/// Correct answers at twice the load, relative to those at capacity.
fn overload(report: &Report, scenario: &str) -> Bar {
    let measured = report.overload.as_ref().and_then(|(_, measured)| {
        let overload = measured.iter().find(|one| one.scenario == scenario);
        overload?.share()
    });
    Bar {
        what: format!("right answers at twice the load ÷ capacity, {scenario}"),
        limit: Limit::AtLeast(OVERLOAD_SHARE),
        measured,
    }
}

/// Whether the load generator may have been the bottleneck instead of the system.
pub(super) fn is_load_bound(point: &Point) -> bool {
    let median = |of: fn(&Round) -> f64| point.spread(of).map_or(0.0, |spread| spread.median);
    median(|round| round.load_busy) > 0.9 && median(|round| round.server_busy) < 0.9
}

#[cfg(test)]
mod tests {
    use super::super::edges::tests::edges_of;
    use super::super::report::tests::{measured, point};
    use super::super::room::tests::room_of;
    use super::*;

    fn report() -> Report {
        let points = vec![
            point(Weir, 128, None, &[120.0, 100.0]),
            point(NginxLua, 128, None, &[100.0, 100.0]),
            point(EnvoyWebdis, 128, None, &[100.0, 50.0]),
            point(WeirNative, 128, None, &[100.0, 100.0]),
            point(WeirNative, 128, Some(P50_RATE), &[100.0, 100.0]),
            point(NginxLua, 128, Some(P50_RATE), &[50.0, 100.0]),
        ];
        let mut report = Report::default();
        report
            .scenarios
            .insert("redis".to_owned(), measured(points));
        report
    }

    fn bar(subject: &str) -> Bar {
        let all = bars(&report());
        all.into_iter()
            .find(|bar| bar.what.contains(subject))
            .unwrap()
    }

    #[test]
    fn bar_is_checked_against_the_median_ratio() {
        let cost = bar("Redis admission: nginx + Lua ÷ Weir, native, 128");
        assert_eq!(
            (cost.measured.unwrap().median, cost.is_met()),
            (1.0, Some(false))
        );
        let p50 = bar("p50 of Redis admission");
        assert_eq!(
            (p50.measured.unwrap().median, p50.is_met()),
            (1.0, Some(true))
        );
        let webdis = bar("Webdis");
        assert_eq!(
            (webdis.measured.unwrap().median, webdis.is_met()),
            (1.6, Some(false))
        );
        assert_eq!(bar("Redis commands").is_met(), Some(true));
    }

    #[test]
    fn edge_latency_is_that_of_the_slowest_answer() {
        let edges = edges_of([1.0, 2.0, 0.9], 1 << 20);
        let report = Report {
            edges: Some((measured(vec![]).run, edges)),
            ..Report::default()
        };
        let all = bars(&report);
        let is_met = |subject: &str| {
            let bar = all.iter().find(|bar| bar.what.contains(subject));
            bar.unwrap().is_met()
        };
        assert_eq!(is_met("edges: p50"), Some(true));
        assert_eq!(is_met("edges: the largest"), Some(true));
        let slow = edges_of([1.1, 0.5, 1.2], (1 << 20) + 20_000);
        let report = Report {
            edges: Some((measured(vec![]).run, slow)),
            ..Report::default()
        };
        let missed = bars(&report).into_iter();
        let missed = missed.filter(|bar| bar.is_met() == Some(false));
        assert_eq!(missed.count(), 2);
    }

    #[test]
    fn room_bar_is_checked_against_the_median_of_rounds() {
        let is_met = |p99_ms, commands| {
            let report = Report {
                room: Some((measured(vec![]).run, room_of(p99_ms, commands))),
                ..Report::default()
            };
            let all = bars(&report).into_iter();
            let of_rooms = all.filter(|bar| bar.what.starts_with("waiting room"));
            of_rooms.map(|bar| bar.is_met()).collect::<Vec<_>>()
        };
        assert_eq!(is_met([4.0, 9.0, 3.0], 0.001), [Some(true), Some(true)]);
        assert_eq!(is_met([4.0, 9.0, 6.0], 0.06), [Some(false), Some(false)]);
    }

    #[test]
    fn unmeasured_bar_is_neither_met_nor_missed() {
        assert_eq!(bar("bare Envoy").is_met(), None);
        assert_eq!(bar("VM's memory").is_met(), None);
        assert_eq!(bar("edges: p50").is_met(), None);
        assert_eq!(bars(&Report::default()).len(), 30);
    }

    #[test]
    fn idle_server_under_a_busy_generator_is_load_bound() {
        let mut slow = point(Weir, 1, None, &[1.0]);
        assert!(!is_load_bound(&slow));
        slow.rounds[0].load_busy = 0.99;
        assert!(is_load_bound(&slow));
        slow.rounds[0].server_busy = 0.99;
        assert!(!is_load_bound(&slow));
    }
}
