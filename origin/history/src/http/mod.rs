//! The routes of browse history: requests in, answers out. What they ask for is decided elsewhere.

mod lists;
mod page;
mod products;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Query};
use axum::http::request::Parts;
use axum::routing::{delete, get, post, put};
use serde::Deserialize;
use weir_base::id::UserId;
use weir_history::Owner;

use super::History;
pub use page::page;
use weir_origin_core::http::{Problem, UserReader};

/// What a route needs to know whose list is meant.
#[derive(Clone)]
struct Routes {
    history: Option<History>,
    /// `None`: on the admin port, where the query names anybody.
    users: Option<UserReader>,
}

/// Whose list a request is about.
struct Asked {
    history: History,
    owner: Owner,
}

/// The routes for gateways: each is about the signed user's own list.
///
/// - `GET /history`, `GET /history/count`
/// - `DELETE /history/{sku}`, `POST /history/delete`, `DELETE /history`
/// - `POST /history/join`
/// - `GET /history/page` and the files that it names, which need no user
pub fn public(history: Option<History>, users: UserReader) -> Router {
    let routes = Routes {
        history,
        users: Some(users),
    };
    of_lists(routes).merge(page().into_router(()))
}

/// The routes for operators: the same about anybody's list, named by `?user=` or `?visitor=`, and products.
///
/// - `PUT /products`, `GET`, `PUT` and `DELETE /products/{sku}`
pub fn admin(history: Option<History>) -> Router {
    let routes = Routes {
        history,
        users: None,
    };
    let products = Router::new()
        .route(
            "/products",
            put(products::put_all).layer(DefaultBodyLimit::max(products::BODY_LEN_MAX)),
        )
        .route(
            "/products/{sku}",
            get(products::get)
                .put(products::put)
                .delete(products::delete),
        )
        .with_state(Arc::new(routes.clone()));
    of_lists(routes).merge(products)
}

fn of_lists(routes: Routes) -> Router {
    Router::new()
        .route("/history", get(lists::list).delete(lists::clear))
        .route("/history/count", get(lists::count))
        .route("/history/delete", post(lists::delete_many))
        .route("/history/join", post(lists::join))
        .route("/history/{sku}", delete(lists::delete_one))
        .with_state(Arc::new(routes))
}

/// Whom an operator means.
#[derive(Deserialize)]
struct Named {
    user: Option<String>,
    visitor: Option<String>,
}

impl Named {
    fn owner(&self) -> Result<Owner, Problem> {
        let owner = match (&self.user, &self.visitor) {
            (Some(user), None) => UserId::new(user).map(|user| Owner::user(&user)),
            (None, Some(visitor)) => Owner::guest(visitor),
            _ => {
                let detail = "one of user and visitor must be set";
                return Err(invalid_query(detail.to_owned()));
            }
        };
        owner.map_err(|error| invalid_query(format!("user or visitor: {error}")))
    }
}

impl Routes {
    fn history(&self) -> Result<History, Problem> {
        self.history.clone().ok_or_else(|| {
            let detail = "this origin has no history: start it with --history";
            Problem::not_found("history_off", "No history", detail)
        })
    }
}

impl FromRequestParts<Arc<Routes>> for History {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, routes: &Arc<Routes>) -> Result<Self, Problem> {
        routes.history()
    }
}

impl FromRequestParts<Arc<Routes>> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, routes: &Arc<Routes>) -> Result<Self, Problem> {
        let history = routes.history()?;
        let owner = match &routes.users {
            Some(users) => Owner::user(&users(&parts.headers)?),
            None => query::<Named>(parts)?.owner()?,
        };
        Ok(Self { history, owner })
    }
}

/// The query of a request.
fn query<T: serde::de::DeserializeOwned>(parts: &Parts) -> Result<T, Problem> {
    let query = Query::<T>::try_from_uri(&parts.uri);
    let query = query.map_err(|error| invalid_query(error.body_text()))?;
    Ok(query.0)
}

fn invalid_query(detail: String) -> Problem {
    Problem::unprocessable("invalid_query", "Invalid query", detail)
}

fn invalid_sku(error: impl std::fmt::Display) -> Problem {
    Problem::unprocessable("invalid_sku", "Invalid SKU", format!("sku: {error}"))
}
