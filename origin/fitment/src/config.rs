//! Configuration of vehicle fitment.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use weir_fitment::placement::Rules;
use weir_fitment::{Cluster, Plan};

use weir_origin_core::clock::{Clock, now_ms};
use weir_origin_core::redis::Redis;

/// The flags of vehicle fitment.
#[derive(Clone, Args)]
pub struct FitmentConfig {
    /// Enable vehicle fitment (which parts fit which vehicles); the folder holds pending imports
    #[arg(long, env = "WEIR_FITMENT")]
    pub fitment: Option<PathBuf>,

    /// Additional Redis for relations, such as own=redis://host:6379; repeatable. --redis-url has the name home
    #[arg(
        long,
        env = "WEIR_FITMENT_CLUSTERS",
        value_delimiter = ';',
        hide_env_values = true
    )]
    pub fitment_cluster: Vec<String>,

    /// File that assigns products to one of these Redis servers, by type and merchant
    #[arg(long, env = "WEIR_FITMENT_RULES")]
    pub fitment_rules: Option<PathBuf>,

    /// Compare this many SKUs per second with Redis, continuously; 0: none
    #[arg(long, env = "WEIR_FITMENT_VERIFY_PER_S", default_value_t = 100)]
    pub fitment_verify_per_s: u32,
}

impl FitmentConfig {
    /// Converts the flags into settings; `None` if fitment is off.
    ///
    /// # Errors
    /// Names the invalid flag.
    pub fn settings(&self, key_prefix: &str) -> Result<Option<Settings>> {
        let Some(spool) = &self.fitment else {
            return Ok(None);
        };
        std::fs::create_dir_all(spool).with_context(|| {
            format!(
                "--fitment: cannot create the folder \"{}\"",
                spool.display()
            )
        })?;
        let mut settings = Settings::new(spool.clone());
        for text in self.fitment_cluster.iter().filter(|text| !text.is_empty()) {
            // The URL may contain a password, so errors do not show it.
            let (name, url) = text
                .split_once('=')
                .context("--fitment-cluster: must be <name>=<url>")?;
            let cluster = Cluster::new(name).filter(|cluster| *cluster != Cluster::home());
            let cluster = cluster.context(
                "--fitment-cluster: the name must be 1 to 32 of a-z, 0-9 and -, except home",
            )?;
            if settings
                .clusters
                .iter()
                .any(|(existing, _)| *existing == cluster)
            {
                bail!("--fitment-cluster: \"{name}\" appears twice");
            }
            let redis =
                Redis::new(url, key_prefix).with_context(|| format!("--fitment-cluster {name}"))?;
            settings.clusters.push((cluster, redis));
        }
        if let Some(path) = &self.fitment_rules {
            let json = std::fs::read_to_string(path).context("--fitment-rules")?;
            let mut existing: Vec<Cluster> = settings
                .clusters
                .iter()
                .map(|(name, _)| name.clone())
                .collect();
            existing.push(Cluster::home());
            settings.rules = Rules::read(&json, &existing).context("--fitment-rules")?;
        }
        settings.verify_per_s = self.fitment_verify_per_s;
        Ok(Some(settings))
    }
}

/// Settings of vehicle fitment.
#[derive(Clone)]
pub struct Settings {
    /// The folder of pending imports. Origins that share imports share this folder.
    pub spool: PathBuf,
    /// Further Redis servers besides the origin's own.
    pub clusters: Vec<(Cluster, Redis)>,
    /// Rules that assign products to a Redis.
    pub rules: Rules,
    /// Storage format of relations in Redis.
    pub plan: Plan,
    /// Lifetime of a cached page of parts, in milliseconds: the maximum delay until a single change appears there.
    pub page_life_ms: u64,
    /// Number of SKUs compared with Redis per second; 0: none.
    pub verify_per_s: u32,
    /// Maximum number of concurrent queries that read SQL. Further queries are refused; Redis can answer them soon.
    pub fallbacks_max: usize,
    /// Number of import records read between two stored positions.
    pub records_staged: usize,
    /// Reads the clock.
    pub clock: Clock,
}

impl Settings {
    /// Default settings with this folder for imports.
    pub fn new(spool: PathBuf) -> Self {
        Self {
            spool,
            clusters: Vec::new(),
            rules: Rules::default(),
            plan: Plan::default(),
            page_life_ms: 60_000,
            verify_per_s: 0,
            fallbacks_max: 8,
            records_staged: 1_000_000,
            clock: Arc::new(now_ms),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("spool", &self.spool)
            .field("rules", &self.rules)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
