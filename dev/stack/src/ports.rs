//! Free ports on 127.0.0.1.

use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Below the systems' ranges for outgoing connections (32768 and up): a storm of clients must not take the port of a
/// Redis that is briefly stopped.
const RANGE: std::ops::Range<u16> = 15_000..30_000;

/// The lock files of ports that this process reserved, held until it ends.
static GIVEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A port without a listener, reserved for this process: [`free`] gives it to no other process of the same user.
pub fn free() -> Result<u16> {
    let dir = lock_dir();
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut input = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // Processes start at different ports, so that they rarely collide.
    let count = RANGE.len();
    let start = (std::process::id() as usize).wrapping_mul(97) % count;
    let candidates = RANGE.cycle().skip(start).take(count);
    for port in candidates {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join(port.to_string()))?;
        if file.try_lock().is_ok() && is_unused(port) {
            input.push(file);
            return Ok(port);
        }
    }
    bail!("no free port from {} to {}", RANGE.start, RANGE.end)
}

/// Returns an error that names `flag` if `port` is in use.
pub fn check(port: u16, flag: &str) -> Result<()> {
    if !is_unused(port) {
        bail!("port {port} is in use; choose another with {flag}");
    }
    Ok(())
}

/// A wildcard address conflicts with listeners on any address.
fn is_unused(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

fn lock_dir() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("weir-ports-{user}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_allocated_once() {
        let ports: std::collections::BTreeSet<_> = (0..50).map(|_| free().unwrap()).collect();
        assert_eq!(ports.len(), 50);
    }

    #[test]
    fn port_in_use_is_refused_with_the_flag_to_change() {
        let port = free().unwrap();
        check(port, "--gateway-port").unwrap();
        // This order matters: a child that another test starts at this moment inherits the listener until it executes
        // another program.
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let error = check(port, "--gateway-port").unwrap_err().to_string();
        assert!(
            error.contains(&port.to_string()) && error.contains("--gateway-port"),
            "{error}"
        );
    }
}
