//! The peers, found or installed once for all scenarios, and the reasons for missing ones.

use super::report::SkippedSystem;
use anyhow::{Result, anyhow};
use std::collections::{BTreeMap, BTreeSet};
use weir_stack::report::Console;
use weir_stack::tools::{Peer, Removals};

/// The peers, or the reason for each missing one.
pub(super) struct Peers {
    nginx: Result<Peer, String>,
    webdis: Result<Peer, String>,
}

impl Peers {
    pub(super) fn find_or_get(removals: Removals) -> Self {
        let retained = |found: Result<Peer>| found.map_err(|error| format!("{error:#}"));
        Self {
            nginx: retained(Peer::nginx(removals, &mut Console)),
            webdis: retained(Peer::webdis(removals, &mut Console)),
        }
    }

    pub(super) fn nginx(&self) -> Result<&Peer> {
        self.nginx.as_ref().map_err(|why| anyhow!("{why}"))
    }

    pub(super) fn webdis(&self) -> Result<&Peer> {
        self.webdis.as_ref().map_err(|why| anyhow!("{why}"))
    }
}

/// Missing measurements grouped by reason, for the end of a run. `None` if nothing is missing.
pub(super) fn missing(absent: &[(&str, &SkippedSystem)]) -> Option<String> {
    let mut by_reason: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (scenario, absent) in absent {
        let message = format!("{} in {scenario}", absent.system.label());
        by_reason.entry(&absent.reason).or_default().insert(message);
    }
    if by_reason.is_empty() {
        return None;
    }
    let rule = "=".repeat(78);
    let mut text =
        format!("\n{rule}\nNOT EVERYTHING WAS MEASURED: the comparison is incomplete.\n");
    for (reason, systems) in by_reason {
        let systems: Vec<String> = systems.into_iter().collect();
        text += &format!("\nMissing: {}\nReason:  {reason}\n", systems.join(", "));
    }
    Some(text + &rule)
}

#[cfg(test)]
mod tests {
    use super::super::system::System;
    use super::*;

    fn absent(system: System, reason: &str) -> SkippedSystem {
        SkippedSystem {
            system,
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn missing_systems_are_reported_once_per_reason() {
        let nginx = absent(System::NginxLua, "would remove libluajit-5.1-2");
        let limit = absent(System::NginxLimit, "would remove libluajit-5.1-2");
        let webdis = absent(System::EnvoyWebdis, "no apt-get");
        let response = missing(&[
            ("redis", &nginx),
            ("user-limit", &limit),
            ("redis", &webdis),
        ])
        .unwrap();
        assert_eq!(
            response.matches("would remove libluajit-5.1-2").count(),
            1,
            "{response}"
        );
        assert!(
            response.contains("NOT EVERYTHING WAS MEASURED"),
            "{response}"
        );
        assert!(
            response.contains("nginx + Lua in redis, nginx limit_req in user-limit"),
            "{response}"
        );
        assert!(
            response.contains("Missing: wasm + Webdis in redis\nReason:  no apt-get"),
            "{response}"
        );
    }

    #[test]
    fn complete_run_reports_nothing_missing() {
        assert_eq!(missing(&[]), None);
    }
}
