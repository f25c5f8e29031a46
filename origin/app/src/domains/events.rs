//! Behaviour events in the origin.

use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use tokio_util::sync::CancellationToken;

use super::{Domain, Jobs};
use crate::access::AuthLayer;
use crate::config::{Config, Secrets};
use crate::disk::Disk;
use crate::events::http::Enabled;
use crate::events::metrics::EventMetrics;
use crate::events::{self, Events};
use crate::http::Component;
use crate::metrics::Metrics;
use crate::origin::Origin;

/// Behaviour events, if they are enabled.
#[derive(Debug)]
pub(crate) struct EventDomain {
    events: Option<Events>,
    metrics: EventMetrics,
}

impl Origin {
    /// Enables behaviour events.
    ///
    /// # Errors
    /// See [`events::OpenError`].
    pub async fn with_events(self, settings: events::Settings) -> Result<Self, events::OpenError> {
        if let Some(folder) = settings.folder() {
            self.common.disks.add(Disk::of_folder("events", folder));
        }
        let database = self.common.database.clone();
        let opened = Events::open(settings, database, self.events.metrics.clone()).await?;
        Ok(self.with_opened_events(opened))
    }

    /// Uses these behaviour events.
    #[must_use]
    pub fn with_opened_events(mut self, events: Events) -> Self {
        self.events.events = Some(events);
        self
    }

    /// Behaviour events, if they are enabled.
    pub fn events(&self) -> Option<&Events> {
        self.events.events.as_ref()
    }
}

/// Adds events as configured by the flags. Call it after history, whose consumer group reads events, and fitment.
pub(crate) async fn open(origin: Origin, config: &Config, secrets: &mut Secrets) -> Result<Origin> {
    let secret = secrets.webhook.take().map(|secret| secret.0);
    #[cfg_attr(not(any(feature = "fitment", feature = "history")), allow(unused_mut))]
    let Some(mut settings) = config.events.settings(secret)? else {
        return Ok(origin);
    };
    #[cfg(feature = "history")]
    {
        let history = origin.history().cloned();
        settings.groups.extend(history.map(crate::views::group));
    }
    #[cfg(any(feature = "fitment", feature = "history"))]
    crate::product_changes::connect(&origin, &mut settings.pulls)?;
    let flag = match config.events.events_log {
        Some(_) => "--events-log",
        None => "--events",
    };
    origin.with_events(settings).await.context(flag)
}

impl EventDomain {
    /// Behaviour events, disabled.
    pub(crate) fn disabled(metrics: &Metrics) -> Self {
        Self {
            events: None,
            metrics: EventMetrics::register(metrics),
        }
    }
}

impl Domain for EventDomain {
    fn public(&self, _origin: &Origin) -> Router {
        events::http::public().into_router(Enabled(self.events.clone()))
    }

    fn admin(&self, _origin: &Origin, auth: &AuthLayer) -> Router {
        auth.mount(events::http::admin(), Enabled(self.events.clone()))
    }

    fn page(&self) -> Router {
        events::http::page().into_router(())
    }

    /// A full event log does not make the origin unready.
    fn parts(&self) -> Vec<Component> {
        let part = |events: Events| Component {
            name: "events",
            state: Arc::new(move || events.state()),
        };
        self.events.clone().map(part).into_iter().collect()
    }

    fn spawn(&self, _origin: &Origin, stop: &CancellationToken) -> Jobs {
        let events = self.events.iter();
        Ok(events.flat_map(|events| events.spawn(stop)).collect())
    }
}
