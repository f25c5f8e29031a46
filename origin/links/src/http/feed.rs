//! The link feeds of edges.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use serde::Deserialize;
use weir_link::feed::{self as feed, Cursor, DomainList};

use super::refusals::NO_SUCH_PLACE;
use crate::Links;
use weir_origin_core::http::{EdgeHeaders, Edges, Problem, ReadQuery, document_ms};

/// The links of an origin that serves edges.
#[derive(Clone, Debug)]
pub(super) struct Feeds {
    pub(super) links: Option<Links>,
    pub(super) edges: Edges,
    /// See [`DomainList::click_limits_in_objects`].
    pub(super) click_limits_in_objects: Option<String>,
}

/// Query of an edge.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FeedQuery {
    /// The edge's position: <source>.<next> of the last page. 410: the feed has no such position; start again.
    #[param(value_type = Option<String>)]
    after: Option<Cursor>,
}

impl Feeds {
    fn links(&self) -> Result<&Links, Problem> {
        self.links.as_ref().ok_or_else(super::links_off)
    }
}

/// Get link changes since a position, including deletions, signed, for edges
#[utoipa::path(
    get,
    path = weir_base::feed::routes::LINKS,
    operation_id = "getLinkFeed",
    params(FeedQuery, EdgeHeaders),
    responses(
        (status = 200, description = "A document: one line with its signature, and one line of JSON", body = String, content_type = "application/vnd.weir.feed", headers(("etag" = String))),
        (status = 304, description = "Not changed since If-None-Match"),
    ),
)]
pub(super) async fn links(
    State(feeds): State<Feeds>,
    ReadQuery(query): ReadQuery<FeedQuery>,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let links = feeds.links()?;
    let at_ms = document_ms();
    let state = match feeds.click_limits_in_objects {
        Some(_) => feed::State::with_objects,
        None => feed::State::for_link,
    };
    let store = links.store();
    let page = store
        .edge_feed()
        .feed(query.after.as_ref(), links.now_ms(), state);
    let page = page.await?.ok_or_else(no_place)?;
    let version = format!("{}.{}.{}", page.source.as_str(), page.after, page.next);
    feeds.edges.publish(&page, at_ms, &version, &headers)
}

/// Get all link domains, signed, for edges
#[utoipa::path(
    get,
    path = weir_base::feed::routes::DOMAINS,
    operation_id = "getDomainFeed",
    params(EdgeHeaders),
    responses(
        (status = 200, description = "A document: one line with its signature, and one line of JSON", body = String, content_type = "application/vnd.weir.feed", headers(("etag" = String))),
        (status = 304, description = "Not changed since If-None-Match"),
    ),
)]
pub(super) async fn domains(
    State(feeds): State<Feeds>,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let at_ms = document_ms();
    let existing = feeds.links()?.domains();
    let list = DomainList {
        version: existing.version,
        domains: existing.domains.to_config(),
        click_limits_in_objects: feeds.click_limits_in_objects.clone(),
    };
    let version = list.version.to_string();
    feeds.edges.publish(&list, at_ms, &version, &headers)
}

fn no_place() -> Problem {
    let detail = "the feed has no such position: discard your copy and start again";
    NO_SUCH_PLACE.because(detail)
}
