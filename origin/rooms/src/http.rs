//! Admin routes of waiting rooms.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Serialize;
use tracing::warn;
use utoipa::ToSchema;
use utoipa_axum::routes;
use weir_room::redis::room_look::RoomReading;
use weir_room::setting::{ACTIVE_MAX, PER_MINUTE_MAX};
use weir_room::state::wait_percentile;
use weir_room::{Mode, NUMBER_MAX, RoomName, Setting};

use super::Rooms;
use super::model::RoomFields;
use super::store::SetError;
use weir_origin_core::access::scope::Area;
use weir_origin_core::access::tenancy::{ResourceKind, UNKNOWN_ROOM};
use weir_origin_core::access::{AuditDetail, Caller, TENANT_LIMIT, over_limit};
use weir_origin_core::api::{Api, RouteRules};
use weir_origin_core::clock::now_ms;
use weir_origin_core::gateways::{self, Item, Report};
use weir_origin_core::http::refusal::REDIS_UNAVAILABLE;
use weir_origin_core::http::{Problem, Refusal, TypedBody, ValidationError};
use weir_origin_core::redis::CallError;

/// Refusal of an invalid room setting.
const INVALID_ROOM: Refusal = Refusal::invalid(
    "invalid_room",
    "Invalid",
    "The room's name or setting is invalid; `errors` lists all mistakes",
);

/// A waiting room.
#[derive(Serialize, ToSchema)]
#[schema(as = Room)]
struct RoomView {
    /// Its name.
    name: String,
    /// null: the setting in the gateways' configuration applies.
    #[schema(required)]
    setting: Option<SettingView>,
    /// null: no gateway has reported this room since Redis started.
    #[schema(required)]
    queue: Option<QueueView>,
    /// The setting in the gateways' configuration; null: no gateway has reported it in the last two minutes.
    #[schema(required)]
    configured: Option<ConfiguredView>,
}

/// Setting in the configuration of gateways.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = ConfiguredRoom)]
struct ConfiguredView {
    /// Number of gateways with this room.
    gateways: usize,
    #[serde(flatten)]
    fields: RoomFields,
}

/// Setting of a waiting room.
#[derive(Serialize, ToSchema)]
#[schema(as = RoomSetting)]
struct SettingView {
    /// Increases with each change.
    version: u64,
    #[serde(flatten)]
    fields: RoomFields,
}

/// The queue of a waiting room.
#[derive(Serialize, ToSchema)]
#[schema(as = RoomQueue)]
struct QueueView {
    /// Waiting visitors.
    waiting: u64,
    /// Visitors called so far.
    called: u64,
    /// Active sessions.
    inside: u64,
    /// Visitors who have joined so far.
    joined: u64,
    /// Visitors who have entered so far.
    entered: u64,
    /// Visitors who entered in the last minute.
    entered_last_minute: u64,
    /// No-shows: called visitors who did not enter in time.
    dropped_out: u64,
    /// Waiting times of visitors who entered.
    wait_ms: WaitsView,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    draw: Option<DrawView>,
}

/// Waiting times in milliseconds; null: no visitor entered, or longer than two hours.
#[derive(Serialize, ToSchema)]
#[schema(as = RoomQueueWaitMs)]
struct WaitsView {
    /// Median.
    #[schema(required)]
    p50: Option<u64>,
    /// 90th percentile.
    #[schema(required)]
    p90: Option<u64>,
    /// 99th percentile.
    #[schema(required)]
    p99: Option<u64>,
}

/// The random order at the opening. The seed is public after the draw, its SHA-256 before.
#[derive(Serialize, ToSchema)]
#[schema(as = RoomQueueDraw)]
struct DrawView {
    /// Opening time, in milliseconds since the Unix epoch.
    opens_at_ms: u64,
    /// The SHA-256 of the seed.
    commitment: String,
    /// The seed, after the draw.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    seed: Option<String>,
    /// First drawn position.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    first_place: Option<u64>,
    /// Last drawn position.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_place: Option<u64>,
}

/// All waiting rooms.
#[derive(Serialize, ToSchema)]
#[schema(as = Rooms)]
struct RoomList {
    /// The rooms.
    rooms: Vec<RoomView>,
}

/// Selects a room.
#[derive(utoipa::IntoParams)]
#[into_params(names("room"), parameter_in = Path)]
struct RoomParam(
    /// The name of the room: 1 to 48 of a-z, 0-9 and -.
    #[param(pattern = "^[a-z0-9-]{1,48}$")]
    #[expect(dead_code, reason = "describes a parameter")]
    String,
);

/// The admin routes.
pub fn admin() -> Api<Rooms> {
    let own = RouteRules::for_resource(ResourceKind::Room);
    Api::admin(Area::Rooms)
        .route(
            routes!(list),
            RouteRules::HEEDS.refuses(&[REDIS_UNAVAILABLE]),
        )
        .route(
            routes!(one),
            own.refuses(&[REDIS_UNAVAILABLE, UNKNOWN_ROOM, INVALID_ROOM]),
        )
        .route(
            routes!(set),
            own.refuses(&[INVALID_ROOM, TENANT_LIMIT, REDIS_UNAVAILABLE]),
        )
        .route(
            routes!(clear),
            own.refuses(&[INVALID_ROOM, REDIS_UNAVAILABLE]),
        )
}

/// List all waiting rooms with settings, and the rooms that gateways report
#[utoipa::path(
    get,
    path = "/rooms",
    operation_id = "listRooms",
    responses((status = 200, description = "The waiting rooms", body = RoomList))
)]
async fn list(State(rooms): State<Rooms>, caller: Caller) -> Result<Json<RoomList>, Problem> {
    let reports = rooms.reports().await.map_err(no_redis)?;
    let reported = configured(&reports);
    let own = |name: &&RoomName| {
        caller
            .tenant()
            .is_none_or(|tenant| tenant.name.owns(name.as_str()))
    };
    let names = reported.keys().filter(own).cloned();
    let mut all: BTreeMap<_, _> = names.map(|name| (name, None)).collect();
    let settings = rooms.store().all(&caller.names()).await?;
    all.extend(
        settings
            .into_iter()
            .map(|(name, setting)| (name, Some(setting))),
    );
    let mut views = Vec::new();
    for (room, setting) in all {
        let look = rooms.look(&room).await.map_err(no_redis)?;
        views.push(rooms.view(&room, setting, look, &reported));
    }
    Ok(Json(RoomList { rooms: views }))
}

/// Get a waiting room's setting and queue
#[utoipa::path(
    get,
    path = "/rooms/{room}",
    operation_id = "getRoom",
    params(RoomParam),
    responses((status = 200, description = "The waiting room", body = RoomView))
)]
async fn one(
    State(rooms): State<Rooms>,
    Path(room): Path<String>,
) -> Result<Json<RoomView>, Problem> {
    let room = name(&room)?;
    let setting = rooms.store().setting(&room).await?;
    let look = rooms.look(&room).await.map_err(no_redis)?;
    let reports = rooms.reports().await.map_err(no_redis)?;
    let reported = configured(&reports);
    if setting.is_none() && look.is_none() && !reported.contains_key(&room) {
        let detail = "the room has no settings, and no gateway has it";
        return Err(UNKNOWN_ROOM.because(detail));
    }
    Ok(Json(rooms.view(&room, setting, look, &reported)))
}

/// Open, pause, drain, close or bypass a waiting room
///
/// Also sets the admission rate and the limit of active sessions. Gateways follow within a second.
#[utoipa::path(
    put,
    path = "/rooms/{room}",
    operation_id = "setRoom",
    params(RoomParam),
    request_body = RoomFields,
    responses((status = 200, description = "The setting is stored", body = RoomView))
)]
async fn set(
    State(rooms): State<Rooms>,
    Path(room): Path<String>,
    TypedBody(fields): TypedBody<RoomFields>,
) -> Result<(Extension<AuditDetail>, Json<RoomView>), Problem> {
    let room = name(&room)?;
    check(&fields)?;
    let before = rooms.store().setting(&room).await?.map(RoomFields::from);
    let detail = AuditDetail::between(&before, &fields);
    let set = rooms.store().set(&room, &fields, now_ms()).await;
    let setting = set.map_err(not_set)?;
    // If Redis does not answer now, the next round of the background job publishes the setting.
    if let Err(error) = rooms.publish(&room, &setting).await {
        warn!(%error, room = room.as_str(), "cannot write a room setting to Redis; retrying");
    }
    let look = rooms.look(&room).await.ok().flatten();
    let reports = rooms.reports().await.unwrap_or_default();
    let view = rooms.view(&room, Some(setting), look, &configured(&reports));
    Ok((Extension(detail), Json(view)))
}

/// Delete a waiting room's setting: the gateways' configuration applies again
#[utoipa::path(
    delete,
    path = "/rooms/{room}",
    operation_id = "clearRoom",
    params(RoomParam),
    responses((status = 204, description = "The room has no setting"))
)]
async fn clear(
    State(rooms): State<Rooms>,
    Path(room): Path<String>,
) -> Result<(StatusCode, Extension<AuditDetail>), Problem> {
    let room = name(&room)?;
    let before = rooms.store().setting(&room).await?;
    let before = before.map_or("as configured", |setting| setting.mode.label());
    rooms.store().delete(&room).await?;
    rooms.unpublish(&room).await.map_err(no_redis)?;
    tokio::spawn(rooms.unpublish_later(room));
    let detail = AuditDetail(format!("mode: {before} to as configured"));
    Ok((StatusCode::NO_CONTENT, Extension(detail)))
}

fn check(fields: &RoomFields) -> Result<(), Problem> {
    let limits = [
        ("per_minute", fields.per_minute, PER_MINUTE_MAX),
        ("active_max", fields.active_max, ACTIVE_MAX),
        ("opens_at_ms", fields.opens_at_ms, NUMBER_MAX - 1),
    ];
    let wrong = limits.into_iter().filter(|(_, value, max)| value > max);
    let validation_errors: Vec<ValidationError> = wrong
        .map(|(field, value, max)| ValidationError {
            pointer: format!("/{field}"),
            detail: format!("{field}: must be 0 to {max}, is {value}"),
        })
        .collect();
    if validation_errors.is_empty() {
        return Ok(());
    }
    let details: Vec<&str> = validation_errors
        .iter()
        .map(|fault| fault.detail.as_str())
        .collect();
    let problem = INVALID_ROOM.because(details.join("; "));
    Err(problem.with_validation_errors(validation_errors))
}

impl Rooms {
    fn view(
        &self,
        room: &RoomName,
        setting: Option<Setting>,
        look: Option<RoomReading>,
        reported: &BTreeMap<RoomName, ConfiguredView>,
    ) -> RoomView {
        let setting = setting.map(|setting| SettingView {
            version: setting.version,
            fields: setting.into(),
        });
        let queue = look.map(|look| QueueView {
            waiting: look.seq.saturating_sub(look.head),
            called: look.called,
            inside: look.inside,
            joined: look.joined,
            entered: look.entered,
            entered_last_minute: look.entered_last_minute,
            dropped_out: look.missed,
            wait_ms: WaitsView {
                p50: wait_percentile(&look.waits, 50),
                p90: wait_percentile(&look.waits, 90),
                p99: wait_percentile(&look.waits, 99),
            },
            draw: draw(&look),
        });
        RoomView {
            name: room.as_str().to_owned(),
            setting,
            queue,
            configured: reported.get(room).cloned(),
        }
    }
}

/// The rooms that gateways report.
fn configured(reports: &[Report]) -> BTreeMap<RoomName, ConfiguredView> {
    let rooms = gateways::items(reports, "room").into_iter();
    let room = |(name, (item, gateways)): (&str, (&Item, usize))| {
        let number = |name: &str| item.numbers.get(name).copied().unwrap_or_default();
        let fields = RoomFields {
            mode: Mode::from_label(&item.text)?,
            per_minute: number("per_minute"),
            active_max: number("active_max"),
            opens_at_ms: number("opens_at_ms"),
        };
        Some((RoomName::new(name)?, ConfiguredView { gateways, fields }))
    };
    rooms.filter_map(room).collect()
}

fn draw(look: &RoomReading) -> Option<DrawView> {
    let seed = look.seed?;
    let is_made = look.drew == look.seed_of;
    Some(DrawView {
        opens_at_ms: look.seed_of,
        commitment: seed.commitment(),
        seed: is_made.then(|| seed.to_hex()),
        first_place: is_made.then_some(look.base + 1),
        last_place: is_made.then_some(look.drawn),
    })
}

fn name(text: &str) -> Result<RoomName, Problem> {
    RoomName::new(text).ok_or_else(|| {
        let detail = "room: must be 1 to 48 of a-z, 0-9 and -";
        INVALID_ROOM.because(detail)
    })
}

fn not_set(failure: SetError) -> Problem {
    match failure {
        SetError::Sql(error) => error.into(),
        SetError::Over(over) => over_limit(over),
    }
}

fn no_redis(error: CallError) -> Problem {
    warn!(%error, "cannot read a waiting room from Redis");
    Problem::redis()
}
