//! The routes of vehicle fitment: requests in, answers out. What they ask for is decided elsewhere.

mod admin;
mod garage;
mod imports;
mod page;
mod questions;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use axum::routing::{get, post, put};
use weir_base::id::UserId;
use weir_fitment::check::BODY_LEN_MAX;
use weir_fitment::routes::{FITMENT_CHECK, FITMENT_SKUS};

use super::Fitment;
use weir_origin_core::http::{Problem, UserReader};

pub use page::routes as page;

/// Where files are uploaded, which may take long.
pub const UPLOAD: &str = "/fitment/imports";

/// What routes need.
#[derive(Clone)]
struct Routes {
    fitment: Option<Fitment>,
    users: Option<UserReader>,
}

/// Whose garage a request is about.
struct Asked {
    fitment: Fitment,
    user: UserId,
}

/// The routes for gateways.
///
/// - `POST /fitment/check`, `GET /fitment/skus`: what the gateway could not answer
/// - `GET /fitment/garage`, `PUT` and `DELETE /fitment/garage/{vehicle}`, about the signed user's own
pub fn public(fitment: Option<Fitment>, users: UserReader) -> Router {
    let routes = Routes {
        fitment,
        users: Some(users),
    };
    let garages = Router::new()
        .route("/fitment/garage", get(garage::list))
        .route(
            "/fitment/garage/{vehicle}",
            put(garage::bind).delete(garage::unbind),
        );
    questions().merge(garages).with_state(Arc::new(routes))
}

fn questions() -> Router<Arc<Routes>> {
    let limit = DefaultBodyLimit::max(BODY_LEN_MAX);
    Router::new()
        .route(FITMENT_CHECK, post(questions::check).layer(limit))
        .route(FITMENT_SKUS, get(questions::skus))
}

/// The routes for operators: the same questions, and what changes the catalogue.
///
/// - `GET /fitment/vehicles`, `GET`, `PUT` and `DELETE /fitment/vehicles/{vehicle}`
/// - `GET`, `PUT` and `DELETE /fitment/products/{sku}`
/// - `PUT` and `DELETE /fitment/relations/{sku}/{vehicle}`
/// - `GET` and `POST /fitment/imports`, `GET` and `DELETE /fitment/imports/{id}`, `GET /fitment/imports/{id}/errors`
/// - `GET` and `POST /fitment/rebuild`, `POST /fitment/verify`
pub fn admin(fitment: Option<Fitment>) -> Router {
    let routes = Routes {
        fitment,
        users: None,
    };
    let catalogue = Router::new()
        .route("/fitment/vehicles", get(admin::search))
        .route(
            "/fitment/vehicles/{vehicle}",
            get(admin::vehicle)
                .put(admin::put_vehicle)
                .delete(admin::retire),
        )
        .route(
            "/fitment/products/{sku}",
            get(admin::product)
                .put(admin::put_product)
                .delete(admin::delete_product),
        )
        .route(
            "/fitment/relations/{sku}/{vehicle}",
            put(admin::add_relation).delete(admin::remove_relation),
        )
        .route(
            "/fitment/imports",
            get(imports::list)
                .post(imports::upload)
                .layer(DefaultBodyLimit::disable()),
        )
        .route(
            "/fitment/imports/{id}",
            get(imports::one).delete(imports::give_up),
        )
        .route("/fitment/imports/{id}/errors", get(imports::errors))
        .route(
            "/fitment/rebuild",
            get(admin::rebuild_state).post(admin::rebuild),
        )
        .route("/fitment/verify", post(admin::verify));
    questions().merge(catalogue).with_state(Arc::new(routes))
}

impl Routes {
    fn fitment(&self) -> Result<Fitment, Problem> {
        self.fitment.clone().ok_or_else(|| {
            let detail = "this origin has no vehicle fitment: start it with --fitment";
            Problem::not_found("fitment_off", "No vehicle fitment", detail)
        })
    }
}

impl FromRequestParts<Arc<Routes>> for Fitment {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, routes: &Arc<Routes>) -> Result<Self, Problem> {
        routes.fitment()
    }
}

impl FromRequestParts<Arc<Routes>> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, routes: &Arc<Routes>) -> Result<Self, Problem> {
        let fitment = routes.fitment()?;
        let users = routes.users.as_ref().ok_or_else(|| {
            Problem::not_found("no_route", "Not found", "there is nothing at this path")
        })?;
        let user = users(&parts.headers)?;
        Ok(Self { fitment, user })
    }
}

fn invalid(what: &'static str, detail: impl std::fmt::Display) -> Problem {
    Problem::unprocessable(what, "Invalid", detail.to_string())
}

fn read_vehicle(text: &str) -> Result<weir_fitment::VehicleId, Problem> {
    text.parse()
        .map_err(|error| invalid("invalid_vehicle", format_args!("vehicle: {error}")))
}

fn read_sku(text: &str) -> Result<weir_fitment::Sku, Problem> {
    weir_fitment::Sku::new(text)
        .map_err(|error| invalid("invalid_sku", format_args!("sku: {error}")))
}

fn unknown_vehicle() -> Problem {
    Problem::not_found(
        "unknown_vehicle",
        "Unknown vehicle",
        "there is no such vehicle",
    )
}

fn unknown_sku() -> Problem {
    Problem::not_found("unknown_sku", "Unknown SKU", "there is no such SKU")
}
