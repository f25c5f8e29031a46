//! The domains of the origin. Each is a Cargo feature; without it, its crate is not compiled and there are no tables, routes,
//! settings or jobs of it.
//!
//! A new domain is a crate, a file here, a feature in `Cargo.toml`, and a line in each list below.

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

/// The tables of every domain; the shared tables first.
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

/// What tenants have limits for, besides links, which are counted by domain (see `weir_origin_links::quota`).
pub(crate) const COUNTS: Counts = &[
    #[cfg(feature = "sales")]
    crate::sales::store::TENANTS_SALES,
    #[cfg(feature = "sales")]
    crate::sales::store::TENANTS_UNITS,
    #[cfg(feature = "rooms")]
    crate::rooms::store::TENANTS_ROOMS,
];

/// The areas that keys may have permissions in.
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

/// Routes for operators whose requests may take any time.
pub(crate) const UNTIMED: &[&str] = &[
    // A file of gigabytes.
    #[cfg(feature = "fitment")]
    crate::fitment::http::UPLOAD,
    // Thousands of links, each of them a transaction.
    #[cfg(feature = "link-imports")]
    crate::links::http::IMPORTS,
];

/// The parts of the OpenAPI document that domains derive.
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

/// Files that flags name. They are read before the origin waits for its database, so that a wrong file fails at once.
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

/// Jobs of a domain, running.
pub(crate) type Jobs = Result<Vec<JoinHandle<()>>>;

/// What the origin needs of a domain.
pub(crate) trait Domain {
    /// The routes for gateways.
    fn public(&self, _origin: &Origin) -> Router {
        Router::new()
    }

    /// Layers around the public routes of all domains.
    fn around_public(&self, routes: Router) -> Router {
        routes
    }

    /// The routes for operators, each behind its guard.
    fn admin(&self, origin: &Origin, auth: &AuthLayer) -> Router;

    /// The page of the domain on the admin port.
    fn page(&self) -> Router {
        Router::new()
    }

    /// What `/readyz` reports.
    fn parts(&self) -> Vec<Component> {
        Vec::new()
    }

    /// Jobs that must go on for the origin to be ready.
    fn loops(&self) -> Vec<Loop> {
        Vec::new()
    }

    /// Starts its jobs, which run until `stop`.
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
