//! Debian packages: installed with the person's consent, or unpacked into a folder without changing the machine.

use crate::command;
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal, stdin};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Long enough for the largest package (100 MB) on a slow line.
const LIMIT: Duration = Duration::from_secs(900);

/// How apt can be used here, or why it cannot.
enum Access {
    Root,
    Sudo,
}

/// Whether apt may remove other packages for the installed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Removals {
    /// Never: skip the installation instead.
    #[default]
    Refuse,
    /// The person has agreed.
    Allow,
}

/// Installs `packages` if the person agrees. Refuses if another package would be removed.
///
/// If installation is not possible, the error tells the person what to do.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    install_with(packages, Removals::Refuse)
}

fn install_with(packages: &[&str], removals: Removals) -> Result<()> {
    ask(&packages.join(" "))?;
    install_agreed(packages, removals)
}

fn install_agreed(packages: &[&str], removals: Removals) -> Result<()> {
    let list = packages.join(" ");
    if command::on_path("apt-get").is_none() {
        bail!("cannot install {list}: this machine has no apt-get");
    }
    let Some(access) = access() else {
        bail!("not root, and sudo needs a password; run: sudo apt-get install {list}");
    };
    apt(&access, &["update"]).context("apt-get update failed")?;
    let removed = removed_for(packages)?;
    if removals == Removals::Refuse && !removed.is_empty() {
        return Err(RemovalsNeeded { removed, list }.into());
    }
    // The state may change between the simulation and the installation.
    let keep_others = match removals {
        Removals::Refuse => "--no-remove",
        Removals::Allow => "--remove",
    };
    let options = ["install", "-y", "--no-install-recommends", keep_others];
    apt(&access, &[&options, packages].concat())
        .with_context(|| format!("apt-get could not install {list}"))
}

/// The installation was refused, because it would remove other packages.
#[derive(Debug)]
pub(super) struct RemovalsNeeded {
    removed: Vec<String>,
    list: String,
}

impl std::fmt::Display for RemovalsNeeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "installing {} would remove {}",
            self.list,
            self.removed.join(", ")
        )
    }
}

impl std::error::Error for RemovalsNeeded {}

/// The packages that apt would remove to install `packages`.
fn removed_for(packages: &[&str]) -> Result<Vec<String>> {
    let mut simulate = Command::new("apt-get");
    simulate
        .args(["install", "--simulate", "-q", "--no-install-recommends"])
        .args(packages);
    let output = command::succeed(&mut simulate, LIMIT)
        .with_context(|| format!("apt-get cannot install {}", packages.join(" ")))?;
    Ok(removed_in(&output))
}

/// The names in simulation lines `Remv <name> [<version>]`; `Purg` also removes a package's settings.
fn removed_in(simulation: &str) -> Vec<String> {
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        let is_removal = matches!(words.next()?, "Remv" | "Purg");
        words.next().filter(|_| is_removal).map(str::to_owned)
    };
    simulation.lines().filter_map(name).collect()
}

/// As [`install`], without starting services of the packages: this crate runs their servers on demand. Debian's
/// `policy-rc.d` controls service starts; an administrator's own file is kept.
pub(super) fn install_stopped(packages: &[&str], removals: Removals) -> Result<()> {
    if Path::new(POLICY).exists() {
        return install_with(packages, removals);
    }
    let list = packages.join(" ");
    let Some(access) = access() else {
        bail!("not root, and sudo needs a password; run: sudo apt-get install {list}");
    };
    ask(&list)?;
    as_root(&access, &["sh", "-c", FORBID])?;
    let installed = install_agreed(packages, removals);
    as_root(&access, &["rm", "-f", POLICY])?;
    installed
}

/// The variable whose value `yes` consents to installations without a terminal.
const CONSENT: &str = "WEIR_INSTALL";

/// Requests consent on the terminal.
fn ask(list: &str) -> Result<()> {
    let is_agreed = std::env::var(CONSENT).is_ok_and(|value| value == "yes");
    if is_agreed {
        return Ok(());
    }
    let refusal =
        || format!("to install {list}, set {CONSENT}=yes or run: sudo apt-get install {list}");
    if !stdin().is_terminal() {
        bail!(refusal());
    }
    eprint!("Install {list} with apt-get? [y/N] ");
    let mut answer = String::new();
    stdin()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!(refusal()),
    }
}

/// Unpacks a package and its missing dependencies into `dir`, without installing anything. Needs no root: apt's lists
/// and files are in `dir`, too.
pub(super) fn unpack(package: &str, dir: &Path) -> Result<()> {
    if command::on_path("apt-get").is_none() {
        bail!("cannot download {package}: this machine has no apt-get");
    }
    let apt = dir.join("apt");
    std::fs::create_dir_all(apt.join("lists/partial"))?;
    std::fs::create_dir_all(apt.join("cache/archives/partial"))?;
    let apt_get = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(&apt).arg("-q");
        for (name, folder) in [("State::lists", "lists"), ("Cache", "cache")] {
            let folder = apt.join(folder);
            command.args(["-o", &format!("Dir::{name}={}", folder.display())]);
        }
        command.args(["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="]);
        command.args(args);
        command
    };
    command::succeed(&mut apt_get(&["update"]), LIMIT).context("apt-get update failed")?;
    let simulate = [
        "install",
        "--simulate",
        // Includes installed packages whose files are incomplete.
        "--reinstall",
        "--no-install-recommends",
        package,
    ];
    let simulation = command::succeed(&mut apt_get(&simulate), LIMIT)?;
    let mut download = apt_get(&["download"]);
    command::succeed(download.args(installed_in(&simulation)), LIMIT)
        .with_context(|| format!("apt-get could not download {package}"))?;
    for file in packages_in(&apt)? {
        let mut extract = Command::new("dpkg-deb");
        command::succeed(extract.arg("--extract").arg(&file).arg(dir), LIMIT)?;
    }
    // apt's own files are no longer needed.
    std::fs::remove_dir_all(&apt).context("cannot remove apt's files")
}

/// The names in simulation lines `Inst <name> (<version> …)`.
fn installed_in(simulation: &str) -> Vec<String> {
    let name = |line: &str| {
        let mut words = line.strip_prefix("Inst ")?.split_whitespace();
        words.next().map(str::to_owned)
    };
    simulation.lines().filter_map(name).collect()
}

fn packages_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let files = std::fs::read_dir(dir)?.filter_map(Result::ok);
    let paths = files.map(|entry| entry.path());
    let packages = paths.filter(|path| path.extension().is_some_and(|ending| ending == "deb"));
    Ok(packages.collect())
}

/// The path that Debian defines.
const POLICY: &str = "/usr/sbin/policy-rc.d";
const FORBID: &str =
    "printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d";

fn as_root(access: &Access, args: &[&str]) -> Result<()> {
    let mut command = match access {
        Access::Root => Command::new("env"),
        Access::Sudo => {
            let mut sudo = Command::new("sudo");
            sudo.args(["-n", "env"]);
            sudo
        }
    };
    command::succeed(command.args(args), LIMIT)?;
    Ok(())
}

fn access() -> Option<Access> {
    let quick = Duration::from_secs(5);
    let id = command::succeed(Command::new("id").arg("-u"), quick).ok()?;
    if id.trim() == "0" {
        return Some(Access::Root);
    }
    command::succeed(Command::new("sudo").args(["-n", "true"]), quick).ok()?;
    Some(Access::Sudo)
}

fn apt(access: &Access, args: &[&str]) -> Result<()> {
    // Another apt may be running, for example on a machine that has just started.
    let command = [
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "-q",
        "-o",
        "DPkg::Lock::Timeout=300",
    ];
    as_root(access, &[&command, args].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Debian 12's output on a machine with `wrk` installed, shortened.
    const SIMULATION: &str = "\
NOTE: This is only a simulation!
Reading package lists...
The following packages will be REMOVED:
  libluajit-5.1-2 wrk
The following NEW packages will be installed:
  libluajit2-5.1-2 libnginx-mod-http-lua nginx
0 upgraded, 3 newly installed, 2 to remove and 0 not upgraded.
Remv wrk [4.1.0-3+b2]
Remv libluajit-5.1-2 [2.1.0~beta3+git20220320+dfsg-4.1] [libnginx-mod-http-lua:amd64 ]
Inst libluajit2-5.1-2 (2.1-20230119-1 Debian:12.13/oldstable [amd64])
Inst nginx (1.22.1-9+deb12u3 Debian:12.13/oldstable [amd64])
Conf nginx (1.22.1-9+deb12u3 Debian:12.13/oldstable [amd64])
";

    #[test]
    fn packages_to_remove_are_read_from_a_simulation() {
        assert_eq!(removed_in(SIMULATION), ["wrk", "libluajit-5.1-2"]);
        let harmless: Vec<&str> = SIMULATION
            .lines()
            .filter(|line| !line.starts_with("Remv"))
            .collect();
        assert!(removed_in(&harmless.join("\n")).is_empty());
        assert_eq!(removed_in("Purg old [1.0]\nRemvx no [1]\nRemv"), ["old"]);
    }

    #[test]
    fn packages_to_install_are_read_from_a_simulation() {
        assert_eq!(installed_in(SIMULATION), ["libluajit2-5.1-2", "nginx"]);
    }

    #[test]
    fn error_names_the_packages_to_remove() {
        let error = RemovalsNeeded {
            removed: removed_in(SIMULATION),
            list: "nginx".to_owned(),
        };
        let message = error.to_string();
        assert_eq!(
            message,
            "installing nginx would remove wrk, libluajit-5.1-2"
        );
    }
}
