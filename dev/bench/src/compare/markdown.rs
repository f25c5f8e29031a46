//! `bench/RESULTS.md`, made of a report.

use super::bars::{Bar, Limit, bars, is_load_bound};
use super::edges::REQUESTS;
use super::overload::OverloadFigures;
use super::report::{Cost, Point, Report, Round, Run, ScenarioFigures};
use super::room::Positions;
use super::scenario::{ALL, ONE, Scenario};
use super::statistics::Spread;
use super::system::System;
use std::fmt::Write;

const HEAD: &str = "\
# Weir beside what one would pick instead

Made by `cargo xtask bench`; do not edit. All numbers are medians of rounds in which the systems took turns, with the least and the
greatest in brackets. Ratios are medians of the rounds' ratios. Each system has one worker on one core; the load generator (`dev/load`)
has another, and Redis a third or, with two cores, the generator's. Processor time is the kernel's count for the system with its
sidecars, and for Redis. What the peers are, and what they leave out: [peers/README.md](peers/README.md).

```sh
cargo xtask bench                # all of it, under 40 minutes
cargo xtask bench --quick        # fewer rounds and connections, under 5 minutes
cargo xtask bench --only redis   # one scenario; the others' results stay
```

";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let mut page = HEAD.to_owned();
    bars_table(&mut page, &bars(report));
    page += "\n![Processor time a request](plots/cost.svg)\n";
    for scenario in &ALL {
        if let Some(measured) = report.scenarios.get(scenario.name) {
            section(&mut page, scenario, measured);
        }
    }
    edges(&mut page, report);
    room(&mut page, report);
    overload(&mut page, report);
    memory(&mut page, report);
    costs(&mut page, &report.costs);
    not_measured(&mut page, report);
    page
}

fn put(page: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    page.write_fmt(arguments).ok();
    page.push('\n');
}

fn bars_table(page: &mut String, bars: &[Bar]) {
    *page += "## Bars\n\n| what | bar | measured | |\n|---|---|---|---|\n";
    for bar in bars {
        let limit = match bar.limit {
            Limit::AtLeast(limit) => format!("≥ {limit}"),
            Limit::AtMost(limit) => format!("≤ {limit}"),
        };
        let verdict = match bar.is_met() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        let measured = bar.measured.map_or_else(|| "–".to_owned(), ratio);
        put(
            page,
            format_args!("| {} | {limit} | {measured} | {verdict} |", bar.what),
        );
    }
}

fn ratio(spread: Spread) -> String {
    // Shares of a command a request are small.
    let digits = if spread.median < 0.1 { 4 } else { 2 };
    if spread.min == spread.max {
        return format!("{:.digits$}", spread.median);
    }
    format!(
        "{:.digits$} ({:.digits$}–{:.digits$})",
        spread.median, spread.min, spread.max
    )
}

fn section(page: &mut String, scenario: &Scenario, measured: &ScenarioFigures) {
    put(
        page,
        format_args!("\n## {}\n\n{}\n", scenario.title, scenario.what),
    );
    *page += &about(&measured.run);
    for absent in &measured.absent {
        put(
            page,
            format_args!("\n{} did not run: {}", absent.system.label(), absent.reason),
        );
    }
    rates(page, scenario, measured);
    latencies(page, measured);
    if measured.connections().len() > 1 {
        let name = scenario.name;
        put(
            page,
            format_args!("\n![Answers a second](plots/{name}-throughput.svg)"),
        );
        put(page, format_args!("![p99](plots/{name}-p99.svg)"));
    }
    notes(page, measured);
}

fn about(run: &Run) -> String {
    let versions: Vec<String> = run
        .versions
        .iter()
        .map(|(name, v)| format!("{name} {v}"))
        .collect();
    format!(
        "{} at {}: {} rounds of {} s{}, {}, {}; cores {} (server), {} (load), {} (Redis); load average before it {:.1}.\n",
        run.date,
        run.commit,
        run.rounds,
        run.window_s,
        if run.is_quick { " (`--quick`)" } else { "" },
        run.machine,
        versions.join(", "),
        run.cores.server,
        run.cores.load,
        run.cores.redis,
        run.load_average,
    )
}

/// Closed loop: a row for each number of connections, a column for each system.
fn rates(page: &mut String, scenario: &Scenario, measured: &ScenarioFigures) {
    let systems: Vec<System> = scenario.systems.to_vec();
    *page += "\nAnswers a second, closed loop; processor time a request in µs:\n\n| connections |";
    for system in &systems {
        write!(page, " {} |", system.label()).ok();
    }
    for system in systems.iter().skip(1) {
        write!(page, " Weir ÷ {} |", system.label()).ok();
    }
    put(
        page,
        format_args!("\n|---|{}", "---|".repeat(systems.len() * 2 - 1)),
    );
    for connections in measured.connections() {
        let point = |system: &System| measured.closed(*system, connections);
        write!(page, "| {connections} |").ok();
        for system in &systems {
            write!(
                page,
                " {} |",
                point(system).map_or_else(|| "–".to_owned(), rate)
            )
            .ok();
        }
        for system in systems.iter().skip(1) {
            let ratio_to =
                ScenarioFigures::ratio(point(&System::Weir), point(system), |round| round.rate);
            write!(
                page,
                " {} |",
                ratio_to.map_or_else(|| "–".to_owned(), ratio)
            )
            .ok();
        }
        page.push('\n');
    }
}

fn rate(point: &Point) -> String {
    let spread = |of: fn(&Round) -> f64| point.spread(of);
    let (Some(rate), Some(server), Some(redis)) = (
        spread(|round| round.rate),
        spread(|round| round.server_us),
        spread(|round| round.redis_us),
    ) else {
        return "–".to_owned();
    };
    let redis = match redis.median {
        some if some > 0.0 => format!(" + {some:.1}"),
        _ => String::new(),
    };
    let mark = match (point.is_right(), is_load_bound(point)) {
        (false, _) => " ✗",
        (true, true) => " \\*",
        (true, false) => "",
    };
    format!(
        "{:.0} ({:.0}–{:.0}){mark}, {:.1}{redis} µs",
        rate.median, rate.min, rate.max, server.median
    )
}

fn latencies(page: &mut String, measured: &ScenarioFigures) {
    let open: Vec<&Point> = measured
        .points
        .iter()
        .filter(|point| point.offered.is_some())
        .collect();
    if open.is_empty() {
        return;
    }
    *page += "\nLatencies, open loop: requests are due at even distances, and a latency counts from when its request was due.\n\n\
              | connections | due a second | system | p50 ms | p99 ms | p99.9 ms |\n|---|---|---|---|---|---|\n";
    for point in open {
        let cell = |of: fn(&Round) -> f64| point.spread(of).map_or_else(|| "–".to_owned(), latency);
        put(
            page,
            format_args!(
                "| {} | {:.0} | {} | {} | {} | {} |",
                point.connections,
                point.offered.unwrap_or_default(),
                point.system.label(),
                cell(|round| round.p50_ms),
                cell(|round| round.p99_ms),
                cell(|round| round.p999_ms)
            ),
        );
    }
}

fn notes(page: &mut String, measured: &ScenarioFigures) {
    if measured.points.iter().any(is_load_bound) {
        *page += "\n\\* The load generator's core (with two cores Redis' as well) was busy and the server's was not: the server can do more.\n";
    }
    for point in measured.points.iter().filter(|point| !point.is_right()) {
        let wrong: u64 = point.rounds.iter().map(|round| round.wrong).sum();
        let (label, connections) = (point.system.label(), point.connections);
        put(
            page,
            format_args!(
                "\n✗ {label} gave {wrong} other answers with {connections} connections; it is not compared."
            ),
        );
    }
}

fn edges(page: &mut String, report: &Report) {
    let Some((run, edges)) = &report.edges else {
        return;
    };
    *page += "\n## Edges\n\nWhat edges answer by themselves, as they are shipped, each in the runtime that its platform runs or gives for trying it out. One \
              request after the other, each on a connection of its own; for `wasi:http` within the runtime, without a connection. Size: what is \
              uploaded, by `gzip -9`.\n\n";
    put(
        page,
        format_args!(
            "{} at {}: {} rounds of {REQUESTS} requests, {}, no core of their own; load average before it {:.1}.\n",
            run.date, run.commit, run.rounds, run.machine, run.load_average
        ),
    );
    *page +=
        "| edge | runtime | gzipped MiB | answer | p50 ms | p99 ms |\n|---|---|---|---|---|---|\n";
    for edge in &edges.edges {
        for answers in &edge.answers {
            let cell = |spread: Option<Spread>| spread.map_or_else(|| "–".to_owned(), latency);
            put(
                page,
                format_args!(
                    "| {} | {} | {:.2} | {} | {} | {} |",
                    edge.name,
                    edge.runtime,
                    edge.gzipped_mib(),
                    answers.what,
                    cell(answers.spread(|times| times.p50_ms)),
                    cell(answers.spread(|times| times.p99_ms))
                ),
            );
        }
    }
    for (name, reason) in &edges.absent {
        let reason = reason.lines().next().unwrap_or_default();
        put(page, format_args!("\n{name} was not measured: {reason}."));
    }
}

fn overload(page: &mut String, report: &Report) {
    let Some((run, measured)) = &report.overload else {
        return;
    };
    *page += "\n## Twice as many requests as can be answered\n\nFirst each scenario in a closed loop: what can be done. Then an open loop with \
              twice as many requests a second. A gateway should still answer what it can, and refuse the rest at once.\n\n";
    put(
        page,
        format_args!(
            "{} at {}: {} rounds, {}; load average before it {:.1}.\n",
            run.date, run.commit, run.rounds, run.machine, run.load_average
        ),
    );
    *page += "| scenario | can be done, a second | answered at twice the load | share | p50 ms | p99 ms |\n|---|--:|--:|--:|--:|--:|\n";
    for one in measured {
        let median = |of: fn(&OverloadFigures) -> f64| {
            Spread::from_values(one.rounds.iter().map(of)).map_or(0.0, |spread| spread.median)
        };
        put(
            page,
            format_args!(
                "| `{}` | {:.0} | {:.0} | {:.0} % | {:.1} | {:.1} |",
                one.scenario,
                median(|round| round.capacity),
                median(|round| round.goodput),
                one.share().map_or(0.0, |share| share.median * 100.0),
                median(|round| round.p50_ms),
                median(|round| round.p99_ms),
            ),
        );
    }
}

fn room(page: &mut String, report: &Report) {
    let Some((run, room)) = &report.room else {
        return;
    };
    put(
        page,
        format_args!(
            "\n## A million people in the queue\n\n{} people, each of an address of its own, have places in one waiting room. Then people from all over the \
             queue ask where they stand, {} times a round on {} connections, through Envoy with the filter in WebAssembly and one worker, which \
             shares the machine with Redis and those who ask.\n",
            room.people, room.positions, room.connections
        ),
    );
    put(
        page,
        format_args!(
            "{} at {}: {} rounds, {}, no core of their own; load average before it {:.1}.\n",
            run.date, run.commit, run.rounds, run.machine, run.load_average
        ),
    );
    *page += "| | |\n|---|---|\n";
    let cell = |of: fn(&Positions) -> f64| room.spread(of).map_or_else(|| "–".to_owned(), latency);
    let commands = room.spread(|round| round.commands);
    let commands =
        commands.map_or_else(|| "–".to_owned(), |spread| format!("{:.4}", spread.median));
    let rate = room
        .spread(|round| round.rate)
        .map_or(0.0, |spread| spread.median);
    for (what, value) in [
        (
            "Redis' memory for all of them, MB",
            format!("{:.1}", room.redis_bytes as f64 / 1e6),
        ),
        (
            &*format!(
                "newcomers who get a place in a second, {} in a call, one connection",
                room.batch
            ),
            format!("{:.0}", room.places_a_second),
        ),
        ("a position, p50 ms", cell(|round| round.p50_ms)),
        ("a position, p99 ms", cell(|round| round.p99_ms)),
        ("positions a second", format!("{rate:.0}")),
        ("Redis commands a position", commands),
    ] {
        put(page, format_args!("| {what} | {value} |"));
    }
}

fn latency(spread: Spread) -> String {
    let Spread { min, median, max } = spread;
    format!("{median:.2} ({min:.2}–{max:.2})")
}

fn memory(page: &mut String, report: &Report) {
    let Some((run, memory)) = &report.memory else {
        return;
    };
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    *page += "\n## Memory\n\nOne distinct user a request, in the shipped configuration, limits included; one worker.\n\n";
    *page += &about(run);
    *page += "\n| | resident MiB | each VM's memory, MiB |\n|---|---|---|\n";
    let rested = format!("after {} s without requests", memory.rest_s);
    let after = format!("after {} users", memory.users);
    for (what, stage) in [
        ("at the start", &memory.at_start),
        (after.as_str(), &memory.after_users),
        (rested.as_str(), &memory.after_rest),
    ] {
        let vms: Vec<String> = stage
            .vms
            .iter()
            .map(|vm| format!("{:.1}", mib(*vm)))
            .collect();
        put(
            page,
            format_args!(
                "| {what} | {:.1} | {} |",
                mib(stage.resident),
                vms.join(", ")
            ),
        );
    }
    *page += "\nVMs: gate and bridge, on the worker and on Envoy's main thread, as the kernel's list of mappings shows them.\n";
}

fn costs(page: &mut String, costs: &[Cost]) {
    if costs.is_empty() {
        return;
    }
    *page += "\n## Costs that do not depend on the machine\n\nCounted in a host for tests (`bench/costs`), exact and the same everywhere: wasm instructions \
              (fuel), calls from the VM to the host, bytes copied between the two, and Redis commands that the gateway sends. Of all VMs together, a request.\n\n\
              | | fuel | host calls | bytes copied | Redis commands |\n|---|---|---|---|---|\n";
    for cost in costs {
        put(
            page,
            format_args!(
                "| {} | {:.0} | {:.1} | {:.0} | {:.3} |",
                cost.scenario, cost.fuel, cost.host_calls, cost.bytes_copied, cost.redis_commands
            ),
        );
    }
}

fn not_measured(page: &mut String, report: &Report) {
    let mut missing: Vec<&str> = ALL
        .iter()
        .filter(|scenario| !report.scenarios.contains_key(scenario.name))
        .map(|scenario| scenario.title)
        .collect();
    if report.edges.is_none() {
        missing.push("Edges");
    }
    if report.room.is_none() {
        missing.push("A million people in the queue");
    }
    if report.overload.is_none() {
        missing.push("Twice as many requests as can be answered");
    }
    if report.memory.is_none() {
        missing.push("Memory");
    }
    if !missing.is_empty() {
        put(
            page,
            format_args!("\nNot measured yet: {}.", missing.join("; ")),
        );
    }
}

/// What the plot of costs shows: every scenario's closed loop with [`ONE`] connections.
pub(super) fn cost_groups(report: &Report) -> Vec<super::plot::Group> {
    let group = |scenario: &Scenario| {
        let measured = report.scenarios.get(scenario.name)?;
        let bar = |system: &System| {
            let point = measured
                .closed(*system, ONE)
                .filter(|point| point.is_right())?;
            let server = point.spread(|round| round.server_us)?.median;
            let redis = point.spread(|round| round.redis_us)?.median;
            Some((*system, server, redis))
        };
        let bars: Vec<_> = scenario.systems.iter().filter_map(bar).collect();
        (!bars.is_empty()).then(|| (scenario.title.to_owned(), bars))
    };
    ALL.iter().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::super::edges::tests::edges_of;
    use super::super::report::SkippedSystem;
    use super::super::report::tests::{measured, point};
    use super::super::room::tests::room_of;
    use super::*;

    fn report() -> Report {
        let mut redis = measured(vec![
            point(System::Weir, 128, None, &[110.0, 90.0]),
            point(System::NginxLua, 128, None, &[100.0, 100.0]),
            point(System::Weir, 128, Some(70.0), &[70.0]),
        ]);
        redis.absent.push(SkippedSystem {
            system: System::EnvoyWebdis,
            reason: "no webdis".to_owned(),
        });
        let mut report = Report::default();
        report.scenarios.insert("redis".to_owned(), redis);
        report
    }

    #[test]
    fn the_page_tells_what_ran_what_did_not_and_which_bars_hold() {
        let page = page(&report());
        assert!(page.contains("| Redis admission ÷ nginx + Lua + Redis, 128 connections | ≥ 1 | 1.00 (0.90–1.10) | met |"), "{page}");
        assert!(page.contains("wasm + Webdis did not run: no webdis"));
        assert!(
            page.contains("| 128 | 100 (90–110), 10101.0 + 1.0 µs |"),
            "{page}"
        );
        assert!(page.contains("Envoy 1.40.0") && page.contains("2026-11-21 at abc1234"));
        assert!(page.contains("| 128 | 70 | Weir |") && page.contains("not measured"));
        assert!(page.contains("Not measured yet: Rejected locally: sold out;"));
    }

    #[test]
    fn edges_stand_with_their_sizes_and_what_is_missing_is_told() {
        let run = measured(vec![]).run;
        let report = Report {
            edges: Some((run, edges_of([0.5, 0.6, 0.7], 1 << 19))),
            ..Report::default()
        };
        let page = page(&report);
        let row = "| Cloudflare Workers | workerd 1 | 0.50 | a link | 0.60 (0.50–0.70) | 9.00 (9.00–9.00) |";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("load average before it 0.5."));
        assert!(page.contains("Fastly Compute was not measured: no viceroy."));
    }

    #[test]
    fn a_room_stands_with_what_its_people_take() {
        let run = measured(vec![]).run;
        let report = Report {
            room: Some((run, room_of([2.0, 3.0, 4.0], 0.00125))),
            ..Report::default()
        };
        let page = page(&report);
        for row in [
            "| Redis' memory for all of them, MB | 43.6 |",
            "| a position, p99 ms | 3.00 (2.00–4.00) |",
            "| Redis commands a position | 0.0013 |",
        ] {
            assert!(page.contains(row), "{page}");
        }
        assert!(!page.contains("Not measured yet: A million"));
    }

    #[test]
    fn wrong_answers_are_told_and_not_compared() {
        let mut report = report();
        let measured = report.scenarios.get_mut("redis").unwrap();
        measured.points[0].rounds[0].wrong = 900;
        let page = page(&report);
        assert!(page.contains("✗ Weir gave 900 other answers with 128 connections"));
        assert!(
            cost_groups(&report)[0]
                .1
                .iter()
                .all(|bar| bar.0 != System::Weir)
        );
    }
}
