//! The routes of consumer groups.

use axum::Json;
use axum::extract::Path;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_event::envelope::Envelope;

use super::page_len;
use super::refusals::{INVALID_SEEK, UNKNOWN_GROUP};
use crate::admin::{self, SeekResult, group_status};
use crate::groups::status::GroupState;
use crate::log::{Position, Source, Target};
use crate::store::{Compensation, Retry};
use crate::{Events, GroupHandle};
use weir_origin_core::http::{Problem, ReadQuery, TypedBody};

/// Selects a consumer group.
#[derive(utoipa::IntoParams)]
#[into_params(names("group"), parameter_in = Path)]
struct GroupParam(
    /// The name of the group.
    #[param(max_length = 64)]
    #[expect(dead_code, reason = "describes a parameter")]
    String,
);

/// List all consumer groups and their positions
#[utoipa::path(
    get,
    path = "/groups",
    operation_id = "listGroups",
    responses((status = 200, description = "All", body = EventGroups)),
)]
pub(super) async fn list(events: Events) -> Result<Json<EventGroups>, Problem> {
    let mut groups = Vec::new();
    for group in events.groups() {
        groups.push(group_view(&events, group).await?);
    }
    Ok(Json(EventGroups { groups }))
}

/// Get a consumer group
///
/// Its position, its retries and its errors.
#[utoipa::path(
    get,
    path = "/groups/{group}",
    operation_id = "getGroup",
    params(GroupParam),
    responses((status = 200, description = "The current state", body = GroupView)),
)]
pub(super) async fn get(
    events: Events,
    Path(name): Path<String>,
) -> Result<Json<GroupView>, Problem> {
    let group = find(&events, &name)?;
    Ok(Json(group_view(&events, group).await?))
}

/// Target of a seek; set exactly one of the first three fields.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Seek {
    /// `start` or `end`.
    #[schema(nullable = false)]
    to: Option<Edge>,
    /// Seek to the first event appended at or after this time.
    #[schema(nullable = false)]
    time_ms: Option<u64>,
    /// Seek to a position from `GET /groups/{group}`.
    #[schema(nullable = false)]
    position: Option<u64>,
    /// Only report the effect.
    #[serde(default)]
    #[schema(default = false)]
    dry_run: bool,
}

/// An end of the log.
#[derive(Deserialize, ToSchema)]
#[schema(as = LogEnd)]
#[serde(rename_all = "snake_case")]
enum Edge {
    Start,
    End,
}

/// Seek a consumer group in this origin's log, or do a dry run
///
/// Seeks to a time, a position, or an end of the log. A dry run returns the number of replayed and skipped records.
#[utoipa::path(
    post,
    path = "/groups/{group}/seek",
    operation_id = "seekGroup",
    params(GroupParam),
    request_body = Seek,
    responses((status = 200, description = "Done, unless it is a dry run", body = SeekAnswer)),
)]
pub(super) async fn seek(
    events: Events,
    Path(name): Path<String>,
    TypedBody(seek): TypedBody<Seek>,
) -> Result<Json<SeekAnswer>, Problem> {
    let group = find(&events, &name)?;
    let target = match (seek.to, seek.time_ms, seek.position) {
        (Some(Edge::Start), None, None) => Target::Start,
        (Some(Edge::End), None, None) => Target::End,
        (None, Some(time_ms), None) => Target::Time(time_ms),
        (None, None, Some(position)) => Target::Position(position),
        _ => {
            let detail = "set exactly one of `to` (start or end), `time_ms` and `position`";
            return Err(INVALID_SEEK.because(detail));
        }
    };
    let sources = admin::seek(&events, group, target, seek.dry_run).await?;
    Ok(Json(SeekAnswer {
        group: name,
        dry_run: seek.dry_run,
        sources,
    }))
}

/// Pause a consumer group in all origins
///
/// Takes effect within a second.
#[utoipa::path(
    post,
    path = "/groups/{group}/pause",
    operation_id = "pauseGroup",
    params(GroupParam),
    responses((status = 200, description = "Stored; groups follow within a second", body = GroupPaused)),
)]
pub(super) async fn pause(
    events: Events,
    Path(name): Path<String>,
) -> Result<Json<GroupPaused>, Problem> {
    set_paused(&events, &name, true).await
}

/// Resume a consumer group in all origins
#[utoipa::path(
    post,
    path = "/groups/{group}/resume",
    operation_id = "resumeGroup",
    params(GroupParam),
    responses((status = 200, description = "Stored; groups follow within a second", body = GroupPaused)),
)]
pub(super) async fn resume(
    events: Events,
    Path(name): Path<String>,
) -> Result<Json<GroupPaused>, Problem> {
    set_paused(&events, &name, false).await
}

async fn set_paused(
    events: &Events,
    name: &str,
    is_paused: bool,
) -> Result<Json<GroupPaused>, Problem> {
    let group = find(events, name)?;
    admin::set_paused(events, group, is_paused).await?;
    Ok(Json(GroupPaused {
        group: name.to_owned(),
        paused: is_paused,
    }))
}

/// Selects a page of retries.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RetryPage {
    /// A position.
    after: Option<u64>,
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// List a consumer group's retries, and events waiting behind them
#[utoipa::path(
    get,
    path = "/groups/{group}/retries",
    operation_id = "listGroupRetries",
    params(GroupParam, RetryPage),
    responses((status = 200, description = "A page", body = GroupRetries)),
)]
pub(super) async fn retries(
    events: Events,
    Path(name): Path<String>,
    ReadQuery(page): ReadQuery<RetryPage>,
) -> Result<Json<GroupRetries>, Problem> {
    let group = find(&events, &name)?;
    let limit = page_len(page.limit)?;
    let mut all = Vec::new();
    for source in events.log().sources() {
        let store = events.store();
        let retries = store
            .retry_queue()
            .retries(&group.name, &source, page.after, limit)
            .await?;
        all.extend(retries.into_iter().map(RetryView::from));
    }
    Ok(Json(GroupRetries { retries: all }))
}

/// Retry all events of a consumer group now
#[utoipa::path(
    post,
    path = "/groups/{group}/retries/now",
    operation_id = "retryGroupNow",
    params(GroupParam),
    responses((status = 200, description = "The count", body = GroupDue)),
)]
pub(super) async fn retry_now(
    events: Events,
    Path(name): Path<String>,
) -> Result<Json<GroupDue>, Problem> {
    let group = find(&events, &name)?;
    let due = admin::retry_now(&events, group).await?;
    Ok(Json(GroupDue { group: name, due }))
}

/// Selects a page of customers and visitors.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UnitPage {
    /// A unit.
    after: Option<String>,
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// List customers whose data a consumer group recomputes
#[utoipa::path(
    get,
    path = "/groups/{group}/compensations",
    operation_id = "listGroupCompensations",
    params(GroupParam, UnitPage),
    responses((status = 200, description = "A page", body = Compensations)),
)]
pub(super) async fn compensations(
    events: Events,
    Path(name): Path<String>,
    ReadQuery(page): ReadQuery<UnitPage>,
) -> Result<Json<Compensations>, Problem> {
    let group = find(&events, &name)?;
    let (store, limit) = (events.store(), page_len(page.limit)?);
    let after = page.after.unwrap_or_default();
    let compensations = store
        .replays()
        .compensations(&group.name, &after, limit)
        .await?;
    Ok(Json(Compensations { compensations }))
}

fn find<'a>(events: &'a Events, name: &str) -> Result<&'a GroupHandle, Problem> {
    events
        .group(name)
        .ok_or_else(|| UNKNOWN_GROUP.because("group not found"))
}

async fn group_view(events: &Events, group: &GroupHandle) -> Result<GroupView, Problem> {
    let current = group_status(events, group).await?;
    let (store, now_ms) = (events.store(), events.now_ms());
    let oldest_ms = current.lag.oldest_ms.into_iter();
    let oldest_ms = oldest_ms.chain(current.retries.oldest_ms).min();
    let position = |(source, position): (Source, Option<Position>)| PositionView {
        source: source.to_string(),
        position,
    };
    Ok(GroupView {
        name: group.name.clone(),
        state: current.report.state,
        error: current.report.error,
        topics: group.topics.clone(),
        positions: current.positions.into_iter().map(position).collect(),
        lag_bytes: current.lag.bytes,
        lag_records: current.lag.records,
        oldest_age_ms: oldest_ms.map(|oldest_ms| now_ms.saturating_sub(oldest_ms)),
        retries: current.retries.count,
        dead_letters: store.letters().dead_letter_count(&group.name).await?,
        compensations: store.replays().compensation_count(&group.name).await?,
    })
}

/// A consumer group.
#[derive(Serialize, ToSchema)]
#[schema(as = EventGroup)]
pub(super) struct GroupView {
    /// Its name.
    name: String,
    /// Its state.
    state: GroupState,
    /// The last error; null: none.
    #[schema(required)]
    error: Option<String>,
    /// Its topics; null: all.
    #[schema(required)]
    topics: Option<std::collections::BTreeSet<String>>,
    /// Its position in each origin's log.
    positions: Vec<PositionView>,
    /// Lag in bytes; null: unknown.
    #[schema(required)]
    lag_bytes: Option<u64>,
    /// Lag in records; null: unknown.
    #[schema(required)]
    lag_records: Option<u64>,
    /// Age of the oldest unprocessed event, in milliseconds; null: none.
    #[schema(required)]
    oldest_age_ms: Option<u64>,
    /// Number of events in retry.
    retries: u64,
    /// Number of dead letters.
    dead_letters: u64,
    /// Number of customers and visitors to recompute.
    compensations: u64,
}

/// Position of a consumer group in a log.
#[derive(Serialize, ToSchema)]
#[schema(as = EventGroupPosition)]
struct PositionView {
    /// The log.
    source: String,
    /// Position; null: not started.
    #[schema(required)]
    position: Option<u64>,
}

/// All groups.
#[derive(Serialize, ToSchema)]
pub(super) struct EventGroups {
    /// All groups.
    groups: Vec<GroupView>,
}

/// Result of a seek.
#[derive(Serialize, ToSchema)]
#[schema(as = Sought)]
pub(super) struct SeekAnswer {
    /// The consumer group's name.
    group: String,
    /// Whether this was a dry run.
    dry_run: bool,
    /// One entry per log.
    sources: Vec<SeekResult>,
}

/// Whether a group is paused.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupPaused {
    /// The consumer group's name.
    group: String,
    /// Whether it is paused.
    paused: bool,
}

/// A page of events in retry.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupRetries {
    /// Events in retry, and events waiting behind them.
    retries: Vec<RetryView>,
}

/// An event in retry.
#[derive(Serialize, ToSchema)]
#[schema(as = GroupRetriesRetry)]
struct RetryView {
    /// Position in the log.
    position: u64,
    /// Number of attempts.
    tries: u32,
    /// Time of the next attempt, in milliseconds since the Unix epoch; null: waits behind an earlier event.
    #[schema(required)]
    due_ms: Option<u64>,
    /// The last error; empty: none.
    error: String,
    /// The event; null: unsupported version.
    #[schema(required)]
    event: Option<Envelope>,
}

/// Number of due retries.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupDue {
    /// The consumer group's name.
    group: String,
    /// Number of events due now.
    due: u64,
}

/// A page of customers and visitors to recompute.
#[derive(Serialize, ToSchema)]
pub(super) struct Compensations {
    /// The customers and visitors of this page.
    compensations: Vec<Compensation>,
}

impl From<Retry> for RetryView {
    fn from(retry: Retry) -> Self {
        Self {
            position: retry.position,
            tries: retry.tries,
            due_ms: retry.due_ms,
            error: retry.error,
            event: Envelope::decode(&retry.envelope).ok(),
        }
    }
}
