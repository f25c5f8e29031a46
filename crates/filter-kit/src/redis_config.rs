//! How a filter reaches Redis, as it is written.

use serde::Deserialize;
use weir_scripts::keys::{DEFAULT_PREFIX, is_prefix};

use crate::config::{FieldError, within};
use crate::pump;

/// How Redis is reached.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// The Envoy cluster of the bridge's internal listener: `weir_redis` unless set.
    #[serde(default = "default_cluster")]
    pub cluster: String,
    /// What stands before all keys: `weir` unless set; the origin must have the same.
    #[serde(default = "default_key_prefix")]
    pub key_prefix: String,
    /// How Redis is laid out: `single` unless set.
    #[serde(default)]
    pub topology: Topology,
    /// How long a request waits for Redis, in milliseconds, 1 to 60,000: the filter's own default unless
    /// set. A tick sees to it, so it may be a quarter more, or 10 ms.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    /// The most calls under way at once in each worker: 8 unless set, 1 to 64.
    #[serde(default = "default_batches_max")]
    pub batches_max: usize,
    /// The most requests that wait in each worker: 10,000 unless set; beyond it they get an answer at
    /// once.
    #[serde(default = "default_waiting_max")]
    pub waiting_max: usize,
}

/// How Redis is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topology {
    /// One server, with or without replicas: one script call may touch every key.
    #[default]
    Single,
    /// Redis Cluster: a script call touches one slot.
    Cluster,
}

impl RedisConfig {
    /// Checks the fields of the object at `path`.
    ///
    /// # Errors
    /// When one is out of its bounds.
    pub fn check(&self, path: &str) -> Result<(), FieldError> {
        let field = |name: &str| format!("{path}.{name}");
        if self.cluster.is_empty() {
            let problem = "must name an Envoy cluster";
            return Err(FieldError::new(field("cluster"), problem));
        }
        if !is_prefix(&self.key_prefix) {
            let problem = "must be 1 to 64 of a-z A-Z 0-9 - _ . :";
            return Err(FieldError::new(field("key_prefix"), problem));
        }
        if let Some(deadline_ms) = self.deadline_ms {
            within(&field("deadline_ms"), deadline_ms, 1, 60_000)?;
        }
        within(&field("batches_max"), self.batches_max as u64, 1, 64)?;
        within(&field("waiting_max"), self.waiting_max as u64, 1, 1_000_000)
    }

    /// The pump's limits, with `deadline_ms` unless one is set.
    pub fn pump_settings(&self, deadline_ms: u64) -> pump::Settings {
        pump::Settings {
            deadline_ms: self.deadline_ms.unwrap_or(deadline_ms),
            batches_max: self.batches_max,
            waiting_max: self.waiting_max,
        }
    }
}

fn default_cluster() -> String {
    "weir_redis".into()
}

fn default_key_prefix() -> String {
    DEFAULT_PREFIX.into()
}

fn default_batches_max() -> usize {
    8
}

fn default_waiting_max() -> usize {
    10_000
}
