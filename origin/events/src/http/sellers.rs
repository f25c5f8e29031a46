//! What sellers ask: the profile of a customer, trends, funnels.

use axum::Json;
use axum::extract::Path;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_base::duration::Duration;
use weir_event::name::{CustomerId, EventType};

use crate::Events;
use crate::funnels::{Funnel, STEPS_MAX};
use crate::store::{TrendFilter, TypeSummary, TypeTrend};
use weir_origin_core::http::{Problem, ReadQuery};

/// Maximum number of events that a profile counts.
const PROFILE_EVENTS_MAX: u32 = 10_000;

const HOUR_MS: u64 = 60 * 60 * 1_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Maximum length of a trend by hour, in milliseconds.
const BY_HOUR_MS_MAX: u64 = 31 * DAY_MS;

/// Maximum length of a trend by day, in milliseconds.
const BY_DAY_MS_MAX: u64 = 366 * DAY_MS;

/// Maximum time of a funnel's first step, in milliseconds.
const FUNNEL_MS_MAX: u64 = 92 * DAY_MS;

/// Maximum time from the first to the last step of a funnel, in milliseconds.
const FUNNEL_WITHIN_MS_MAX: u64 = 31 * DAY_MS;

/// A customer's events in numbers.
#[derive(Serialize, ToSchema)]
#[schema(as = CustomerProfile)]
pub(super) struct ProfileView {
    /// The customer.
    customer: String,
    /// Time of the first stored event, in milliseconds since the Unix epoch; null: there is none.
    #[schema(required)]
    first_ms: Option<u64>,
    /// Time of the last event.
    #[schema(required)]
    last_ms: Option<u64>,
    /// Number of events.
    events: u64,
    /// false: only the latest 10,000 events were counted.
    complete: bool,
    /// Events by type, the most frequent type first.
    types: Vec<TypeView>,
    /// Segments that the customer belongs to, by name.
    segments: Vec<SegmentOfView>,
}

/// A segment of a customer.
#[derive(Serialize, ToSchema)]
#[schema(as = CustomerProfileSegment)]
struct SegmentOfView {
    /// The segment's name.
    name: String,
    /// Time of the evaluation that found the customer first, in milliseconds since the Unix epoch.
    since_ms: u64,
}

/// The events of one type.
#[derive(Serialize, ToSchema)]
#[schema(as = CustomerProfileType)]
struct TypeView {
    /// The type.
    #[serde(rename = "type")]
    event_type: String,
    /// Number of events.
    events: u64,
    /// Time of the first of them, in milliseconds since the Unix epoch.
    first_ms: u64,
    /// Time of the last of them.
    last_ms: u64,
}

impl From<TypeSummary> for TypeView {
    fn from(summary: TypeSummary) -> Self {
        Self {
            event_type: summary.event_type,
            events: summary.events,
            first_ms: summary.first_ms,
            last_ms: summary.last_ms,
        }
    }
}

/// Get a customer's first and last time, the number of events by type, and the segments
#[utoipa::path(
    get,
    path = "/customers/{id}/profile",
    operation_id = "getCustomerProfile",
    params(("id" = String, Path, description = "The customer's id.", max_length = 128)),
    responses((status = 200, description = "The profile", body = ProfileView)),
)]
pub(super) async fn profile(
    events: Events,
    Path(id): Path<String>,
) -> Result<Json<ProfileView>, Problem> {
    let store = events.store();
    let types = store.customer_types(&id, PROFILE_EVENTS_MAX).await?;
    let count = types.iter().map(|one| one.events).sum();
    let segments = store.segments().of_customer(&id).await?.into_iter();
    let segments = segments.map(|(name, since_ms)| SegmentOfView { name, since_ms });
    Ok(Json(ProfileView {
        first_ms: store.first_ms(&id).await?,
        last_ms: types.iter().map(|one| one.last_ms).max(),
        events: count,
        complete: count < u64::from(PROFILE_EVENTS_MAX),
        types: types.into_iter().map(TypeView::from).collect(),
        segments: segments.collect(),
        customer: id,
    }))
}

/// Length of a trend's steps.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TrendStep)]
#[serde(rename_all = "snake_case")]
enum Step {
    #[default]
    Hour,
    Day,
}

impl Step {
    /// Length of a step and of the longest trend, and the default length, in milliseconds.
    const fn times(self) -> (u64, u64, u64) {
        match self {
            Self::Hour => (HOUR_MS, BY_HOUR_MS_MAX, DAY_MS),
            Self::Day => (DAY_MS, BY_DAY_MS_MAX, 31 * DAY_MS),
        }
    }
}

/// Selects a trend.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TrendQuery {
    /// Only events of this type; default: the 50 most frequent types.
    #[serde(rename = "type")]
    #[param(max_length = 64)]
    event_type: Option<String>,
    /// Steps of an hour or of a day in UTC.
    #[serde(default)]
    #[param(required = false, inline)]
    by: Step,
    /// From the step of this time, in milliseconds since the Unix epoch. Default: the last 24 hours, or 31 days.
    from_ms: Option<u64>,
    /// To the step of this time. Default: now. At most 31 days by hour, or 366 days by day.
    to_ms: Option<u64>,
}

/// The number of stored events over time.
#[derive(Serialize, ToSchema)]
#[schema(as = EventTrend)]
pub(super) struct TrendView {
    /// Start of the first step, in milliseconds since the Unix epoch.
    from_ms: u64,
    /// End of the last step.
    to_ms: u64,
    /// Length of a step, in milliseconds.
    step_ms: u64,
    /// The most frequent type first.
    types: Vec<TypeTrendView>,
    /// false: there are more than 50 types.
    complete: bool,
}

/// The events of one type over time.
#[derive(Serialize, ToSchema)]
#[schema(as = EventTrendType)]
struct TypeTrendView {
    /// The type.
    #[serde(rename = "type")]
    event_type: String,
    /// Number of events.
    events: u64,
    /// Steps with events, oldest first.
    points: Vec<PointView>,
}

/// The events of a step.
#[derive(Serialize, ToSchema)]
#[schema(as = EventTrendPoint)]
struct PointView {
    /// Start of the step, in milliseconds since the Unix epoch.
    at_ms: u64,
    /// Number of events.
    events: u64,
}

impl From<TypeTrend> for TypeTrendView {
    fn from(trend: TypeTrend) -> Self {
        let point = |(at_ms, events)| PointView { at_ms, events };
        Self {
            event_type: trend.event_type,
            events: trend.events,
            points: trend.points.into_iter().map(point).collect(),
        }
    }
}

/// Count stored events by type and hour or day
///
/// Events count at their own time, `at_ms`. Counts remain for 400 days, also after the events have expired.
#[utoipa::path(
    get,
    path = "/events/trends",
    operation_id = "getEventTrends",
    params(TrendQuery),
    responses((status = 200, description = "The counts", body = TrendView)),
)]
pub(super) async fn trends(
    events: Events,
    ReadQuery(query): ReadQuery<TrendQuery>,
) -> Result<Json<TrendView>, Problem> {
    let (step_ms, length_ms_max, length_ms) = query.by.times();
    let last_ms = query.to_ms.unwrap_or_else(|| events.now_ms());
    let to_ms = (last_ms - last_ms % step_ms).saturating_add(step_ms);
    let from_ms = query.from_ms.unwrap_or(to_ms.saturating_sub(length_ms));
    let from_ms = from_ms - from_ms % step_ms;
    if from_ms >= to_ms || to_ms - from_ms > length_ms_max {
        let days = length_ms_max / DAY_MS;
        let detail = format!("from_ms: must be before to_ms, by at most {days} days");
        return Err(Problem::invalid_query(detail));
    }
    let filter = TrendFilter {
        event_type: query.event_type.as_deref(),
        from_ms,
        to_ms,
        step_ms,
    };
    let trend = events.store().counts().trend(filter).await?;
    Ok(Json(TrendView {
        from_ms,
        to_ms,
        step_ms,
        types: trend.types.into_iter().map(TypeTrendView::from).collect(),
        complete: trend.is_complete,
    }))
}

/// Selects a funnel.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FunnelQuery {
    /// Two or three different types, separated by commas, such as `view,cart,order`.
    #[param(max_length = 194)]
    types: String,
    /// Maximum time from the first to the last step, such as `1d`; at most 31 days.
    within: String,
    /// The first step is from this time on, in milliseconds since the Unix epoch. Default: 7 days before `to_ms`.
    from_ms: Option<u64>,
    /// The first step is before this time. Default: now. At most 92 days after `from_ms`.
    to_ms: Option<u64>,
    /// The `next_page` of the previous answer.
    #[param(max_length = 128)]
    page: Option<String>,
}

/// A page of a funnel.
#[derive(Serialize, ToSchema)]
#[schema(as = EventFunnel)]
pub(super) struct FunnelView {
    /// The steps, in their order.
    steps: Vec<FunnelStepView>,
    /// false: a customer has too many events, and not all of them were read.
    complete: bool,
    /// `page` of the next page; null: this is the last page.
    #[schema(required)]
    next_page: Option<String>,
}

/// A step of a funnel.
#[derive(Serialize, ToSchema)]
#[schema(as = EventFunnelStep)]
struct FunnelStepView {
    /// The type.
    #[serde(rename = "type")]
    event_type: String,
    /// Number of customers on this page who completed it.
    customers: u64,
}

/// Count the customers who complete two or three steps in order
///
/// Each customer is on one page, so the counts of all pages add up.
#[utoipa::path(
    get,
    path = "/events/funnels",
    operation_id = "getEventFunnel",
    params(FunnelQuery),
    responses((status = 200, description = "A page of the counts", body = FunnelView)),
)]
pub(super) async fn funnel(
    events: Events,
    ReadQuery(query): ReadQuery<FunnelQuery>,
) -> Result<Json<FunnelView>, Problem> {
    let steps = parse_steps(&query.types)?;
    let to_ms = query.to_ms.unwrap_or_else(|| events.now_ms());
    let from_ms = query.from_ms.unwrap_or(to_ms.saturating_sub(7 * DAY_MS));
    if from_ms >= to_ms || to_ms - from_ms > FUNNEL_MS_MAX {
        let detail = "from_ms: must be before to_ms, by at most 92 days";
        return Err(Problem::invalid_query(detail));
    }
    let after = query.page.as_deref().unwrap_or_default();
    if !after.is_empty() && CustomerId::new(after).is_err() {
        let detail = "page: must be the `next_page` of an earlier page";
        return Err(Problem::invalid_query(detail));
    }
    let funnel = Funnel {
        steps: &steps,
        from_ms,
        to_ms,
        within_ms: parse_within(&query.within)?,
    };
    let page = funnel.page(events.store().funnels(), after).await?;
    let steps = steps.iter().zip(page.customers);
    let step = |(event_type, customers): (&&str, u64)| FunnelStepView {
        event_type: (*event_type).to_owned(),
        customers,
    };
    Ok(Json(FunnelView {
        steps: steps.map(step).collect(),
        complete: page.is_complete,
        next_page: page.next,
    }))
}

fn parse_steps(text: &str) -> Result<Vec<&str>, Problem> {
    let steps: Vec<&str> = text.split(',').collect();
    let is_distinct = |(at, step): (usize, &&str)| !steps.iter().take(at).any(|one| one == step);
    let is_sound = (2..=STEPS_MAX).contains(&steps.len())
        && steps.iter().all(|step| EventType::new(step).is_ok())
        && steps.iter().enumerate().all(is_distinct);
    match is_sound {
        true => Ok(steps),
        false => {
            let detail = "types: must be two or three different types, such as view,cart,order";
            Err(Problem::invalid_query(detail))
        }
    }
}

fn parse_within(text: &str) -> Result<u64, Problem> {
    let duration = Duration::read(text).map(|duration| duration.ms);
    let duration = duration.filter(|ms| (1..=FUNNEL_WITHIN_MS_MAX).contains(ms));
    let problem = || {
        let detail = "within: must be a duration of at most 31 days, such as 30m or 1d";
        Problem::invalid_query(detail)
    };
    duration.ok_or_else(problem)
}
