//! Feeds for edges: authentication and signing.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use tracing::error;
use weir_base::feed::document::{self, Content};
use weir_base::feed::routes::CONTENT_TYPE;
use weir_base::headers::{EDGE, EDGE_SIGNATURE};
use weir_base::key::KeyRing;
use weir_base::stamp::Stamp;

use super::Problem;
use super::refusal::{Refusal, UNAUTHORIZED};
use crate::clock::now_ms;

/// Documents of the same second are identical byte for byte, so that caches between origin and edges share them.
const GRAIN_MS: u64 = 1_000;

/// The keys shared with edges; without them the origin serves no feeds.
#[derive(Clone, Debug, Default)]
pub struct Edges(Option<KeyRing>);

impl From<Option<KeyRing>> for Edges {
    fn from(keys: Option<KeyRing>) -> Self {
        Self(keys)
    }
}

/// Refusal of an origin without edges.
const EDGES_OFF: Refusal = Refusal::not_found(
    "edges_off",
    "No edges",
    "This origin has no edges: WEIR_EDGE_SECRET is not set",
);

const FEED_UNAVAILABLE: Refusal =
    Refusal::unavailable("feed_unavailable", "The feed cannot be written");

/// Refusals of every feed.
pub const EDGE_REFUSALS: &[Refusal] = &[UNAUTHORIZED, EDGES_OFF, FEED_UNAVAILABLE];

/// Headers of each request from an edge.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
pub struct EdgeHeaders {
    /// The edge assertion: `v1;<at_ms>;<edge>;<client>;<method>;<path and query>`.
    #[param(rename = "x-weir-edge")]
    #[expect(dead_code, reason = "describes a parameter")]
    stamp: String,
    /// Signature of the edge assertion: `<key id>;<hex>`.
    #[param(rename = "x-weir-edge-signature")]
    #[expect(dead_code, reason = "describes a parameter")]
    signature: String,
}

/// Requires an edge assertion on these routes.
pub fn with_stamp(routes: Router, edges: Edges) -> Router {
    routes.route_layer(from_fn_with_state(edges, require_stamp))
}

async fn require_stamp(State(edges): State<Edges>, request: Request, next: Next) -> Response<Body> {
    match edges.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

impl Edges {
    fn keys(&self) -> Result<&KeyRing, Problem> {
        self.0
            .as_ref()
            .ok_or_else(|| EDGES_OFF.because("this origin has no edges: set WEIR_EDGE_SECRET"))
    }

    fn check(&self, request: &Request) -> Result<(), Problem> {
        let keys = self.keys()?;
        let text = |name| request.headers().get(name)?.to_str().ok();
        let (Some(value), Some(signature)) = (text(EDGE), text(EDGE_SIGNATURE)) else {
            return Err(refusal("needs a valid edge assertion"));
        };
        let path = request.uri().path_and_query();
        let path = path.map_or(request.uri().path(), |path| path.as_str());
        let requested = (request.method().as_str(), path);
        match Stamp::verify(keys, value, signature, requested, now_ms()) {
            Ok(_) => Ok(()),
            Err(error) => Err(refusal(error.to_string())),
        }
    }

    /// Signs and returns `body`, which is valid at `at_ms`. Returns 304 if the client already has this version.
    pub fn publish<T: Content>(
        &self,
        body: &T,
        at_ms: u64,
        version: &str,
        requested: &HeaderMap,
    ) -> Result<Response<Body>, Problem> {
        let etag = format!("\"{version}-{at_ms}\"");
        let existing = requested.get(header::IF_NONE_MATCH);
        let mut response =
            if existing.is_some_and(|existing| existing.as_bytes() == etag.as_bytes()) {
                StatusCode::NOT_MODIFIED.into_response()
            } else {
                let sealed = document::seal(self.keys()?, at_ms, body);
                let text = sealed.map_err(|error| {
                    error!(%error, feed = T::KIND, "cannot write a feed");
                    FEED_UNAVAILABLE.because("cannot write the feed")
                })?;
                let mut response = text.into_response();
                let content_type = HeaderValue::from_static(CONTENT_TYPE);
                response
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, content_type);
                response
            };
        let headers = response.headers_mut();
        // Versions contain only characters that are valid in an ETag.
        if let Ok(etag) = HeaderValue::from_str(&etag) {
            headers.insert(header::ETAG, etag);
        }
        let cached = HeaderValue::from_static("private, max-age=1");
        headers.insert(header::CACHE_CONTROL, cached);
        Ok(response)
    }
}

/// Timestamp for a document that is read now, rounded down to a full second.
pub fn document_ms() -> u64 {
    now_ms() / GRAIN_MS * GRAIN_MS
}

fn refusal(detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    UNAUTHORIZED.because(detail).challenge("Weir-Edge")
}
