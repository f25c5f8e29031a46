//! The gateway's memory.

use anyhow::{Context, Result};
use serde::Serialize;
use weir_stack::Stack;

/// The statistic of memory allocated by Envoy's allocator.
const ALLOCATED: &str = "server.memory_allocated";

/// The gateway's memory at one time, in bytes.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Memory {
    /// Resident memory as the kernel reports it, including the filters' VMs and their compiled code.
    pub(super) resident: u64,
    /// Allocated by Envoy's allocator, without the VMs' memory, which V8 maps directly.
    pub(super) allocated: u64,
}

impl Memory {
    pub(super) async fn read(stack: &mut Stack) -> Result<Self> {
        let pid = stack.envoy.process().pid().context("Envoy does not run")?;
        Ok(Self {
            resident: resident(pid)?,
            allocated: stack.envoy.stat(ALLOCATED).await?,
        })
    }
}

pub(super) fn resident(pid: u32) -> Result<u64> {
    let file = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    resident_in(&status).with_context(|| format!("no VmRSS in {file}"))
}

/// Parses a line like `VmRSS:      123456 kB`, where a kB is 1024 bytes.
fn resident_in(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_kernel_lines() {
        let status = "VmHWM:\t  200 kB\nVmRSS:\t      12 kB\nThreads:\t4\n";
        assert_eq!(resident_in(status), Some(12 * 1024));
        assert_eq!(resident_in("VmHWM:\t  200 kB\n"), None);
        assert!(resident(std::process::id()).unwrap() > 0);
    }
}
