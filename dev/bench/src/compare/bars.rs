//! The performance requirements (bars), and whether the measurements meet them.

use super::edges::{Edge, Edges, WORKERS};
use super::overload;
use super::report::{Point, Report, Round, ScenarioFigures};
use super::room::Positions;
use super::statistics::Spread;
use super::system::System::{
    self, EnvoyDirect, EnvoyLeast, EnvoyWebdis, NginxLua, Weir, WeirNative,
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

/// A required ratio of rates in a closed loop.
struct Rates {
    what: &'static str,
    scenario: &'static str,
    of: System,
    to: System,
    connections: usize,
    at_least: f64,
}

const RATES: [Rates; 11] = [
    Rates {
        what: "rejected locally, sold out ÷ bare Envoy",
        scenario: "sold-out",
        of: Weir,
        to: EnvoyDirect,
        connections: 128,
        at_least: 0.85,
    },
    Rates {
        what: "rejected locally, no token ÷ bare Envoy",
        scenario: "no-token",
        of: Weir,
        to: EnvoyDirect,
        connections: 128,
        at_least: 0.85,
    },
    Rates {
        what: "rejected locally, not started ÷ bare Envoy",
        scenario: "not-started",
        of: Weir,
        to: EnvoyDirect,
        connections: 128,
        at_least: 0.85,
    },
    Rates {
        what: "local per-user limit ÷ bare Envoy",
        scenario: "user-limit",
        of: Weir,
        to: EnvoyDirect,
        connections: 128,
        at_least: 0.78,
    },
    Rates {
        what: "cached redirect ÷ Envoy's redirect route",
        scenario: "redirect",
        of: Weir,
        to: EnvoyDirect,
        connections: 128,
        at_least: 0.82,
    },
    Rates {
        what: "Redis admission ÷ nginx + Lua + Redis",
        scenario: "redis",
        of: Weir,
        to: NginxLua,
        connections: 8,
        at_least: 0.6,
    },
    Rates {
        what: "Redis admission ÷ nginx + Lua + Redis",
        scenario: "redis",
        of: Weir,
        to: NginxLua,
        connections: 32,
        at_least: 0.85,
    },
    Rates {
        what: "Redis admission ÷ nginx + Lua + Redis",
        scenario: "redis",
        of: Weir,
        to: NginxLua,
        connections: 128,
        at_least: 1.0,
    },
    Rates {
        what: "Redis admission ÷ nginx + Lua + Redis",
        scenario: "redis",
        of: Weir,
        to: NginxLua,
        connections: 512,
        at_least: 1.4,
    },
    Rates {
        what: "Redis admission ÷ nginx + Lua + Redis",
        scenario: "redis",
        of: Weir,
        to: NginxLua,
        connections: 1_024,
        at_least: 2.0,
    },
    Rates {
        what: "rejected locally, sold out ÷ the least wasm",
        scenario: "sold-out",
        of: Weir,
        to: EnvoyLeast,
        connections: 128,
        at_least: 0.95,
    },
];

/// The required ratios of the native module.
const NATIVE_RATES: [Rates; 12] = [
    native(
        "rejected locally, sold out ÷ bare Envoy",
        "sold-out",
        EnvoyDirect,
        128,
        0.92,
    ),
    native(
        "local per-user limit ÷ bare Envoy",
        "user-limit",
        EnvoyDirect,
        128,
        0.88,
    ),
    native(
        "cached redirect ÷ Envoy's redirect route",
        "redirect",
        EnvoyDirect,
        128,
        0.9,
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
    native(ADMISSION, "redis", NginxLua, 8, 0.9),
    native(ADMISSION, "redis", NginxLua, 32, 1.1),
    native(ADMISSION, "redis", NginxLua, 128, 1.25),
    native(ADMISSION, "redis", NginxLua, 512, 1.2),
    native(ADMISSION, "redis", NginxLua, 1_024, 1.2),
    native("a whole sale ÷ nginx + Lua", "sale", NginxLua, 128, 0.7),
];

const ADMISSION: &str = "Redis admission ÷ nginx + Lua + Redis";

const fn native(
    subject: &'static str,
    scenario: &'static str,
    to: System,
    connections: usize,
    at_least: f64,
) -> Rates {
    Rates {
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
const P99: f64 = 0.8;
const NATIVE_P99: f64 = 1.0;
const COMMANDS: f64 = 0.05;
const VM_MIB: f64 = 16.0;
const EDGE_MIB: f64 = 1.0;
const WORKERS_P50_MS: f64 = 1.0;
const OVERLOAD_SHARE: f64 = 0.9;
const POSITION_P99_MS: f64 = 5.0;
const COMMANDS_A_POLL: f64 = 0.05;
const P99_CONNECTIONS: [usize; 3] = [128, 512, 1_024];

/// All bars, in the order of the issues.
pub(super) fn bars(report: &Report) -> Vec<Bar> {
    let mut bars: Vec<Bar> = RATES.iter().map(|rates| rates.bar(report)).collect();
    let redis = report.scenarios.get("redis");
    bars.extend(P99_CONNECTIONS.map(|connections| p99(redis, Weir, connections, P99)));
    bars.push(commands(redis));
    bars.push(webdis(redis));
    bars.push(memory(report));
    bars.extend(NATIVE_RATES.iter().map(|rates| rates.bar(report)));
    bars.push(p99(redis, WeirNative, 128, NATIVE_P99));
    bars.extend(edges(report));
    bars.extend(room(report));
    bars.extend(overload::SCENARIOS.map(|scenario| overload(report, scenario)));
    bars
}

impl Rates {
    fn bar(&self, report: &Report) -> Bar {
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

/// The p99 in an open loop, at the same rate for both.
fn p99(redis: Option<&ScenarioFigures>, of: System, connections: usize, at_most: f64) -> Bar {
    let ratio = |redis: &ScenarioFigures| {
        let (weir, nginx) = (
            redis.open(of, connections),
            redis.open(NginxLua, connections),
        );
        ScenarioFigures::ratio(weir, nginx, |round| round.p99_ms)
    };
    Bar {
        what: format!(
            "{}p99 of Redis admission ÷ nginx + Lua + Redis, open loop, {connections} connections",
            prefix(of)
        ),
        limit: Limit::AtMost(at_most),
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
            point(Weir, 128, Some(70.0), &[100.0, 100.0]),
            point(NginxLua, 128, Some(70.0), &[50.0, 100.0]),
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
        let rate = bar("nginx + Lua + Redis, 128");
        assert_eq!(
            (rate.measured.unwrap().median, rate.is_met()),
            (1.1, Some(true))
        );
        let p99 = bar("open loop, 128");
        assert_eq!(
            (p99.measured.unwrap().median, p99.is_met()),
            (0.75, Some(true))
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
        assert_eq!(bars(&Report::default()).len(), 38);
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
