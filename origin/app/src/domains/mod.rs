//! The domains of the origin. Each domain is a Cargo feature. Without the feature, its crate is not compiled, and its
//! tables, routes, settings and jobs do not exist.
//!
//! A new domain needs a crate, a file here, a feature in `Cargo.toml`, and a line in each list below.

#[cfg(feature = "events")]
pub(crate) mod events;
#[cfg(feature = "fitment")]
pub(crate) mod fitment;
#[cfg(feature = "history")]
pub(crate) mod history;
#[cfg(feature = "limits")]
mod limits;
#[cfg(feature = "links")]
pub(crate) mod links;
#[cfg(any(feature = "fitment", feature = "history"))]
pub(crate) mod products;
#[cfg(feature = "rooms")]
pub(crate) mod rooms;
#[cfg(feature = "sales")]
pub(crate) mod sales;

use anyhow::Result;
use axum::Router;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::access::AuthLayer;
use crate::access::scope::Area;
use crate::api::Document;
use crate::config::{Config, Secrets};
use crate::http::{Component, Loop};
use crate::origin::Origin;
use crate::redis::Redis;
use crate::sql::{Database, Migrations};
use crate::tenants::Counts;

/// SQL migrations of all domains; the shared tables come first.
pub const MIGRATIONS: &[Migrations] = &[
    weir_origin_core::MIGRATIONS,
    #[cfg(feature = "sales")]
    crate::sales::MIGRATIONS,
    #[cfg(feature = "links")]
    crate::links::MIGRATIONS,
    #[cfg(feature = "rooms")]
    crate::rooms::MIGRATIONS,
    #[cfg(feature = "events")]
    crate::events::MIGRATIONS,
    #[cfg(feature = "history")]
    crate::history::MIGRATIONS,
    #[cfg(feature = "fitment")]
    crate::fitment::MIGRATIONS,
];

/// What tenant limits count. Links are counted separately, by domain (see `weir_origin_links::quota`).
pub(crate) const COUNTS: Counts = &[
    #[cfg(feature = "sales")]
    crate::sales::store::TENANTS_SALES,
    #[cfg(feature = "sales")]
    crate::sales::store::TENANTS_UNITS,
    #[cfg(feature = "rooms")]
    crate::rooms::store::TENANTS_ROOMS,
];

/// The permission areas of keys.
pub(crate) const AREAS: &[Area] = &[
    #[cfg(feature = "sales")]
    Area::Sales,
    #[cfg(feature = "rooms")]
    Area::Rooms,
    #[cfg(feature = "limits")]
    Area::Limits,
    #[cfg(feature = "links")]
    Area::Links,
    #[cfg(feature = "events")]
    Area::Events,
    #[cfg(feature = "history")]
    Area::History,
    #[cfg(feature = "fitment")]
    Area::Fitment,
    Area::Access,
];

/// Admin routes without a request timeout.
pub(crate) const UNTIMED: &[&str] = &[
    // Uploads a file of gigabytes.
    #[cfg(feature = "fitment")]
    crate::fitment::http::UPLOAD,
    // Creates thousands of links, each in its own transaction.
    #[cfg(feature = "link-imports")]
    crate::links::http::IMPORTS,
];

/// The parts of the OpenAPI document that domains generate.
pub(crate) fn documents() -> Vec<Document> {
    vec![
        #[cfg(feature = "sales")]
        crate::sales::http::document(),
        #[cfg(feature = "rooms")]
        crate::rooms::http::admin().into_document(),
        #[cfg(feature = "limits")]
        crate::limits::http::admin().into_document(),
        #[cfg(feature = "links")]
        crate::links::http::document(),
        #[cfg(feature = "events")]
        crate::events::http::document(),
        #[cfg(feature = "history")]
        crate::history::http::document(),
        #[cfg(feature = "fitment")]
        crate::fitment::http::document(),
        #[cfg(any(feature = "fitment", feature = "history"))]
        products::document(),
    ]
}

/// Files that flags name. The origin reads them before it waits for its database, so that an invalid file fails at
/// once.
pub(crate) struct Files {
    #[cfg(feature = "links")]
    geo: crate::links::geo::Geo,
    #[cfg(feature = "sales")]
    scorer: Option<std::sync::Arc<dyn crate::sales::risk::RiskScorer>>,
}

impl Files {
    #[allow(unused_variables, reason = "some builds have no such domain")]
    pub(crate) fn read(config: &Config) -> Result<Self> {
        Ok(Self {
            #[cfg(feature = "links")]
            geo: config.links.geo()?,
            #[cfg(feature = "sales")]
            scorer: config.sales.scorer()?,
        })
    }
}

/// Builds the origin from the flags.
#[allow(
    unused_variables,
    reason = "some builds have no domain that reads them"
)]
pub(crate) async fn open(
    config: &Config,
    secrets: &mut Secrets,
    files: Files,
    database: Database,
    redis: Redis,
) -> Result<Origin> {
    #[cfg(feature = "sales")]
    sales::join_site(config, secrets, &database).await?;
    #[cfg(feature = "sales")]
    let origin = sales::open(config, secrets, files.scorer, database, redis)?;
    #[cfg(not(feature = "sales"))]
    let origin = Origin::of(database, redis, crate::metrics::Metrics::default());
    #[cfg(feature = "links")]
    let origin = links::open(origin, config, secrets, files.geo).await?;
    #[cfg(feature = "history")]
    let origin = history::open(origin, config)?;
    #[cfg(feature = "fitment")]
    let origin = fitment::open(origin, config)?;
    #[cfg(any(feature = "fitment", feature = "history"))]
    let origin = origin.with_product_keys(secrets.product_keys.take());
    #[cfg(feature = "events")]
    let origin = events::open(origin, config, secrets).await?;
    #[cfg(all(feature = "links", feature = "sales"))]
    let origin = crate::conversions::open(origin, config, secrets);
    #[cfg(all(feature = "events", any(feature = "links", feature = "sales")))]
    let origin = crate::change_events::open(origin, config)?;
    Ok(origin)
}

/// Handles of a domain's running jobs.
pub(crate) type Jobs = Result<Vec<JoinHandle<()>>>;

/// Parts of a domain that the origin wires together.
pub(crate) trait Domain {
    /// The routes for gateways.
    fn public(&self, _origin: &Origin) -> Router {
        Router::new()
    }

    /// Layers around the public routes of all domains.
    fn around_public(&self, routes: Router) -> Router {
        routes
    }

    /// The admin routes, each behind its authorization.
    fn admin(&self, origin: &Origin, auth: &AuthLayer) -> Router;

    /// The domain's page on the admin port.
    fn page(&self) -> Router {
        Router::new()
    }

    /// Components that `/readyz` reports.
    fn parts(&self) -> Vec<Component> {
        Vec::new()
    }

    /// Loops whose heartbeats `/readyz` requires.
    fn loops(&self) -> Vec<Loop> {
        Vec::new()
    }

    /// Spawns the domain's jobs, which run until `stop`.
    fn spawn(&self, origin: &Origin, stop: &CancellationToken) -> Jobs;
}

impl Origin {
    /// All domains.
    pub(crate) fn domains(&self) -> Vec<&dyn Domain> {
        vec![
            #[cfg(feature = "sales")]
            &self.sales,
            #[cfg(feature = "links")]
            &self.links,
            #[cfg(feature = "events")]
            &self.events,
            #[cfg(feature = "history")]
            &self.history,
            #[cfg(feature = "fitment")]
            &self.fitment,
            #[cfg(any(feature = "fitment", feature = "history"))]
            &self.products,
            #[cfg(feature = "rooms")]
            &self.rooms,
            #[cfg(feature = "limits")]
            &limits::LimitDomain,
        ]
    }
}
