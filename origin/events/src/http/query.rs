//! What customers and visitors did.

use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use serde_json::{Value, json};
use weir_base::duration::Duration;
use weir_event::envelope::Envelope;
use weir_event::window;

use super::page_len;
use crate::Events;
use crate::store::{Course, CourseFilter, Place};
use weir_origin_core::http::{Problem, ReadQuery};

/// The most events that one question looks at; with more the answer says that it is not complete.
const WINDOW_EVENTS_MAX: u32 = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    #[serde(rename = "type")]
    event_type: Option<String>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    limit: Option<u32>,
    page: Option<String>,
    #[serde(default)]
    order: Order,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    Oldest,
    Latest,
}

/// `GET /customers/{id}/events`.
pub(super) async fn customer(
    events: Events,
    Path(id): Path<String>,
    ReadQuery(page): ReadQuery<Page>,
) -> Result<Json<Value>, Problem> {
    course(&events, Course::Customer(&id), page).await
}

/// `GET /visitors/{id}/events`: as far as nobody was signed in.
pub(super) async fn visitor(
    events: Events,
    Path(id): Path<String>,
    ReadQuery(page): ReadQuery<Page>,
) -> Result<Json<Value>, Problem> {
    course(&events, Course::Visitor(&id), page).await
}

async fn course(events: &Events, course: Course<'_>, page: Page) -> Result<Json<Value>, Problem> {
    let limit = page_len(page.limit)?;
    let filter = CourseFilter {
        event_type: page.event_type.as_deref(),
        from_ms: page.from_ms.unwrap_or(0),
        to_ms: page.to_ms.unwrap_or(u64::MAX),
        latest_first: page.order == Order::Latest,
        after: page.page.as_deref().map(place).transpose()?,
        limit,
    };
    let found = events.store().course(course, filter).await?;
    let last = found.last().filter(|_| found.len() == limit as usize);
    let next = last.map(|(place, _)| format!("{}-{}", place.at_ms, place.position));
    let shown: Vec<Envelope> = decoded(found)?;
    Ok(Json(json!({ "events": shown, "next_page": next })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Window {
    #[serde(rename = "type")]
    event_type: Option<String>,
    /// For `sequences`: what comes after `type`.
    then: Option<String>,
    /// For `last`: how many.
    n: Option<usize>,
    /// A duration; that of the type unless set.
    within: Option<String>,
    /// Where the window ends: now unless set.
    end_ms: Option<u64>,
}

/// `GET /customers/{id}/windows/{window}`.
pub(super) async fn customer_window(
    events: Events,
    Path((id, name)): Path<(String, String)>,
    ReadQuery(window): ReadQuery<Window>,
) -> Result<Json<Value>, Problem> {
    answer(&events, Course::Customer(&id), &name, window).await
}

/// `GET /visitors/{id}/windows/{window}`.
pub(super) async fn visitor_window(
    events: Events,
    Path((id, name)): Path<(String, String)>,
    ReadQuery(window): ReadQuery<Window>,
) -> Result<Json<Value>, Problem> {
    answer(&events, Course::Visitor(&id), &name, window).await
}

async fn answer(
    events: &Events,
    course: Course<'_>,
    name: &str,
    window: Window,
) -> Result<Json<Value>, Problem> {
    let missing = |name: &str| Problem::invalid_query(format!("{name}: must be there"));
    let event_type = window
        .event_type
        .as_deref()
        .ok_or_else(|| missing("type"))?;
    let end_ms = window.end_ms.unwrap_or_else(|| events.now_ms());
    match name {
        "last" => {
            let count = window.n.unwrap_or(1).clamp(1, 1_000);
            let asked = Asked::new(course, Some(event_type), 0, end_ms);
            let (found, _) = asked.find(events, count as u32).await?;
            Ok(Json(
                json!({ "events": window::last(&found, event_type, count) }),
            ))
        }
        "count" => {
            let within_ms = within(events, &window, event_type)?;
            let from_ms = (end_ms + 1).saturating_sub(within_ms);
            let asked = Asked::new(course, Some(event_type), from_ms, end_ms);
            let (found, is_complete) = asked.find(events, WINDOW_EVENTS_MAX).await?;
            let count = window::count_within(&found, event_type, end_ms, within_ms);
            Ok(Json(json!({ "count": count, "complete": is_complete })))
        }
        "sequences" => {
            let then = window.then.as_deref().ok_or_else(|| missing("then"))?;
            let within_ms = within(events, &window, event_type)?;
            let asked = Asked::new(course, None, 0, end_ms);
            let (found, is_complete) = asked.find(events, WINDOW_EVENTS_MAX).await?;
            let pairs = window::sequences(&found, event_type, then, within_ms);
            let pairs: Vec<Value> = pairs
                .into_iter()
                .map(|(first, then)| json!({ "first": first, "then": then }))
                .collect();
            Ok(Json(json!({ "sequences": pairs, "complete": is_complete })))
        }
        _ => {
            let detail = "windows are last, count and sequences";
            Err(Problem::not_found(
                "unknown_window",
                "Unknown window",
                detail,
            ))
        }
    }
}

/// The window of a question: its own, or that of the type.
fn within(events: &Events, window: &Window, event_type: &str) -> Result<u64, Problem> {
    if let Some(text) = &window.within {
        let duration = Duration::read(text).filter(|duration| duration.ms > 0);
        let problem = || Problem::invalid_query("within: must be a duration such as 30m or 1d");
        return duration.map(|duration| duration.ms).ok_or_else(problem);
    }
    let types = events.registry().types();
    let window_ms = types.get(event_type).and_then(|known| known.window_ms);
    window_ms
        .ok_or_else(|| Problem::invalid_query("within: must be there, as the type has no window"))
}

/// Events that a question is about.
struct Asked<'a> {
    course: Course<'a>,
    event_type: Option<&'a str>,
    from_ms: u64,
    end_ms: u64,
}

impl<'a> Asked<'a> {
    fn new(course: Course<'a>, event_type: Option<&'a str>, from_ms: u64, end_ms: u64) -> Self {
        Self {
            course,
            event_type,
            from_ms,
            end_ms,
        }
    }

    /// The latest of them, the oldest first; and whether these are all.
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

fn decoded(found: Vec<(Place, Vec<u8>)>) -> Result<Vec<Envelope>, Problem> {
    let events = found.iter().map(|(_, bytes)| Envelope::decode(bytes));
    events.collect::<Result<_, _>>().map_err(|error| {
        tracing::error!(%error, "an event in SQL cannot be read");
        Problem::unavailable("event_unreadable", "an event is of another version")
    })
}

/// Where a page ends, as the one before told it.
fn place(text: &str) -> Result<Place, Problem> {
    let place = text.split_once('-').and_then(|(at_ms, position)| {
        Some(Place {
            at_ms: at_ms.parse().ok()?,
            position: position.parse().ok()?,
        })
    });
    place.ok_or_else(|| Problem::invalid_query("page: is not one that was told"))
}
