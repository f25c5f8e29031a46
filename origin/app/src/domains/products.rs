//! The webhook for product changes from the system that owns the products.

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouterExt;
use utoipa_axum::routes;
use weir_base::key::KeyRing;

use super::{Domain, Jobs};
use crate::access::AuthLayer;
use crate::api::{Api, Document, RouteRules};
use crate::clock::now_ms;
use crate::http::refusal::{BODY_TOO_LARGE, SQL_UNAVAILABLE};
use crate::http::{Problem, Refusal};
use crate::metrics::Metrics;
use crate::origin::Origin;
use crate::product_changes::{ChangeOutcome, ProductChange, ProductChanges, ProductMetrics};
use crate::sales::model::callback::{self, CallbackError};

/// Maximum number of changes per request.
const CHANGES_MAX: usize = 1_000;

/// Maximum length of a request body, in bytes.
const BODY_LEN_MAX: usize = 4 << 20;

/// Header with the time of the signature, in seconds since the Unix epoch.
const TIMESTAMP: &str = "x-weir-products-timestamp";

/// Header with the signature: `<key id>;<HMAC-SHA256 of "<timestamp>.<body>", in hex>`.
const SIGNATURE: &str = "x-weir-products-signature";

const PRODUCTS_OFF: Refusal = Refusal::new(
    StatusCode::NOT_IMPLEMENTED,
    "products_not_configured",
    "No products",
    "This origin accepts no product changes: WEIR_PRODUCTS_SECRET is not set, or fitment and history are off",
);

const NOT_SIGNED: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "signature_invalid",
    "Invalid signature",
    "The signature is not valid for WEIR_PRODUCTS_SECRET",
);

const TOO_OLD: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "timestamp_out_of_window",
    "Too old",
    "The body was signed too long ago, or in the future",
);

/// The webhook, if its secret is set.
#[derive(Clone, Debug)]
pub(crate) struct ProductDomain {
    pub(crate) keys: Option<KeyRing>,
    pub(crate) metrics: ProductMetrics,
}

impl Origin {
    /// Accepts product changes signed with one of these keys.
    #[must_use]
    pub fn with_product_keys(mut self, keys: Option<KeyRing>) -> Self {
        self.products.keys = keys;
        self
    }
}

impl ProductDomain {
    /// The webhook, disabled.
    pub(crate) fn disabled(metrics: &Metrics) -> Self {
        Self {
            keys: None,
            metrics: ProductMetrics::register(metrics),
        }
    }
}

type Webhook = Option<(KeyRing, ProductChanges)>;

/// Product changes.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ProductChangeList {
    /// The changes, applied in order.
    #[schema(min_items = 1, max_items = 1000)]
    changes: Vec<ProductChange>,
}

/// The outcomes of product changes.
#[derive(Debug, Serialize, ToSchema)]
struct ProductChangeOutcomes {
    /// One outcome per change, in order.
    outcomes: Vec<ChangeOutcome>,
}

/// Apply product changes, such as moves to another main SKU
///
/// Applies changes to fitment and to the product table of browse history. Each version is applied once, and older
/// versions change nothing. The body is signed with WEIR_PRODUCTS_SECRET, like payment callbacks.
#[utoipa::path(
    post,
    path = "/product-changes",
    operation_id = "changeProducts",
    params(
        ("x-weir-products-timestamp" = String, Header, description = "When it was signed, in seconds since the Unix epoch."),
        ("x-weir-products-signature" = String, Header, description = "<key id>;<HMAC-SHA256 of \"<timestamp>.<body>\", in hex>."),
    ),
    request_body = ProductChangeList,
    responses((status = 200, description = "Stored in SQL; Redis is updated later", body = ProductChangeOutcomes)),
)]
async fn change(
    State(webhook): State<Webhook>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<ProductChangeOutcomes>, Problem> {
    let off =
        || PRODUCTS_OFF.because("set WEIR_PRODUCTS_SECRET, and start with --fitment or --history");
    let (keys, products) = webhook.ok_or_else(off)?;
    verify(&keys, &headers, &body)?;
    let list: ProductChangeList =
        serde_json::from_slice(&body).map_err(|error| Problem::invalid_body(error.to_string()))?;
    if !(1..=CHANGES_MAX).contains(&list.changes.len()) {
        let detail = format!("changes: must be 1 to {CHANGES_MAX}");
        return Err(Problem::invalid_body(detail));
    }
    let mut changes = Vec::with_capacity(list.changes.len());
    for (index, change) in list.changes.into_iter().enumerate() {
        let checked = products.check(change);
        let at = |error| Problem::invalid_body(format!("changes[{index}].{error}"));
        changes.push(checked.map_err(at)?);
    }
    let outcomes = products.apply(&changes).await?;
    Ok(Json(ProductChangeOutcomes { outcomes }))
}

/// Verifies the signature. Call it before the body is parsed.
fn verify(keys: &KeyRing, headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
    let only = |name| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(value.as_bytes()),
            _ => Err(NOT_SIGNED.because(format!("the header {name} must appear exactly once"))),
        }
    };
    let (timestamp, signature) = (only(TIMESTAMP)?, only(SIGNATURE)?);
    callback::verify(keys, timestamp, signature, body, now_ms()).map_err(|error| {
        warn!(%error, "product changes refused");
        match error {
            CallbackError::Signature(_) | CallbackError::Malformed => {
                NOT_SIGNED.because("the signature does not match the body")
            }
            CallbackError::Age => TOO_OLD.because(
                "the signature time is too old or in the future: sign the body when you send it",
            ),
        }
    })
}

fn public() -> Api<Webhook> {
    let rules = RouteRules::OPEN.refuses(&[
        PRODUCTS_OFF,
        NOT_SIGNED,
        TOO_OLD,
        BODY_TOO_LARGE,
        SQL_UNAVAILABLE,
    ]);
    let limit = DefaultBodyLimit::max(BODY_LEN_MAX);
    Api::public().route(routes!(change).layer(limit), rules)
}

/// The route's part of the OpenAPI document.
pub(crate) fn document() -> Document {
    public().into_document()
}

impl Domain for ProductDomain {
    fn public(&self, origin: &Origin) -> Router {
        public().into_router(self.keys.clone().zip(ProductChanges::of(origin)))
    }

    fn admin(&self, _origin: &Origin, _door: &AuthLayer) -> Router {
        Router::new()
    }

    fn spawn(&self, _origin: &Origin, _stop: &CancellationToken) -> Jobs {
        Ok(Vec::new())
    }
}
