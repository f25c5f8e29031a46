//! The routes of events: parse requests and write answers. Other modules contain the logic.

mod collect;
mod dead;
mod decode;
mod groups;
mod page;
mod pulls;
mod query;
mod refusals;
mod segments;
mod sellers;
mod types;

pub use page::page;

use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::request::Parts;
use utoipa_axum::router::UtoipaMethodRouterExt;
use utoipa_axum::routes;
use weir_event::limits::BODY_LEN_MAX;

use super::Events;
use super::admin::AdminError;
use super::collect::CollectError;
use super::log::AppendError;
use refusals::{
    CONTENT_TYPE, EVENT_REJECTED, EVENT_UNREADABLE, EVENTS_FULL, EVENTS_LOG, EVENTS_OFF,
    EVENTS_REFUSED, EVENTS_UNKNOWN, INVALID_IF_MATCH, INVALID_SEEK, INVALID_SEGMENT, INVALID_TYPE,
    INVALID_USER, NOT_BY_A_GATEWAY, NOT_RESENDABLE, SEGMENT_BEING_DELETED, SEGMENT_UNREADABLE,
    TOO_MANY_SEGMENTS, TOO_MANY_TYPES, TYPES_BUSY, UNKNOWN_DEAD_LETTER, UNKNOWN_GROUP,
    UNKNOWN_SEGMENT, UNKNOWN_TYPE, UNKNOWN_WINDOW, VERSION_CONFLICT,
};
use weir_origin_core::access::scope::Area;
use weir_origin_core::api::{Api, AuditTiming, Document, RouteRules};
use weir_origin_core::http::Problem;
use weir_origin_core::http::refusal::BODY_TOO_LARGE;

/// `retry-after` when the log is full, in seconds: a group has to catch up first.
const FULL_RETRY_S: u64 = 5;

/// The events of an origin, if enabled. Otherwise the routes answer `events_off`.
#[derive(Clone, Debug)]
pub struct Enabled(pub Option<Events>);

impl FromRequestParts<Enabled> for Events {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, enabled: &Enabled) -> Result<Self, Problem> {
        enabled.0.clone().ok_or_else(|| {
            let detail = "this origin has no events: start it with --events-log";
            EVENTS_OFF.because(detail)
        })
    }
}

/// The routes for gateways, with gateway metadata.
pub fn public() -> Api<Enabled> {
    let sent = RouteRules::OPEN.refuses(&[
        EVENTS_OFF,
        NOT_BY_A_GATEWAY,
        INVALID_USER,
        EVENTS_FULL,
        EVENTS_UNKNOWN,
        EVENTS_REFUSED,
    ]);
    Api::public()
        .route(
            routes!(collect::collect).layer(DefaultBodyLimit::max(BODY_LEN_MAX)),
            sent.refuses(&[BODY_TOO_LARGE, CONTENT_TYPE]),
        )
        .route(routes!(collect::pixel), sent.refuses(&[EVENT_REJECTED]))
}

/// The routes for operators and business systems.
pub fn admin() -> Api<Enabled> {
    let rules = RouteRules::PLATFORM.refuses(&[EVENTS_OFF]);
    let kind = rules.refuses(&[UNKNOWN_TYPE]);
    let changed_kind = kind.refuses(&[INVALID_IF_MATCH, VERSION_CONFLICT, TYPES_BUSY]);
    let letter = rules.refuses(&[UNKNOWN_DEAD_LETTER]);
    let sent = &[EVENTS_FULL, EVENTS_UNKNOWN, EVENTS_REFUSED];
    let group = rules.refuses(&[UNKNOWN_GROUP, EVENTS_LOG]);
    let course = rules.refuses(&[EVENT_UNREADABLE]);
    seller_routes(Api::admin(Area::Events))
        // Business systems send events, which are not audited as operator actions.
        .route(
            routes!(collect::push).layer(DefaultBodyLimit::max(BODY_LEN_MAX)),
            rules
                .audited_at(AuditTiming::Never)
                .refuses(sent)
                .refuses(&[BODY_TOO_LARGE, CONTENT_TYPE]),
        )
        .route(routes!(types::list), rules)
        .route(routes!(types::get), kind)
        .route(
            routes!(types::put).layer(DefaultBodyLimit::max(crate::model::types::TYPE_LEN_MAX)),
            changed_kind.refuses(&[INVALID_TYPE, TOO_MANY_TYPES, BODY_TOO_LARGE]),
        )
        .route(routes!(types::delete), changed_kind)
        .route(routes!(dead::list), rules)
        .route(
            routes!(dead::resend_many),
            rules.refuses(sent).refuses(&[BODY_TOO_LARGE]),
        )
        .route(routes!(dead::get), letter)
        .route(
            routes!(dead::replace_event).layer(DefaultBodyLimit::max(dead::BODY_LEN_MAX)),
            letter.refuses(&[NOT_RESENDABLE, BODY_TOO_LARGE]),
        )
        .route(routes!(dead::delete), letter)
        .route(
            routes!(dead::resend),
            letter.refuses(sent).refuses(&[NOT_RESENDABLE]),
        )
        .route(routes!(pulls::list), rules)
        .route(routes!(groups::list), rules.refuses(&[EVENTS_LOG]))
        .route(routes!(groups::get), group)
        .route(
            routes!(groups::seek),
            group.refuses(&[INVALID_SEEK, BODY_TOO_LARGE]),
        )
        .route(routes!(groups::pause), group)
        .route(routes!(groups::resume), group)
        .route(routes!(groups::retries), group)
        .route(routes!(groups::retry_now), group)
        .route(routes!(groups::compensations), group)
        .route(routes!(query::customer), course)
        .route(
            routes!(query::customer_window),
            course.refuses(&[UNKNOWN_WINDOW]),
        )
        .route(routes!(query::visitor), course)
        .route(
            routes!(query::visitor_window),
            course.refuses(&[UNKNOWN_WINDOW]),
        )
}

/// The routes for sellers: profiles, trends, funnels and segments.
fn seller_routes(api: Api<Enabled>) -> Api<Enabled> {
    let rules = RouteRules::PLATFORM.refuses(&[EVENTS_OFF]);
    let segment = rules.refuses(&[UNKNOWN_SEGMENT]);
    api.route(routes!(sellers::profile), rules)
        .route(routes!(sellers::trends), rules)
        .route(routes!(sellers::funnel), rules)
        .route(
            routes!(segments::list),
            rules.refuses(&[SEGMENT_UNREADABLE]),
        )
        .route(
            routes!(segments::get),
            segment.refuses(&[SEGMENT_UNREADABLE]),
        )
        .route(
            routes!(segments::put).layer(DefaultBodyLimit::max(
                crate::model::segments::SEGMENT_LEN_MAX,
            )),
            segment.refuses(&[
                INVALID_SEGMENT,
                SEGMENT_BEING_DELETED,
                SEGMENT_UNREADABLE,
                TOO_MANY_SEGMENTS,
                BODY_TOO_LARGE,
            ]),
        )
        .route(routes!(segments::delete), segment)
        .route(routes!(segments::evaluate), segment)
        .route(routes!(segments::members), segment)
        .route(routes!(segments::csv), segment)
}

/// Additions of all routes to the OpenAPI document.
pub fn document() -> Document {
    let mut document = public().into_document();
    document.merge(admin().into_document());
    document.merge(page().into_document());
    document
}

/// Maps errors that accept no event to problem responses.
impl From<CollectError> for Problem {
    fn from(error: CollectError) -> Self {
        let detail = error.to_string();
        match error {
            CollectError::Body(error) if error.status() == 413 => too_large(detail),
            CollectError::Body(_) => Self::invalid_body(detail),
            CollectError::Append(AppendError::Full) => {
                EVENTS_FULL.because(detail).retry_after(FULL_RETRY_S)
            }
            CollectError::Append(AppendError::Unknown) => {
                let detail = "outcome unknown: please send the same events again";
                EVENTS_UNKNOWN.because(detail)
            }
            CollectError::Append(AppendError::Refused) => EVENTS_REFUSED.because(detail),
        }
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        let detail = error.to_string();
        match error {
            AdminError::Store(error) => error.into(),
            AdminError::Collect(error) => error.into(),
            AdminError::Log(_) => {
                tracing::error!(error = detail, "cannot read the event log");
                EVENTS_LOG.because("cannot read the event log")
            }
            AdminError::Unknown => UNKNOWN_DEAD_LETTER.because(detail),
            AdminError::Kind(detail) => NOT_RESENDABLE.because(detail),
        }
    }
}

fn too_large(detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    BODY_TOO_LARGE.because(detail)
}

/// Number of entries on a page: 100 by default.
fn page_len(limit: Option<u32>) -> Result<u32, Problem> {
    Ok(weir_origin_core::http::page_len(limit, 1_000)?.unwrap_or(100))
}
