//! Vehicle fitment in the origin.

use anyhow::{Context, Result};
use axum::Router;
use tokio_util::sync::CancellationToken;

use super::{Domain, Jobs};
use crate::access::AuthLayer;
use crate::config::Config;
use crate::disk::Disk;
use crate::fitment::http::Routes;
use crate::fitment::import::command::{self, ImportCommand};
use crate::fitment::metrics::FitmentMetrics;
use crate::fitment::{self, Fitment, Settings};
use crate::metrics::Metrics;
use crate::origin::{Origin, open_database};
use crate::redis::Redis;
use crate::sales;

/// Vehicle fitment, if it is enabled.
#[derive(Debug)]
pub(crate) struct FitmentDomain {
    fitment: Option<Fitment>,
    metrics: FitmentMetrics,
}

impl Origin {
    /// Enables vehicle fitment.
    #[must_use]
    pub fn with_fitment(mut self, settings: Settings) -> Self {
        let common = &self.common;
        common
            .disks
            .add(Disk::of_folder("fitment", &settings.spool));
        let (database, redis) = (common.database.clone(), common.redis.clone());
        let metrics = self.fitment.metrics.clone();
        self.fitment.fitment = Some(Fitment::new(settings, database, redis, metrics));
        self
    }

    /// Vehicle fitment, if it is enabled.
    pub fn fitment(&self) -> Option<&Fitment> {
        self.fitment.fitment.as_ref()
    }
}

/// Adds vehicle fitment as configured by the flags.
pub(crate) fn open(origin: Origin, config: &Config) -> Result<Origin> {
    Ok(match config.fitment.settings(&config.key_prefix)? {
        Some(settings) => origin.with_fitment(settings),
        None => origin,
    })
}

/// Runs `weir-origin import`. It needs the database and the folder of imports, and no secrets.
pub(crate) async fn import(config: &Config, command: &ImportCommand) -> Result<()> {
    let settings = config.fitment.settings(&config.key_prefix)?;
    let settings = settings.context("--fitment names the folder of imports")?;
    let database = open_database(&config.database_url)
        .await
        .context("--database-url")?;
    let redis = Redis::new(&config.redis_url, &config.key_prefix).context("--redis-url")?;
    let metrics = FitmentMetrics::register(&Metrics::default());
    let fitment = Fitment::new(settings, database.clone(), redis, metrics);
    let ended = command::run(command, &fitment).await;
    database.close().await;
    ended
}

impl FitmentDomain {
    /// Vehicle fitment, disabled.
    pub(crate) fn disabled(metrics: &Metrics) -> Self {
        Self {
            fitment: None,
            metrics: FitmentMetrics::register(metrics),
        }
    }
}

impl Domain for FitmentDomain {
    fn public(&self, origin: &Origin) -> Router {
        let users = sales::http::users(origin.sales().clone());
        fitment::http::public().into_router(Routes::for_users(self.fitment.clone(), users))
    }

    fn admin(&self, _origin: &Origin, auth: &AuthLayer) -> Router {
        let state = Routes::for_operators(self.fitment.clone());
        auth.mount(fitment::http::admin(), state)
    }

    fn page(&self) -> Router {
        fitment::http::page().into_router(())
    }

    fn spawn(&self, _origin: &Origin, stop: &CancellationToken) -> Jobs {
        let fitment = self.fitment.iter();
        Ok(fitment.flat_map(|fitment| fitment.spawn(stop)).collect())
    }
}
