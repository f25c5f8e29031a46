//! Additional limits: for browse history, and for events in Redis.

use super::{CLUSTERS, EnvoyConfig, LISTENERS, RATELIMIT_REDIS, at, list, tree};
use anyhow::{Context, Result};
use serde_json::Value;

const HISTORY: &str = "envoy/snippets/history-limits.yaml";

/// The bridge's listener and its cluster.
const BRIDGE_LISTENER: &str = "weir_redis";

impl EnvoyConfig {
    /// Adds `envoy/snippets/history-limits.yaml` before the gate, as the documentation instructs; for
    /// [`EnvoyConfig::shipped`].
    pub fn history_limits(mut self) -> Result<Self> {
        let mut read = tree::read(HISTORY)?;
        let filters = list(read.first_mut().context("it is empty")?, "")?;
        let filters: Vec<Value> = std::mem::take(filters);
        self.http_filters()?.splice(0..0, filters);
        // It names the module relative to the workspace, like the shipped files.
        Ok(self.wasm_dir(&crate::workspace::out_dir()))
    }

    /// Adds the bridge of `envoy/ratelimit-redis.yaml` to files without one.
    pub fn with_bridge(mut self) -> Result<Self> {
        let mut theirs = Self::read(RATELIMIT_REDIS)?.tree;
        let extensions = at(&mut theirs, "/bootstrap_extensions")?.take();
        let own = self.tree.as_object_mut().context("no configuration")?;
        own.insert("bootstrap_extensions".to_owned(), extensions);
        for (place, names) in [
            (LISTENERS, &[BRIDGE_LISTENER][..]),
            (CLUSTERS, &[BRIDGE_LISTENER, super::REDIS_CLUSTER]),
        ] {
            for name in names {
                let all = list(&mut theirs, place)?;
                let one = tree::position(all, name)?;
                let one = all.remove(one);
                list(&mut self.tree, place)?.push(one);
            }
        }
        Ok(self)
    }
}
