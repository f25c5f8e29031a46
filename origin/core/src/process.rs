//! Standard Prometheus metrics of the process.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Collector of this process, read from the kernel at each scrape. Empty on systems without `/proc`.
#[derive(Debug)]
pub struct Process;

/// Resource usage of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usage {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    open_fds: u64,
    max_fds: Option<u64>,
    threads: u64,
    start_seconds: f64,
}

#[cfg(target_os = "linux")]
fn usage() -> Option<Usage> {
    use procfs::process::{LimitValue, Process};
    use procfs::{Current, Uptime};

    let this = Process::myself().ok()?;
    let stat = this.stat().ok()?;
    #[allow(clippy::cast_precision_loss)] // Of centuries it would matter.
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).ok()?;
    let booted_seconds = now.as_secs_f64() - Uptime::current().ok()?.uptime;
    let max_fds = match this.limits().ok()?.max_open_files.soft_limit {
        LimitValue::Value(most) => Some(most),
        LimitValue::Unlimited => None,
    };
    Some(Usage {
        cpu_seconds: seconds(stat.utime.saturating_add(stat.stime)),
        resident_bytes: stat.rss.saturating_mul(procfs::page_size()),
        virtual_bytes: stat.vsize,
        open_fds: this.fd_count().ok()?.try_into().ok()?,
        max_fds,
        threads: stat.num_threads.try_into().ok()?,
        start_seconds: booted_seconds + seconds(stat.starttime),
    })
}

#[cfg(not(target_os = "linux"))]
fn usage() -> Option<Usage> {
    None
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(usage) = usage() else { return Ok(()) };
        let help = "CPU time in user and kernel mode, in seconds";
        let cpu = ConstCounter::new(usage.cpu_seconds);
        let metric =
            encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        cpu.encode(metric)?;
        let mut gauge = |name, help, value: f64| {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)
        };
        #[allow(clippy::cast_precision_loss)] // As Prometheus does with every number.
        let float = |number: u64| number as f64;
        let help = "Resident memory in bytes";
        gauge(
            "process_resident_memory_bytes",
            help,
            float(usage.resident_bytes),
        )?;
        let help = "Virtual memory in bytes";
        gauge(
            "process_virtual_memory_bytes",
            help,
            float(usage.virtual_bytes),
        )?;
        gauge(
            "process_open_fds",
            "Open file descriptors",
            float(usage.open_fds),
        )?;
        let most = usage.max_fds.map_or(f64::INFINITY, float);
        gauge("process_max_fds", "Limit of open file descriptors", most)?;
        gauge("process_threads", "Threads", float(usage.threads))?;
        let help = "Start time, in seconds since the Unix epoch";
        gauge("process_start_time_seconds", help, usage.start_seconds)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn usage_describes_the_current_process() {
        let before = usage().unwrap();
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let after = usage().unwrap();
        drop(file);
        // Other tests run concurrently and open and close files.
        assert!(before.open_fds > 2 && after.open_fds > 2);
        assert!(after.cpu_seconds >= before.cpu_seconds);
        assert!(after.resident_bytes > 1024 * 1024 && after.virtual_bytes > after.resident_bytes);
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - after.start_seconds;
        assert!((-1.0..3_600.0).contains(&age), "{age}");
    }
}
