//! Queries of events by customer or visitor.

use axum::Json;
use axum::extract::Path;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::Object;
use weir_base::duration::Duration;
use weir_event::envelope::Envelope;
use weir_event::window;

use super::page_len;
use super::refusals::{EVENT_UNREADABLE, UNKNOWN_WINDOW};
use crate::Events;
use crate::store::{CourseFilter, CourseOwner, EventCursor};
use weir_origin_core::api::words;
use weir_origin_core::http::{Problem, ReadQuery};

/// Maximum number of events that a query reads. Above it the answer is marked as incomplete.
const WINDOW_EVENTS_MAX: u32 = 10_000;

/// Selects events.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// Only events of this type.
    #[serde(rename = "type")]
    event_type: Option<String>,
    /// From this time, in milliseconds since the Unix epoch.
    from_ms: Option<u64>,
    /// Before this time.
    to_ms: Option<u64>,
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_page` of the previous answer.
    page: Option<String>,
    /// Sort order.
    #[serde(default)]
    #[param(required = false, inline)]
    order: Order,
}

/// Sort order of events.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = EventOrder)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    Oldest,
    Latest,
}

/// List a customer's events
#[utoipa::path(
    get,
    path = "/customers/{id}/events",
    operation_id = "listCustomerEvents",
    params(("id" = String, Path, description = "The customer's id.", max_length = 128), Page),
    responses((status = 200, description = "A page", body = CourseView)),
)]
pub(super) async fn customer(
    events: Events,
    Path(id): Path<String>,
    ReadQuery(page): ReadQuery<Page>,
) -> Result<Json<CourseView>, Problem> {
    course(&events, CourseOwner::Customer(&id), page).await
}

/// List a visitor's events from before sign-in
#[utoipa::path(
    get,
    path = "/visitors/{id}/events",
    operation_id = "listVisitorEvents",
    params(("id" = String, Path, description = "The visitor's id.", max_length = 128), Page),
    responses((status = 200, description = "A page", body = CourseView)),
)]
pub(super) async fn visitor(
    events: Events,
    Path(id): Path<String>,
    ReadQuery(page): ReadQuery<Page>,
) -> Result<Json<CourseView>, Problem> {
    course(&events, CourseOwner::Visitor(&id), page).await
}

async fn course(
    events: &Events,
    course: CourseOwner<'_>,
    page: Page,
) -> Result<Json<CourseView>, Problem> {
    let limit = page_len(page.limit)?;
    let filter = CourseFilter {
        event_type: page.event_type.as_deref(),
        from_ms: page.from_ms.unwrap_or(0),
        to_ms: page.to_ms.unwrap_or(u64::MAX),
        latest_first: page.order == Order::Latest,
        after: page.page.as_deref().map(parse_cursor).transpose()?,
        limit,
    };
    let found = events.store().course(course, filter).await?;
    let last = found.last().filter(|_| found.len() == limit as usize);
    let next_page = last.map(|(place, _)| format!("{}-{}", place.at_ms, place.position));
    let events = decoded(found)?;
    Ok(Json(CourseView { events, next_page }))
}

/// Selects a customer or visitor, and a window.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes parameters")]
struct WindowPath {
    /// The customer or visitor.
    #[param(max_length = 128)]
    id: String,
    /// The window: last, count or sequences.
    #[param(required, schema_with = windows)]
    window: String,
}

fn windows() -> Object {
    words("Which window.", ["last", "count", "sequences"])
}

/// A page of events.
#[derive(Serialize, ToSchema)]
#[schema(as = Course)]
pub(super) struct CourseView {
    /// The events, in their order.
    events: Vec<Envelope>,
    /// `page` of the next page; null: this is the last page.
    #[schema(required)]
    next_page: Option<String>,
}

/// The answer of a window.
#[derive(Default, Serialize, ToSchema)]
pub(super) struct WindowAnswer {
    /// `last`: the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    events: Option<Vec<Envelope>>,
    /// `count`: number of events.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    count: Option<u64>,
    /// `sequences`: pairs of events in sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    sequences: Option<Vec<Sequence>>,
    /// false: only the latest 10,000 events were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    complete: Option<bool>,
}

/// An event and one that followed it.
#[derive(Serialize, ToSchema)]
#[schema(as = WindowAnswerSequence)]
struct Sequence {
    /// The first event.
    first: Envelope,
    /// The event that followed it.
    then: Envelope,
}

/// Parameters of a window.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Window {
    /// Only events of this type.
    #[serde(rename = "type")]
    #[param(required)]
    event_type: Option<String>,
    /// For `sequences`: the type that follows `type`.
    then: Option<String>,
    /// For `last`: number of events.
    #[param(minimum = 1, maximum = 1000)]
    n: Option<usize>,
    /// A duration; default: the type's window.
    within: Option<String>,
    /// End of the window; default: now.
    end_ms: Option<u64>,
}

/// Get a window of a customer's events: the last ones, a count, or sequences
#[utoipa::path(
    get,
    path = "/customers/{id}/windows/{window}",
    operation_id = "getCustomerWindow",
    params(WindowPath, Window),
    responses((status = 200, description = "The answer", body = WindowAnswer)),
)]
pub(super) async fn customer_window(
    events: Events,
    Path((id, name)): Path<(String, String)>,
    ReadQuery(window): ReadQuery<Window>,
) -> Result<Json<WindowAnswer>, Problem> {
    answer(&events, CourseOwner::Customer(&id), &name, window).await
}

/// Get a window of a visitor's events from before sign-in: the last ones, a count, or sequences
#[utoipa::path(
    get,
    path = "/visitors/{id}/windows/{window}",
    operation_id = "getVisitorWindow",
    params(WindowPath, Window),
    responses((status = 200, description = "The answer", body = WindowAnswer)),
)]
pub(super) async fn visitor_window(
    events: Events,
    Path((id, name)): Path<(String, String)>,
    ReadQuery(window): ReadQuery<Window>,
) -> Result<Json<WindowAnswer>, Problem> {
    answer(&events, CourseOwner::Visitor(&id), &name, window).await
}

async fn answer(
    events: &Events,
    course: CourseOwner<'_>,
    name: &str,
    window: Window,
) -> Result<Json<WindowAnswer>, Problem> {
    let missing = |name: &str| Problem::invalid_query(format!("{name}: is required"));
    let event_type = window
        .event_type
        .as_deref()
        .ok_or_else(|| missing("type"))?;
    let end_ms = window.end_ms.unwrap_or_else(|| events.now_ms());
    match name {
        "last" => {
            let count = window.n.unwrap_or(1).clamp(1, 1_000);
            let query = EventQuery::new(course, Some(event_type), 0, end_ms);
            let (found, _) = query.find(events, count as u32).await?;
            let last = window::last(&found, event_type, count).into_iter();
            Ok(Json(WindowAnswer {
                events: Some(last.cloned().collect()),
                ..WindowAnswer::default()
            }))
        }
        "count" => {
            let within_ms = within(events, &window, event_type)?;
            let from_ms = (end_ms + 1).saturating_sub(within_ms);
            let query = EventQuery::new(course, Some(event_type), from_ms, end_ms);
            let (found, is_complete) = query.find(events, WINDOW_EVENTS_MAX).await?;
            let count = window::count_within(&found, event_type, end_ms, within_ms);
            Ok(Json(WindowAnswer {
                count: Some(count as u64),
                complete: Some(is_complete),
                ..WindowAnswer::default()
            }))
        }
        "sequences" => {
            let then = window.then.as_deref().ok_or_else(|| missing("then"))?;
            let within_ms = within(events, &window, event_type)?;
            let query = EventQuery::new(course, None, 0, end_ms);
            let (found, is_complete) = query.find(events, WINDOW_EVENTS_MAX).await?;
            let pairs = window::sequences(&found, event_type, then, within_ms);
            let sequence = |(first, then): (&Envelope, &Envelope)| Sequence {
                first: first.clone(),
                then: then.clone(),
            };
            Ok(Json(WindowAnswer {
                sequences: Some(pairs.into_iter().map(sequence).collect()),
                complete: Some(is_complete),
                ..WindowAnswer::default()
            }))
        }
        _ => {
            let detail = "unknown window: use last, count or sequences";
            Err(UNKNOWN_WINDOW.because(detail))
        }
    }
}

/// The window of a query: its own, or the type's default.
fn within(events: &Events, window: &Window, event_type: &str) -> Result<u64, Problem> {
    if let Some(text) = &window.within {
        let duration = Duration::read(text).filter(|duration| duration.ms > 0);
        let problem = || Problem::invalid_query("within: must be a duration such as 30m or 1d");
        return duration.map(|duration| duration.ms).ok_or_else(problem);
    }
    let types = events.registry().types();
    let window_ms = types
        .get(event_type)
        .and_then(|existing| existing.window_ms);
    window_ms.ok_or_else(|| {
        Problem::invalid_query("within: is required, because the type has no window")
    })
}

/// Selects the events of a query.
struct EventQuery<'a> {
    course: CourseOwner<'a>,
    event_type: Option<&'a str>,
    from_ms: u64,
    end_ms: u64,
}

impl<'a> EventQuery<'a> {
    fn new(
        course: CourseOwner<'a>,
        event_type: Option<&'a str>,
        from_ms: u64,
        end_ms: u64,
    ) -> Self {
        Self {
            course,
            event_type,
            from_ms,
            end_ms,
        }
    }

    /// The latest events, oldest first, and whether the list is complete.
    async fn find(&self, events: &Events, limit: u32) -> Result<(Vec<Envelope>, bool), Problem> {
        let filter = CourseFilter {
            event_type: self.event_type,
            from_ms: self.from_ms,
            to_ms: self.end_ms.saturating_add(1),
            latest_first: true,
            after: None,
            limit,
        };
        let mut found = events.store().course(self.course, filter).await?;
        let is_complete = found.len() < limit as usize;
        found.reverse();
        Ok((decoded(found)?, is_complete))
    }
}

fn decoded(found: Vec<(EventCursor, Vec<u8>)>) -> Result<Vec<Envelope>, Problem> {
    let events = found.iter().map(|(_, bytes)| Envelope::decode(bytes));
    events.collect::<Result<_, _>>().map_err(|error| {
        tracing::error!(%error, "cannot read an event in SQL");
        EVENT_UNREADABLE.because("an event in SQL has an unsupported version")
    })
}

/// Parses the cursor of a page.
fn parse_cursor(text: &str) -> Result<EventCursor, Problem> {
    let place = text.split_once('-').and_then(|(at_ms, position)| {
        Some(EventCursor {
            at_ms: at_ms.parse().ok()?,
            position: position.parse().ok()?,
        })
    });
    place.ok_or_else(|| Problem::invalid_query("page: must be the `next` of an earlier page"))
}
