//! Debian packages, installed where that may be done without asking.

use crate::command;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Long enough for the largest of our packages (100 MB) on a slow line.
const LIMIT: Duration = Duration::from_secs(900);

/// Why apt cannot be used here, or how it can.
enum Access {
    Root,
    Sudo,
}

/// Installs `packages`. Refuses rather than remove another package for them.
///
/// The error of a machine where it may not be done is an instruction to the person.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    if command::on_path("apt-get").is_none() {
        bail!("this machine has no apt-get to install {list} with");
    }
    let Some(access) = access() else {
        bail!("not root, and sudo asks for a password; run: sudo apt-get install {list}");
    };
    apt(&access, &["update"]).context("apt-get update failed")?;
    let options = ["install", "-y", "--no-install-recommends", "--no-remove"];
    apt(&access, &[&options, packages].concat())
        .with_context(|| format!("apt-get could not install {list}"))
}

/// As [`install`], but no service of the packages is started: their servers are run by us, when they are
/// needed. Debian asks `policy-rc.d` whether a service may be; an administrator's own is left alone.
pub(super) fn install_stopped(packages: &[&str]) -> Result<()> {
    if Path::new(POLICY).exists() {
        return install(packages);
    }
    let list = packages.join(" ");
    let Some(access) = access() else {
        bail!("not root, and sudo asks for a password; run: sudo apt-get install {list}");
    };
    as_root(&access, &["sh", "-c", FORBID])?;
    let installed = install(packages);
    as_root(&access, &["rm", "-f", POLICY])?;
    installed
}

/// Debian's own place for it.
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
    // Another apt may be at work, as on a machine that has just started.
    let command = [
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "-q",
        "-o",
        "DPkg::Lock::Timeout=300",
    ];
    as_root(access, &[&command, args].concat())
}
