//! Finds `WEIR_` environment variables that no component reads, such as misspelled names.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::{Command, CommandFactory};

use crate::config::Config;

/// Prefix of all names.
const PREFIX: &str = "WEIR_";

/// Suffix of a variable that names the file of a secret.
const FILE: &str = "_FILE";

/// Variables that gateways read in the shipped configurations. Gateways and origin may share one environment file.
const OF_GATEWAYS: [&str; 4] = [
    "WEIR_TOKEN_SECRET",
    "WEIR_REDIS_PASSWORD",
    "WEIR_ROOM_SECRET",
    "WEIR_EVENTS_KEY_SHOP",
];

/// A variable without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdleVariable {
    pub(crate) name: String,
    /// Why it has no effect.
    pub(crate) problem: &'static str,
    /// What to do.
    pub(crate) fix: String,
}

impl std::fmt::Display for IdleVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.name, self.problem, self.fix)
    }
}

/// Returns the variables without effect.
pub(crate) fn idle(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<IdleVariable> {
    let existing = documented_names();
    let variables = variables.into_iter().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        name.starts_with(PREFIX).then(|| (name, value.is_empty()))
    });
    let variables: Vec<(String, bool)> = variables.collect();
    let is_set = |requested: &str| variables.iter().any(|(name, _)| name == requested);
    let mut idle = Vec::new();
    for (name, is_empty) in &variables {
        let plain = name.strip_suffix(FILE).unwrap_or(name);
        if !existing.contains(name) && !existing.contains(plain) && !is_service_link(name) {
            idle.push(unknown(name, &existing));
        } else if *is_empty && is_set(&format!("{name}{FILE}")) {
            idle.push(IdleVariable {
                name: name.clone(),
                problem: "is empty, so its file is used",
                fix: format!("remove it, or {name}{FILE}"),
            });
        }
    }
    idle
}

/// Whether Kubernetes sets this variable for a Service whose name begins with `weir`.
fn is_service_link(name: &str) -> bool {
    let parts = ["_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP"];
    name.ends_with("_PORT") || parts.iter().any(|part| name.contains(part))
}

fn unknown(name: &str, existing: &BTreeSet<String>) -> IdleVariable {
    let is_like = |other: &&String| other.starts_with(name) || name.starts_with(other.as_str());
    let fix = match existing.iter().find(is_like) {
        Some(other) => format!("did you mean {other}?"),
        None => "remove it, or correct its name (weir-origin --help lists all)".to_owned(),
    };
    IdleVariable {
        name: name.to_owned(),
        problem: "is not a variable of weir-origin",
        fix,
    }
}

/// Returns all variable names in the help of the program and its commands.
fn documented_names() -> BTreeSet<String> {
    let mut existing = OF_GATEWAYS.map(ToOwned::to_owned).into();
    collect(&mut Config::command(), &mut existing);
    existing
}

fn collect(command: &mut Command, existing: &mut BTreeSet<String>) {
    let help = command.render_long_help().to_string();
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let words = words.filter(|word| word.starts_with(PREFIX) && !word.ends_with('_'));
    existing.extend(words.map(ToOwned::to_owned));
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    let variables = variables.filter_map(|name| name.to_str());
    existing.extend(variables.map(ToOwned::to_owned));
    for command in command.get_subcommands_mut() {
        collect(command, existing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Vec<String> {
        let variables = variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        idle(variables).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn used_variables_are_accepted() {
        let well = [
            ("WEIR_REDIS_URL", "redis://h"),
            ("WEIR_CLAIM_SECRET_FILE", "/f"),
            ("WEIR_ADMIN_TOKEN", ""),
            ("WEIR_EDGE_SECRET_PREVIOUS", "s"),
            ("WEIR_REDIS_PASSWORD", "p"),
            ("PATH", "/bin"),
            ("WEIR_WEIR_ORIGIN_SERVICE_HOST", "10.0.0.1"),
            ("WEIR_WEIR_ORIGIN_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ];
        assert_eq!(found(&well), [""; 0]);
    }

    #[test]
    fn unknown_variable_is_reported_with_the_closest_name() {
        assert_eq!(
            found(&[("WEIR_HOLD_COOLDOWN", "5")]),
            [
                "WEIR_HOLD_COOLDOWN is not a variable of weir-origin: did you mean WEIR_HOLD_COOLDOWN_MS?"
            ]
        );
        let [other] = &found(&[("WEIR_NONSENSE", "5")])[..] else {
            panic!("one");
        };
        assert!(other.contains("--help"), "{other}");
    }

    #[test]
    fn empty_secret_variable_with_a_secret_file_is_reported() {
        let both = [("WEIR_CLAIM_SECRET", ""), ("WEIR_CLAIM_SECRET_FILE", "/f")];
        assert_eq!(
            found(&both),
            [
                "WEIR_CLAIM_SECRET is empty, so its file is used: remove it, or WEIR_CLAIM_SECRET_FILE"
            ]
        );
    }
}
