//! The routes of groups.

use axum::Json;
use axum::extract::Path;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_event::envelope::Envelope;

use super::page_len;
use super::refusals::{INVALID_SEEK, UNKNOWN_GROUP};
use crate::admin::{self, Sought, standing};
use crate::groups::status::GroupState;
use crate::log::{Position, Source, Target};
use crate::store::{Compensation, Retry};
use crate::{Events, GroupHandle};
use weir_origin_core::http::{Problem, ReadQuery, TypedBody};

/// Which consumer group.
#[derive(utoipa::IntoParams)]
#[into_params(names("group"), parameter_in = Path)]
struct GroupParam(
    /// The name of the group.
    #[param(max_length = 64)]
    #[expect(dead_code, reason = "describes a parameter")]
    String,
);

/// All groups that handle events
///
/// All groups that handle events, and how far they are.
#[utoipa::path(
    get,
    path = "/groups",
    operation_id = "listGroups",
    responses((status = 200, description = "All", body = EventGroups)),
)]
pub(super) async fn list(events: Events) -> Result<Json<EventGroups>, Problem> {
    let mut groups = Vec::new();
    for group in events.groups() {
        groups.push(shown(&events, group).await?);
    }
    Ok(Json(EventGroups { groups }))
}

/// How a group stands
///
/// How far a group is, what it tries again, and what holds it up.
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
    Ok(Json(shown(&events, group).await?))
}

/// Where to.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Seek {
    /// `start` or `end`.
    #[schema(nullable = false)]
    to: Option<Edge>,
    /// The first event that was appended then or later.
    #[schema(nullable = false)]
    time_ms: Option<u64>,
    /// A place that `GET /groups/{group}` has told.
    #[schema(nullable = false)]
    position: Option<u64>,
    /// Only tell what it would do.
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

/// Move a group in this origin's log, or say what that would do
///
/// Moves a group to a time, to a position, or to either end of this origin's log. A dry run says how many records that is about.
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

/// Pause a group in all origins
///
/// Pauses a group in all origins within a second.
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

/// Let a group go on in all origins
///
/// Lets a paused group go on in all origins.
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

/// Which page of retries.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RetryPage {
    /// A position.
    after: Option<u64>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// What a group tries again, and what waits behind it
///
/// What a group tries again, and what waits behind it, page by page.
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

/// Make all that a group tries again due now
///
/// Makes all that a group tries again due at once.
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

/// Which page of customers and visitors.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UnitPage {
    /// A unit.
    after: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Who is to be computed anew in a group
///
/// The customers whose data a group computes anew, page by page.
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
        .ok_or_else(|| UNKNOWN_GROUP.because("there is no such group"))
}

async fn shown(events: &Events, group: &GroupHandle) -> Result<GroupView, Problem> {
    let standing = standing(events, group).await?;
    let (store, now_ms) = (events.store(), events.now_ms());
    let oldest_ms = standing.lag.oldest_ms.into_iter();
    let oldest_ms = oldest_ms.chain(standing.retries.oldest_ms).min();
    let position = |(source, position): (Source, Option<Position>)| PositionView {
        source: source.to_string(),
        position,
    };
    Ok(GroupView {
        name: group.name.clone(),
        state: standing.said.state,
        error: standing.said.error,
        topics: group.topics.clone(),
        positions: standing.positions.into_iter().map(position).collect(),
        lag_bytes: standing.lag.bytes,
        lag_records: standing.lag.records,
        oldest_age_ms: oldest_ms.map(|oldest_ms| now_ms.saturating_sub(oldest_ms)),
        retries: standing.retries.count,
        dead_letters: store.letters().dead_letter_count(&group.name).await?,
        compensations: store.replays().compensation_count(&group.name).await?,
    })
}

/// How a group stands.
#[derive(Serialize, ToSchema)]
#[schema(as = EventGroup)]
pub(super) struct GroupView {
    /// Its name.
    name: String,
    /// What it does.
    state: GroupState,
    /// What went wrong last; null: nothing.
    #[schema(required)]
    error: Option<String>,
    /// The topics that it handles; null: all.
    #[schema(required)]
    topics: Option<std::collections::BTreeSet<String>>,
    /// How far it is in each origin's log.
    positions: Vec<PositionView>,
    /// How much of the log is before it, in bytes; null: not known.
    #[schema(required)]
    lag_bytes: Option<u64>,
    /// How many records are before it; null: not known.
    #[schema(required)]
    lag_records: Option<u64>,
    /// How old the first event is that it has not handled, in milliseconds; null: there is none.
    #[schema(required)]
    oldest_age_ms: Option<u64>,
    /// How many events it tries again.
    retries: u64,
    /// How many dead letters it has.
    dead_letters: u64,
    /// How many customers and visitors it computes again.
    compensations: u64,
}

/// How far a group is in a log.
#[derive(Serialize, ToSchema)]
#[schema(as = EventGroupPosition)]
struct PositionView {
    /// Which log.
    source: String,
    /// Where in the log; null: it has not begun.
    #[schema(required)]
    position: Option<u64>,
}

/// All groups.
#[derive(Serialize, ToSchema)]
pub(super) struct EventGroups {
    /// All groups.
    groups: Vec<GroupView>,
}

/// Where a group went, or would go.
#[derive(Serialize, ToSchema)]
#[schema(as = Sought)]
pub(super) struct SeekAnswer {
    /// The group's name.
    group: String,
    /// Whether nothing was moved.
    dry_run: bool,
    /// One for each log.
    sources: Vec<Sought>,
}

/// Whether a group is paused.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupPaused {
    /// The group's name.
    group: String,
    /// Whether it is paused.
    paused: bool,
}

/// A page of events that are tried again.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupRetries {
    /// What is tried again, and what waits behind it.
    retries: Vec<RetryView>,
}

/// An event that is tried again.
#[derive(Serialize, ToSchema)]
#[schema(as = GroupRetriesRetry)]
struct RetryView {
    /// Where in the log.
    position: u64,
    /// How often it was tried.
    tries: u32,
    /// When it is tried next, in milliseconds since the Unix epoch; null: it waits behind an earlier one.
    #[schema(required)]
    due_ms: Option<u64>,
    /// What went wrong last; empty: nothing.
    error: String,
    /// The event; null: it is of another version.
    #[schema(required)]
    event: Option<Envelope>,
}

/// How much is due.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupDue {
    /// The group's name.
    group: String,
    /// How many are due now.
    due: u64,
}

/// A page of customers and visitors that are computed again.
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
