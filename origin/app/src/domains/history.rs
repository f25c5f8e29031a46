//! Browse history in the origin.

use anyhow::Result;
use axum::Router;
use tokio_util::sync::CancellationToken;

use super::{Domain, Jobs};
use crate::access::AuthLayer;
use crate::config::Config;
use crate::history::http::Routes;
use crate::history::metrics::HistoryMetrics;
use crate::history::{self, History, Settings};
use crate::metrics::Metrics;
use crate::origin::Origin;
use crate::sales;

/// Browse history, if it is enabled.
#[derive(Debug)]
pub(crate) struct HistoryDomain {
    history: Option<History>,
    metrics: HistoryMetrics,
}

impl Origin {
    /// Enables browse history.
    #[must_use]
    pub fn with_history(mut self, settings: Settings) -> Self {
        let (database, redis) = (self.common.database.clone(), self.common.redis.clone());
        let metrics = self.history.metrics.clone();
        self.history.history = Some(History::new(settings, database, redis, metrics));
        self
    }

    /// Browse history, if it is enabled.
    pub fn history(&self) -> Option<&History> {
        self.history.history.as_ref()
    }
}

/// Adds browse history as configured by the flags.
pub(crate) fn open(origin: Origin, config: &Config) -> Result<Origin> {
    Ok(match config.history.settings()? {
        Some(settings) => origin.with_history(settings),
        None => origin,
    })
}

impl HistoryDomain {
    /// Browse history, disabled.
    pub(crate) fn disabled(metrics: &Metrics) -> Self {
        Self {
            history: None,
            metrics: HistoryMetrics::register(metrics),
        }
    }
}

impl Domain for HistoryDomain {
    fn public(&self, origin: &Origin) -> Router {
        let users = sales::http::users(origin.sales().clone());
        history::http::public().into_router(Routes::for_users(self.history.clone(), users))
    }

    fn admin(&self, _origin: &Origin, auth: &AuthLayer) -> Router {
        let state = Routes::for_operators(self.history.clone());
        auth.mount(history::http::admin(), state)
    }

    fn spawn(&self, _origin: &Origin, stop: &CancellationToken) -> Jobs {
        let history = self.history.iter();
        Ok(history.flat_map(|history| history.spawn(stop)).collect())
    }
}
