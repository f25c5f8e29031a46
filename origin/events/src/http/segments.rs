//! The routes of segments.

use axum::Json;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_event::name::EventType;

use super::page_len;
use super::refusals::{
    INVALID_SEGMENT, SEGMENT_BEING_DELETED, SEGMENT_UNREADABLE, TOO_MANY_SEGMENTS, UNKNOWN_SEGMENT,
};
use crate::Events;
use crate::model::segments::{SEGMENTS_MAX, SegmentSpec};
use crate::store::{EventStore, Member, SegmentPut, StoredSegment};
use weir_origin_core::http::csv::Csv;
use weir_origin_core::http::{ChunkSender, Problem, ReadQuery, TypedBody, streamed};
use weir_origin_core::sql::SqlError;

/// Number of members per chunk of an export.
const EXPORT_PAGE: u32 = 1_000;

/// A segment.
#[derive(Serialize, ToSchema)]
#[schema(as = Segment)]
pub(super) struct SegmentView {
    /// Its name.
    name: String,
    /// Increases with each change.
    #[schema(minimum = 1)]
    version: u64,
    /// Time of the last change, in milliseconds since the Unix epoch.
    changed_at_ms: u64,
    /// Number of members at the last evaluation.
    members: u64,
    /// false: the segment has more than 1,000,000 members, and only these are stored.
    complete: bool,
    /// Time of the last evaluation, in milliseconds since the Unix epoch; null: none yet.
    #[schema(required)]
    evaluated_ms: Option<u64>,
    #[serde(flatten)]
    spec: SegmentSpec,
}

/// All segments.
#[derive(Serialize, ToSchema)]
#[schema(as = Segments)]
pub(super) struct SegmentsView {
    /// All segments, by name.
    segments: Vec<SegmentView>,
}

/// A member of a segment.
#[derive(Serialize, ToSchema)]
#[schema(as = SegmentMember)]
struct MemberView {
    /// The customer.
    customer: String,
    /// Time of the evaluation that found the customer first, in milliseconds since the Unix epoch.
    since_ms: u64,
}

/// A page of members.
#[derive(Serialize, ToSchema)]
#[schema(as = SegmentMembers)]
pub(super) struct MembersView {
    /// The members, by id.
    members: Vec<MemberView>,
    /// `page` of the next page; null: this is the last page.
    #[schema(required)]
    next_page: Option<String>,
}

/// Selects members.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_page` of the previous answer.
    page: Option<String>,
}

/// List all segments
#[utoipa::path(
    get,
    path = "/events/segments",
    operation_id = "listSegments",
    responses((status = 200, description = "All", body = SegmentsView)),
)]
pub(super) async fn list(events: Events) -> Result<Json<SegmentsView>, Problem> {
    let segments = events.store().segments().segments().await?;
    let segments = segments.into_iter().map(view);
    let segments = segments.collect::<Result<_, _>>()?;
    Ok(Json(SegmentsView { segments }))
}

/// Get a segment
#[utoipa::path(
    get,
    path = "/events/segments/{name}",
    operation_id = "getSegment",
    params(("name" = String, Path, description = "The name of the segment.", max_length = 64)),
    responses((status = 200, description = "The current state", body = SegmentView)),
)]
pub(super) async fn get(
    events: Events,
    Path(name): Path<String>,
) -> Result<Json<SegmentView>, Problem> {
    view(find(events.store(), &name).await?).map(Json)
}

/// Create or change a segment
///
/// Its members are evaluated soon, and then every hour.
#[utoipa::path(
    put,
    path = "/events/segments/{name}",
    operation_id = "setSegment",
    params(("name" = String, Path, description = "The name of the segment: 1 to 64 of a-z, 0-9, _, . and -.", max_length = 64)),
    request_body = SegmentSpec,
    responses((status = 200, description = "The new state", body = SegmentView)),
)]
pub(super) async fn put(
    events: Events,
    Path(name): Path<String>,
    TypedBody(spec): TypedBody<SegmentSpec>,
) -> Result<Json<SegmentView>, Problem> {
    let invalid = |detail: String| INVALID_SEGMENT.because(detail);
    EventType::new(&name).map_err(|error| invalid(format!("name: {error}")))?;
    spec.check().map_err(|error| invalid(error.to_string()))?;
    let document = serde_json::to_string(&spec);
    let document = document.map_err(|error| invalid(error.to_string()))?;
    let store = events.store().segments();
    let put = store.put_segment(&name, &document, events.now_ms(), SEGMENTS_MAX);
    match put.await? {
        SegmentPut::Stored => {
            events.segment_changes().notify_one();
            view(find(events.store(), &name).await?).map(Json)
        }
        SegmentPut::Deleting => {
            let detail =
                "a deleted segment with this name still has members; try again in a minute";
            Err(SEGMENT_BEING_DELETED.because(detail))
        }
        SegmentPut::TooMany => {
            let detail = format!("the maximum of {SEGMENTS_MAX} segments is reached");
            Err(TOO_MANY_SEGMENTS.because(detail))
        }
    }
}

/// Delete a segment and its members; the members' events stay
#[utoipa::path(
    delete,
    path = "/events/segments/{name}",
    operation_id = "deleteSegment",
    params(("name" = String, Path, description = "The name of the segment.", max_length = 64)),
    responses((status = 204, description = "Deleted")),
)]
pub(super) async fn delete(
    events: Events,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    if !events.store().segments().delete_segment(&name).await? {
        return Err(unknown());
    }
    events.segment_changes().notify_one();
    Ok(StatusCode::NO_CONTENT)
}

/// Evaluate a segment soon, instead of at the next hourly evaluation
#[utoipa::path(
    post,
    path = "/events/segments/{name}/evaluate",
    operation_id = "evaluateSegment",
    params(("name" = String, Path, description = "The name of the segment.", max_length = 64)),
    responses((status = 202, description = "It is due")),
)]
pub(super) async fn evaluate(
    events: Events,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let store = events.store().segments();
    if !store.set_due(&name, events.now_ms()).await? {
        return Err(unknown());
    }
    events.segment_changes().notify_one();
    Ok(StatusCode::ACCEPTED)
}

/// List the members of a segment
#[utoipa::path(
    get,
    path = "/events/segments/{name}/members",
    operation_id = "listSegmentMembers",
    params(("name" = String, Path, description = "The name of the segment.", max_length = 64), Page),
    responses((status = 200, description = "A page", body = MembersView)),
)]
pub(super) async fn members(
    events: Events,
    Path(name): Path<String>,
    ReadQuery(page): ReadQuery<Page>,
) -> Result<Json<MembersView>, Problem> {
    let limit = page_len(page.limit)?;
    find(events.store(), &name).await?;
    let after = page.page.as_deref().unwrap_or_default();
    let store = events.store().segments();
    let members = store.members(&name, after, limit).await?;
    let last = members.last().filter(|_| members.len() == limit as usize);
    Ok(Json(MembersView {
        next_page: last.map(|last| last.customer.clone()),
        members: members.into_iter().map(MemberView::from).collect(),
    }))
}

/// Export the members of a segment as CSV, streamed
#[utoipa::path(
    get,
    path = "/events/segments/{name}/members.csv",
    operation_id = "exportSegmentMembers",
    params(("name" = String, Path, description = "The name of the segment.", max_length = 64)),
    responses((status = 200, description = "A table with the columns customer and since_ms", body = String, content_type = "text/csv")),
)]
pub(super) async fn csv(events: Events, Path(name): Path<String>) -> Result<Response, Problem> {
    find(events.store(), &name).await?;
    // Names contain no character that needs escaping.
    let file = format!("attachment; filename=\"{name}.csv\"");
    let store = events.store().clone();
    let body = streamed("segment export", |sender| async move {
        send_members(&store, &name, &sender).await
    });
    let headers = [
        (
            header::CONTENT_TYPE,
            "text/csv; charset=utf-8; header=present",
        ),
        (header::CONTENT_DISPOSITION, &file),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, body).into_response())
}

/// Sends all members; ends early when the client disconnects.
async fn send_members(store: &EventStore, name: &str, to: &ChunkSender) -> Result<(), SqlError> {
    let mut csv = Csv::new(&["customer", "since_ms"]);
    let mut after = String::new();
    loop {
        let page = store.segments().members(name, &after, EXPORT_PAGE).await?;
        for member in &page {
            csv.line(&[&member.customer, &member.since_ms.to_string()]);
        }
        let chunk = std::mem::take(&mut csv).finish();
        if !chunk.is_empty() && to.send(Ok(chunk.into())).await.is_err() {
            return Ok(());
        }
        match page.into_iter().next_back() {
            Some(last) => after = last.customer,
            None => return Ok(()),
        }
    }
}

impl From<Member> for MemberView {
    fn from(member: Member) -> Self {
        Self {
            customer: member.customer,
            since_ms: member.since_ms,
        }
    }
}

/// A segment that is not deleted.
async fn find(store: &EventStore, name: &str) -> Result<StoredSegment, Problem> {
    let segment = store.segments().segment(name).await?;
    segment
        .filter(|segment| !segment.is_deleted)
        .ok_or_else(unknown)
}

fn unknown() -> Problem {
    UNKNOWN_SEGMENT.because("segment not found")
}

fn view(segment: StoredSegment) -> Result<SegmentView, Problem> {
    let spec = serde_json::from_str(&segment.document).map_err(|error| {
        tracing::error!(%error, segment = segment.name, "cannot read a segment in SQL");
        SEGMENT_UNREADABLE.because("a segment in SQL has an unsupported version")
    })?;
    Ok(SegmentView {
        name: segment.name,
        version: segment.version,
        changed_at_ms: segment.changed_at_ms,
        members: segment.members,
        complete: segment.is_complete,
        evaluated_ms: segment.evaluated_ms,
        spec,
    })
}
