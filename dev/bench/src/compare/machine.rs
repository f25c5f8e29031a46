//! Describes the machine and time of a measurement.

use super::cores::Cores;
use super::measure::Effort;
use super::peers::Peers;
use super::report::Run;
use anyhow::Result;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_stack::tools::Tools;
use weir_stack::{command, workspace};

/// The description of a run.
pub(super) fn describe(
    effort: &Effort,
    is_quick: bool,
    cores: Cores,
    tools: &Tools,
    peers: &Peers,
) -> Result<Run> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    Ok(Run {
        date: date(now),
        commit: commit(),
        machine: machine(),
        cores,
        versions: versions(tools, peers),
        is_quick,
        rounds: effort.rounds,
        window_s: effort.window.as_secs_f64(),
        load_average: load_average(),
    })
}

fn versions(tools: &Tools, peers: &Peers) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::from([
        ("Redis".to_owned(), tools.redis.version.clone()),
        ("Envoy".to_owned(), tools.envoy.version.clone()),
    ]);
    // The affected scenarios report a missing peer.
    if let Ok(peer) = peers.nginx() {
        versions.insert("nginx".to_owned(), peer.version.clone());
    }
    if let Ok(peer) = peers.webdis() {
        versions.insert("Webdis".to_owned(), peer.version.clone());
    }
    versions
}

/// The commit, with `-dirty` if any file changed except the results, which a run writes.
fn commit() -> String {
    const RESULTS: [&str; 3] = [
        ":!bench/RESULTS.md",
        ":!bench/results.json",
        ":!bench/plots",
    ];
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(workspace::root());
        output_of(&mut git).trim().to_owned()
    };
    let commit = git(&["describe", "--always"]);
    let changed = git(&[&["status", "--porcelain", "--", "."], &RESULTS[..]].concat());
    match changed.is_empty() {
        true => commit,
        false => format!("{commit}-dirty"),
    }
}

fn output_of(command: &mut Command) -> String {
    command::succeed(command, Duration::from_secs(10)).unwrap_or_default()
}

/// Cores, processor, memory, kernel.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let cpu = value(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory = value(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let memory_kb: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
    let kernel = read("/proc/sys/kernel/osrelease");
    let gib = memory_kb.div_ceil(1 << 20);
    format!("{cores} cores ({cpu}), {gib} GiB, Linux {}", kernel.trim())
}

/// The value in a line like `model name : AMD EPYC`.
fn value(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}

/// The UTC date of a time in seconds since the Unix epoch (Howard Hinnant's `civil_from_days`).
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_match_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_795_219_200), "2026-11-21");
        assert_eq!(date(1_798_761_599), "2026-12-31");
    }

    #[test]
    fn kernel_lists_are_read_by_name() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\n";
        assert_eq!(value(text, "model name").as_deref(), Some("AMD EPYC"));
        assert!(machine().contains("cores"));
    }
}
