//! `cargo xtask bench`: compares Weir with alternatives, on the same work in the same run.

mod bars;
mod cores;
mod edges;
mod machine;
mod markdown;
mod measure;
mod memory;
mod overload;
mod peers;
mod plot;
mod report;
mod request;
mod room;
mod scenario;
mod server;
mod statistics;
mod store;
mod system;

use anyhow::{Context, Result};
use cores::Cores;
use measure::Effort;
use peers::Peers;
use plot::{Lines, Series};
use report::{Cost, Point, Report, Round, ScenarioFigures};
use scenario::Scenario;
use server::BenchEnv;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use system::System;
use weir_stack::native::Host;
use weir_stack::report::{Console, Reporter};
use weir_stack::tools::{Options, Removals, Tools};
use weir_stack::wasm::{self, Messages};
use weir_stack::{build, command, origin, workspace};
use weir_tasks::up::Stop;

/// A value of `--only`, in addition to the scenario names.
const MEMORY: &str = "memory";
const COSTS: &str = "costs";
const EDGE: &str = "edge";
const ROOM: &str = "room";
const OVERLOAD: &str = "overload";

#[derive(Debug, Clone, clap::Args)]
// Flattened into bench's own arguments, where a group with this struct's name would exist twice.
#[group(skip)]
pub(crate) struct Arguments {
    /// Fewer rounds and connections, under 5 minutes; memory only if named, and without its 10 minutes of rest
    #[arg(long)]
    quick: bool,

    /// Only this scenario; earlier results of the others stay; repeatable
    #[arg(long, value_name = "NAME", value_parser = names())]
    only: Vec<String>,

    /// Only these numbers of connections
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=8_192))]
    connections: Vec<u16>,

    /// Only this host of Weir's filters [default: both, side by side]
    #[arg(long, value_name = "HOST", value_parser = ["wasm", "native"])]
    host: Option<String>,

    /// Let apt remove packages that conflict with a peer; otherwise that peer is left out
    #[arg(long)]
    allow_removals: bool,

    /// Duration of each turn, in seconds; a p99.9 needs many thousand requests [default: 1.5, --quick: 0.4]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,

    /// Measure nothing: render the page and the plots from bench/results.json
    #[arg(long)]
    render: bool,

    /// Also write all numbers to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

fn names() -> clap::builder::PossibleValuesParser {
    let scenarios = scenario::ALL.iter().map(|scenario| scenario.name);
    clap::builder::PossibleValuesParser::new(scenarios.chain([MEMORY, COSTS, EDGE, ROOM, OVERLOAD]))
}

impl Arguments {
    fn effort(&self) -> Effort {
        let mut effort = if self.quick { quick() } else { full() };
        if !self.connections.is_empty() {
            effort.connections = self.connections.iter().map(|n| usize::from(*n)).collect();
        }
        if let Some(seconds) = self.seconds {
            effort.window = Duration::from_secs(seconds);
        }
        effort.left_out = match self.host.as_deref() {
            Some("native") => Some(System::Weir),
            Some(_) => Some(System::WeirNative),
            None => None,
        };
        effort
    }

    fn asks_for(&self, name: &str) -> bool {
        // Memory is measured for WebAssembly VMs.
        let has_vms = self.host.as_deref() != Some("native");
        let is_left_out =
            (self.quick || !has_vms) && name == MEMORY || !has_vms && name == OVERLOAD;
        self.only.iter().any(|only| only == name) || self.only.is_empty() && !is_left_out
    }

    fn removals(&self) -> Removals {
        match self.allow_removals {
            true => Removals::Allow,
            false => Removals::Refuse,
        }
    }

    /// The gateway's idle time before its memory is measured again.
    fn rest(&self) -> Duration {
        Duration::from_secs(if self.quick { 5 } else { 600 })
    }
}

fn full() -> Effort {
    Effort {
        rounds: 5,
        warm_up: Duration::from_millis(300),
        window: Duration::from_millis(1_500),
        connections: vec![1, 8, 32, 128, 512, 1_024],
        left_out: None,
        rates: &[2_000.0, 5_000.0, 10_000.0, 20_000.0],
    }
}

fn quick() -> Effort {
    Effort {
        rounds: 3,
        warm_up: Duration::from_millis(150),
        window: Duration::from_millis(400),
        connections: vec![8, 128, 1_024],
        left_out: None,
        rates: &[],
    }
}

pub(super) fn run(arguments: &Arguments, options: Options) -> Result<ExitCode> {
    let home = workspace::root().join("bench");
    let retained = home.join("results.json");
    let mut report = Report::read(&retained)?;
    if !arguments.render {
        let tools = Tools::find_or_get(&options, &mut Console)?;
        // These are measured by separate programs, which build what they measure.
        let has_program = |name: &String| name == EDGE || name == ROOM;
        let has_gateways = arguments.only.is_empty() || !arguments.only.iter().all(has_program);
        if has_gateways {
            wasm::build_filters(&tools.wasm, Messages::Show)?;
        }
        if has_gateways && arguments.host.as_deref() != Some("wasm") {
            Host::NativeRelease.ensure_built()?;
        }
        if arguments.asks_for(COSTS) {
            report.costs = count_costs()?;
        }
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        runtime.block_on(async {
            let mut stop = Stop::new()?;
            tokio::select! {
                measured = measure(arguments, &tools, &mut report, &retained) => measured,
                () = stop.wait_for_signal() => anyhow::bail!("stopped; complete results are kept"),
            }
        })?;
        report.write(&retained)?;
    }
    write_page(&report, &home)?;
    if let Some(file) = &arguments.report {
        report.write(file)?;
    }
    Console.line("results", &home.join("RESULTS.md").display().to_string());
    if !arguments.render {
        say_what_is_missing(arguments, &report);
    }
    Ok(ExitCode::SUCCESS)
}

/// Printed last, because a table cell "not measured" is easily overlooked.
fn say_what_is_missing(arguments: &Arguments, report: &Report) {
    let measured = report.scenarios.iter();
    let absent: Vec<_> = measured
        .filter(|(name, _)| arguments.asks_for(name))
        .flat_map(|(name, measured)| measured.absent.iter().map(|absent| (name.as_str(), absent)))
        .collect();
    if let Some(text) = peers::missing(&absent) {
        eprintln!("{text}");
    }
}

/// Writes results after each scenario, because a later one may fail.
async fn measure(
    arguments: &Arguments,
    tools: &Tools,
    report: &mut Report,
    retained: &Path,
) -> Result<()> {
    let effort = arguments.effort();
    let cores = Cores::of_this_machine()?;
    let temporary = tempfile::tempdir().context("cannot make a folder")?;
    let peers = Peers::find_or_get(arguments.removals());
    let bench_env = BenchEnv {
        tools,
        peers: &peers,
        cores,
        dir: temporary.path(),
        origin: origin::ensure_built_release,
        native: Host::NativeRelease,
    };
    for scenario in &scenario::ALL {
        let is_asked = arguments.asks_for(scenario.name);
        if !is_asked || !effort.has_weir(scenario) {
            continue;
        }
        let run = machine::describe(&effort, arguments.quick, cores, tools, &peers)?;
        Console.line(scenario.name, scenario.title);
        let measured = measure::measure(scenario, &effort, &bench_env).await;
        let (points, absent) = measured.with_context(|| scenario.name.to_owned())?;
        let measured = ScenarioFigures {
            run,
            points,
            absent,
        };
        report.scenarios.insert(scenario.name.to_owned(), measured);
        report.write(retained)?;
    }
    if arguments.asks_for(EDGE) {
        let run = machine::describe(&effort, arguments.quick, cores, tools, &peers)?;
        Console.line(EDGE, "edges in their runtimes…");
        report.edges = Some((run, edges::measure(&effort)?));
        report.write(retained)?;
    }
    if arguments.asks_for(ROOM) {
        let run = machine::describe(&effort, arguments.quick, cores, tools, &peers)?;
        Console.line(ROOM, "a million people in the queue…");
        report.room = Some((run, room::measure(&effort)?));
        report.write(retained)?;
    }
    if arguments.asks_for(OVERLOAD) {
        let run = machine::describe(&effort, arguments.quick, cores, tools, &peers)?;
        Console.line(OVERLOAD, "twice the load that can be answered…");
        report.overload = Some((run, overload::measure(&effort, &bench_env).await?));
        report.write(retained)?;
    }
    if arguments.asks_for(MEMORY) {
        let run = machine::describe(&effort, arguments.quick, cores, tools, &peers)?;
        Console.line(MEMORY, &format!("{} users…", memory::USERS));
        let memory = memory::measure(&bench_env, arguments.rest(), &effort).await?;
        report.memory = Some((run, memory));
    }
    Ok(())
}

/// Runs a separate program, because it needs a wasm runtime, which this one avoids.
fn count_costs() -> Result<Vec<Cost>> {
    Console.line(COSTS, "building weir-costs…");
    let binary = build::binary("weir-costs", &[], None)?;
    let output = command::succeed(&mut Command::new(binary), Duration::from_secs(1_800))?;
    serde_json::from_str(&output).context("unexpected output of weir-costs")
}

/// The page and its plots.
fn write_page(report: &Report, home: &Path) -> Result<()> {
    let plots = home.join("plots");
    std::fs::create_dir_all(&plots).with_context(|| format!("cannot make {}", plots.display()))?;
    let write = |file: PathBuf, text: String| {
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write(home.join("RESULTS.md"), markdown::page(report))?;
    for (name, svg) in all_plots(report)? {
        write(plots.join(format!("{name}.svg")), svg)?;
    }
    Ok(())
}

fn all_plots(report: &Report) -> Result<Vec<(String, String)>> {
    let groups = markdown::cost_groups(report);
    let subtitle = "128 connections; solid: the gateway, pale: Redis";
    let mut plots: Vec<_> = plot::costs(subtitle, &groups)?
        .map(|svg| ("cost".to_owned(), svg))
        .into_iter()
        .collect();
    for scenario in &scenario::ALL {
        let Some(measured) = report.scenarios.get(scenario.name) else {
            continue;
        };
        let throughput = lines(scenario, measured, false, |round| round.rate).svg()?;
        plots.extend(throughput.map(|svg| (format!("{}-throughput", scenario.name), svg)));
        let p99 = lines(scenario, measured, true, |round| round.p99_ms).svg()?;
        plots.extend(p99.map(|svg| (format!("{}-p99", scenario.name), svg)));
    }
    Ok(plots)
}

/// The p99 of the open loop if there are enough points for a line. In a closed loop, p99 only reflects the queue
/// length.
fn lines<'a>(
    scenario: &'a Scenario,
    measured: &ScenarioFigures,
    is_p99: bool,
    of: fn(&Round) -> f64,
) -> Lines<'a> {
    let is_everywhere = scenario.open_loop.connections == scenario::Connections::All;
    let is_measured = measured.points.iter().any(|point| point.offered.is_some());
    let is_open = is_p99 && is_everywhere && is_measured;
    let point = |system, connections| match is_open {
        true => measured.open(system, connections),
        false => measured.closed(system, connections),
    };
    let series = |system: &System| {
        let connections = measured.connections().into_iter();
        let at = |n: usize| {
            let point: &Point = point(*system, n).filter(|point| point.is_right())?;
            Some((n, point.spread(of)?))
        };
        let points: Vec<_> = connections.filter_map(at).collect();
        (!points.is_empty()).then_some(Series {
            system: *system,
            points,
        })
    };
    Lines {
        title: scenario.title,
        subtitle: match (is_p99, is_open) {
            (false, _) => {
                "answers a second in a closed loop, one worker on one core; medians, least and greatest"
            }
            (true, true) => {
                "p99 in ms, open loop at 70 % of what the slower one can do; medians, least and greatest"
            }
            (true, false) => "p99 in ms, closed loop; medians, least and greatest",
        },
        is_log: is_p99,
        series: scenario.systems.iter().filter_map(series).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::report::tests::{measured, point};
    use super::*;

    #[test]
    fn page_is_written_with_its_plots() {
        let mut report = Report::default();
        let both = |connections| {
            [System::Weir, System::NginxLua].map(|system| point(system, connections, None, &[50.0]))
        };
        let points = both(8).into_iter().chain(both(128)).collect();
        report
            .scenarios
            .insert("redis".to_owned(), measured(points));
        let temp = tempfile::tempdir().unwrap();
        write_page(&report, temp.path()).unwrap();
        let page = std::fs::read_to_string(temp.path().join("RESULTS.md")).unwrap();
        for link in page.split("](").filter_map(|rest| rest.split(')').next()) {
            if let Some(plot) = link.strip_prefix("plots/") {
                assert!(temp.path().join("plots").join(plot).exists(), "{link}");
            }
        }
        assert!(page.contains("plots/redis-p99.svg"));
    }

    /// Runs every scenario with all available peers, too briefly for meaningful numbers. Each system must start, answer
    /// like the others, and do the requested work.
    #[tokio::test(flavor = "multi_thread")]
    async fn every_compared_system_completes_the_workload() {
        let tools = Tools::find_or_get(&Options::default(), &mut Console).unwrap();
        wasm::build_filters(&tools.wasm, Messages::Keep).unwrap();
        let effort = Effort {
            rounds: 1,
            warm_up: Duration::ZERO,
            window: Duration::from_millis(200),
            connections: vec![16],
            left_out: None,
            rates: &[],
        };
        let temporary = tempfile::tempdir().unwrap();
        let peers = Peers::find_or_get(Removals::Refuse);
        let bench_env = BenchEnv {
            tools: &tools,
            peers: &peers,
            // Nothing is measured, so the cores stay available for other tests.
            cores: Cores {
                server: 0,
                load: 0,
                redis: 0,
            },
            dir: temporary.path(),
            // Uses the test build: a release build takes minutes.
            origin: origin::ensure_built,
            native: Host::Native,
        };
        for scenario in scenario::ALL {
            let scenario = Scenario {
                connections: scenario::Connections::All,
                ..scenario
            };
            let (points, absent) = measure::measure(&scenario, &effort, &bench_env)
                .await
                .unwrap();
            let systems = scenario.systems.len() - absent.len();
            assert!(points.len() >= systems, "{}: {absent:?}", scenario.name);
            for point in &points {
                assert!(point.is_right(), "{}: {point:?}", scenario.name);
            }
            println!("{}: {} systems, {absent:?}", scenario.name, systems);
        }
    }

    #[test]
    fn name_argument_selects_one_scenario() {
        let arguments = Arguments {
            quick: true,
            only: vec!["redis".to_owned()],
            connections: vec![7],
            host: Some("native".to_owned()),
            allow_removals: false,
            seconds: Some(6),
            render: false,
            report: None,
        };
        assert_eq!(arguments.effort().window, Duration::from_secs(6));
        assert!(arguments.asks_for("redis") && !arguments.asks_for(MEMORY));
        assert_eq!(arguments.effort().connections, [7]);
        let effort = arguments.effort();
        let measured = scenario::ALL
            .iter()
            .filter(|scenario| effort.has_weir(scenario));
        assert!(
            measured.clone().count() > 4
                && measured
                    .clone()
                    .all(|scenario| scenario.name != "make-link")
        );
        let all = Arguments {
            only: vec![],
            ..arguments
        };
        assert!(
            all.asks_for(COSTS) && !all.asks_for(MEMORY),
            "a million users take a minute"
        );
        let names = scenario::ALL.map(|scenario| scenario.name);
        assert!(!names.contains(&MEMORY) && !names.contains(&COSTS));
    }
}
