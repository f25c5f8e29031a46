//! Short links in the origin.

use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use tokio_util::sync::CancellationToken;

use super::{Domain, Jobs};
use crate::access::AuthLayer;
use crate::config::{Config, Secrets};
use crate::disk::Disk;
use crate::links::geo::Geo;
use crate::links::http::Enabled;
use crate::links::metrics::LinkMetrics;
use crate::links::{self, Links, Settings};
use crate::metrics::Metrics;
use crate::origin::Origin;
use crate::outbox::{OutboxTimes, Sink, SinkName};

/// Short links, if they are enabled.
#[derive(Debug)]
pub(crate) struct LinkDomain {
    links: Option<Links>,
    metrics: LinkMetrics,
    geo: Geo,
    are_click_limits_in_objects: bool,
}

impl Origin {
    /// Enables short links.
    ///
    /// # Errors
    /// See [`links::OpenError`].
    pub async fn with_links(mut self, settings: Settings) -> Result<Self, links::OpenError> {
        let common = &self.common;
        common.disks.add(Disk::of_folder("links", &settings.log));
        let (database, redis) = (common.database.clone(), common.redis.clone());
        let metrics = self.links.metrics.clone();
        self.links.links = Some(Links::open(settings, database, redis, metrics).await?);
        Ok(self)
    }

    /// Sends changes of links to this receiver. Call it after [`Origin::with_links`], whose settings must name the
    /// receiver.
    #[must_use]
    pub fn with_link_receiver(
        self,
        name: SinkName,
        sink: Arc<dyn Sink>,
        times: OutboxTimes,
    ) -> Self {
        self.map_links(|links| links.with_receiver(name, sink, times))
    }

    /// The same. `are_so`: edge objects count the links with a click limit, behind the shard proxy.
    #[must_use]
    pub fn with_click_limits_in_objects(mut self, are_so: bool) -> Self {
        self.links.are_click_limits_in_objects = are_so;
        self
    }

    /// Short links, if they are enabled.
    pub fn links(&self) -> Option<&Links> {
        self.links.links.as_ref()
    }

    pub(crate) fn map_links(mut self, change: impl FnOnce(Links) -> Links) -> Self {
        self.links.links = self.links.links.map(change);
        self
    }
}

/// Adds links as configured by the flags.
pub(crate) async fn open(
    origin: Origin,
    config: &Config,
    secrets: &mut Secrets,
    geo: Geo,
) -> Result<Origin> {
    let settings = config.links.settings(secrets.link_scramble.take());
    let mut origin = match settings.context("--links")? {
        Some(mut settings) => {
            settings.click_keys = secrets.click_keys.clone();
            origin.with_links(settings).await.context("short links")?
        }
        None => origin,
    };
    origin.links.geo = geo;
    let origin = origin.with_click_limits_in_objects(config.links.click_limits_in_objects);
    let secret = secrets.links_webhook.take().map(|secret| secret.0);
    Ok(match config.links.webhook(secret.as_deref())? {
        Some(webhook) => {
            let times = config.links.outbox_times();
            origin.with_link_receiver(SinkName::Webhook, Arc::new(webhook), times)
        }
        None => origin,
    })
}

impl LinkDomain {
    /// Short links, disabled.
    pub(crate) fn disabled(metrics: &Metrics) -> Self {
        Self {
            links: None,
            metrics: LinkMetrics::register(metrics),
            geo: Geo::default(),
            are_click_limits_in_objects: false,
        }
    }
}

impl Domain for LinkDomain {
    fn public(&self, origin: &Origin) -> Router {
        let prefix = self.are_click_limits_in_objects;
        let prefix = prefix.then(|| origin.common.redis.prefix().to_owned());
        let feeds =
            links::http::feed_routes(self.links.clone(), origin.common.edges.clone(), prefix);
        links::http::public()
            .into_router(Enabled(self.links.clone()))
            .merge(feeds)
    }

    fn admin(&self, _origin: &Origin, auth: &AuthLayer) -> Router {
        auth.mount(links::http::admin(), Enabled(self.links.clone()))
    }

    fn page(&self) -> Router {
        links::http::page().into_router(())
    }

    fn spawn(&self, _origin: &Origin, stop: &CancellationToken) -> Jobs {
        let Some(links) = &self.links else {
            return Ok(Vec::new());
        };
        let mut jobs = links.spawn(stop);
        jobs.push(links.spawn_counter(self.geo.clone(), stop)?);
        Ok(jobs)
    }
}
