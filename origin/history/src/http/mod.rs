//! The routes of browse history: parse requests and write answers. Other modules contain the logic.

mod lists;
mod page;
mod products;
mod refusals;
mod switches;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts, Query};
use axum::http::request::Parts;
use serde::Deserialize;
use utoipa_axum::router::UtoipaMethodRouterExt;
use utoipa_axum::routes;
use weir_base::id::UserId;
use weir_history::Owner;

use super::History;
use refusals::{
    HISTORY_OFF, HISTORY_UNAVAILABLE, INVALID_OWNER_QUERY, INVALID_PRODUCT, INVALID_SKU,
    INVALID_SWITCHES, INVALID_VISITOR, TOO_MANY_DELETIONS, UNKNOWN_PRODUCT,
};
use weir_origin_core::access::scope::Area;
use weir_origin_core::api::{Api, Document, RouteRules};
use weir_origin_core::http::refusal::{
    BODY_TOO_LARGE, OVERLOADED, REDIS_UNAVAILABLE, SQL_UNAVAILABLE, USER_INVALID, USER_MISSING,
};
use weir_origin_core::http::{Problem, UserReader};

/// The state of the routes.
#[derive(Clone)]
pub struct Routes {
    history: Option<History>,
    /// `None` on the admin port, where the query names the owner.
    users: Option<UserReader>,
}

/// The owner of the list in a request.
struct HistoryRequest {
    history: History,
    owner: Owner,
}

/// The routes for gateways: each acts on the signed-in user's own list.
pub fn public() -> Api<Arc<Routes>> {
    let rules = RouteRules::OPEN.refuses(&[USER_MISSING, USER_INVALID]);
    lists(Api::public(), rules).page(&page::PAGE)
}

/// The routes for operators: the same on any list, selected by `?user=` or `?visitor=`, and products.
pub fn admin() -> Api<Arc<Routes>> {
    let rules = RouteRules::PLATFORM;
    let table = rules.refuses(&[HISTORY_OFF]);
    let product = table.refuses(&[INVALID_SKU]);
    lists(Api::admin(Area::History), rules)
        .route(
            routes!(switches::get, switches::put),
            table.refuses(&[INVALID_SWITCHES, SQL_UNAVAILABLE]),
        )
        .route(
            routes!(products::put_all).layer(DefaultBodyLimit::max(products::BODY_LEN_MAX)),
            table.refuses(&[BODY_TOO_LARGE, INVALID_PRODUCT]),
        )
        .route(routes!(products::get), product.refuses(&[UNKNOWN_PRODUCT]))
        .route(
            routes!(products::put),
            product.refuses(&[BODY_TOO_LARGE, INVALID_PRODUCT]),
        )
        .route(
            routes!(products::delete),
            product.refuses(&[UNKNOWN_PRODUCT]),
        )
}

fn lists(api: Api<Arc<Routes>>, rules: RouteRules) -> Api<Arc<Routes>> {
    let rules = rules.refuses(&[
        HISTORY_OFF,
        INVALID_OWNER_QUERY,
        SQL_UNAVAILABLE,
        OVERLOADED,
        REDIS_UNAVAILABLE,
    ]);
    let removed = rules.refuses(&[INVALID_SKU, TOO_MANY_DELETIONS]);
    api.route(routes!(lists::list), rules)
        .route(routes!(lists::clear), rules)
        .route(routes!(lists::count), rules)
        .route(
            routes!(lists::delete_many),
            removed.refuses(&[BODY_TOO_LARGE]),
        )
        .route(
            routes!(lists::join),
            rules.refuses(&[BODY_TOO_LARGE, INVALID_VISITOR, HISTORY_UNAVAILABLE]),
        )
        .route(routes!(lists::delete_one), removed)
}

/// Additions of all routes to the OpenAPI document.
pub fn document() -> Document {
    let mut document = public().into_document();
    document.merge(admin().into_document());
    document
}

/// On the admin port: selects the list; set exactly one field.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct OwnerQuery {
    /// On the admin port: the list of this user.
    user: Option<String>,
    /// On the admin port: the list of this visitor.
    visitor: Option<String>,
}

impl OwnerQuery {
    fn owner(&self) -> Result<Owner, Problem> {
        let owner = match (&self.user, &self.visitor) {
            (Some(user), None) => UserId::new(user).map(|user| Owner::user(&user)),
            (None, Some(visitor)) => Owner::guest(visitor),
            _ => {
                let detail = "set exactly one of user and visitor";
                return Err(invalid_query(detail.to_owned()));
            }
        };
        owner.map_err(|error| invalid_query(format!("user or visitor: {error}")))
    }
}

impl Routes {
    /// The state of the admin routes.
    pub fn for_operators(history: Option<History>) -> Arc<Self> {
        let users = None;
        Arc::new(Self { history, users })
    }

    /// The state of the public routes. Gateways sign the user.
    pub fn for_users(history: Option<History>, users: UserReader) -> Arc<Self> {
        let users = Some(users);
        Arc::new(Self { history, users })
    }

    fn history(&self) -> Result<History, Problem> {
        self.history.clone().ok_or_else(|| {
            let detail = "this origin has no history: start it with --history";
            HISTORY_OFF.because(detail)
        })
    }
}

impl FromRequestParts<Arc<Routes>> for History {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, routes: &Arc<Routes>) -> Result<Self, Problem> {
        routes.history()
    }
}

impl FromRequestParts<Arc<Routes>> for HistoryRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, routes: &Arc<Routes>) -> Result<Self, Problem> {
        let history = routes.history()?;
        let owner = match &routes.users {
            Some(users) => Owner::user(&users(&parts.headers)?),
            None => query::<OwnerQuery>(parts)?.owner()?,
        };
        Ok(Self { history, owner })
    }
}

/// Parses the query of a request.
fn query<T: serde::de::DeserializeOwned>(parts: &Parts) -> Result<T, Problem> {
    let query = Query::<T>::try_from_uri(&parts.uri);
    let query = query.map_err(|error| invalid_query(error.body_text()))?;
    Ok(query.0)
}

fn invalid_query(detail: String) -> Problem {
    INVALID_OWNER_QUERY.because(detail)
}

fn invalid_sku(error: impl std::fmt::Display) -> Problem {
    INVALID_SKU.because(format!("sku: {error}"))
}
