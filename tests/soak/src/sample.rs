//! The stack's resource usage at one moment.

use anyhow::{Context, Result};
use std::path::Path;
use weir_stack::Stack;
use weir_stack::process::Process;

/// One process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProcessSample {
    pub(crate) name: String,
    /// Resident memory, in bytes.
    pub(crate) memory_bytes: u64,
    pub(crate) file_descriptors: u64,
    pub(crate) log_bytes: u64,
}

/// A sample of all processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    pub(crate) processes: Vec<ProcessSample>,
    pub(crate) redis_keys: u64,
    pub(crate) redis_bytes: u64,
}

impl Sample {
    pub(crate) async fn take(stack: &mut Stack) -> Result<Self> {
        let (redis_keys, redis_bytes) = redis(stack).await?;
        let mut processes = vec![
            sample("gateway", stack.envoy.process())?,
            sample("origin", stack.origin.process())?,
        ];
        if let Some(gateway) = stack.gateways.first_mut() {
            processes.push(sample("gateway 2", gateway.process())?);
        }
        if let Some(gateway) = &mut stack.link_gateway {
            processes.push(sample("link gateway", gateway.process())?);
        }
        if let Some(redis) = &mut stack.redis.server {
            processes.push(sample("Redis", redis.process())?);
        }
        Ok(Self {
            processes,
            redis_keys,
            redis_bytes,
        })
    }
}

async fn redis(stack: &Stack) -> Result<(u64, u64)> {
    let mut redis = stack.redis.access.connect().await?;
    let keys = redis::cmd("DBSIZE").query_async(&mut redis).await?;
    let mut info = redis::cmd("INFO");
    let info: String = info.arg("memory").query_async(&mut redis).await?;
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used = used.context("Redis does not say what it uses")?;
    Ok((keys, used.trim().parse()?))
}

fn sample(name: &str, process: &Process) -> Result<ProcessSample> {
    let pid = process
        .pid()
        .with_context(|| format!("{name} does not run"))?;
    Ok(ProcessSample {
        name: name.to_owned(),
        memory_bytes: memory_bytes(pid)?,
        file_descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
        log_bytes: file_bytes(process.log()),
    })
}

fn memory_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = kib.context("no VmRSS")?.trim().parse()?;
    Ok(kib * 1024)
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_read() {
        let bytes = memory_bytes(std::process::id()).unwrap();
        assert!(bytes > 100_000, "{bytes}");
    }
}
