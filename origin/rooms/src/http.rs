//! The routes of waiting rooms, for operators.

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tracing::warn;
use weir_room::redis::room_look::Look;
use weir_room::setting::{ACTIVE_MAX, PER_MINUTE_MAX};
use weir_room::state::wait_percentile;
use weir_room::{NUMBER_MAX, RoomName, Setting};

use super::Rooms;
use super::model::RoomFields;
use super::store::SetError;
use weir_origin_core::access::{Caller, over_limit};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{Fault, JsonBody, Problem};
use weir_origin_core::redis::CallError;

/// What is set for a room, and how it is.
#[derive(Serialize)]
struct RoomView {
    name: String,
    /// `None`: what stands in the gateways' configuration.
    setting: Option<SettingView>,
    /// `None`: no gateway has looked at this room since Redis is there.
    queue: Option<QueueView>,
}

#[derive(Serialize)]
struct SettingView {
    version: u64,
    #[serde(flatten)]
    fields: RoomFields,
}

#[derive(Serialize)]
struct QueueView {
    waiting: u64,
    called: u64,
    inside: u64,
    joined: u64,
    entered: u64,
    entered_last_minute: u64,
    dropped_out: u64,
    wait_ms: WaitsView,
    #[serde(skip_serializing_if = "Option::is_none")]
    draw: Option<DrawView>,
}

/// Of those who entered, not more than so many milliseconds; `None`: nobody entered, or more than two hours.
#[derive(Serialize)]
struct WaitsView {
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
}

/// The draw at an opening. The seed is told when it was made, its digest before.
#[derive(Serialize)]
struct DrawView {
    opens_at_ms: u64,
    commitment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_place: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_place: Option<u64>,
}

#[derive(Serialize)]
struct RoomList {
    rooms: Vec<RoomView>,
}

/// The routes for operators.
///
/// - `GET /rooms`: all for which something is set
/// - `GET` and `PUT /rooms/{room}`
pub fn admin(rooms: Rooms) -> Router {
    Router::new()
        .route("/rooms", get(list))
        .route("/rooms/{room}", get(one).put(set))
        .with_state(rooms)
}

async fn list(State(rooms): State<Rooms>, caller: Caller) -> Result<Json<RoomList>, Problem> {
    let mut views = Vec::new();
    for (room, setting) in rooms.store().all(&caller.names()).await? {
        let look = rooms.look(&room).await.map_err(no_redis)?;
        views.push(rooms.view(&room, Some(setting), look));
    }
    Ok(Json(RoomList { rooms: views }))
}

async fn one(
    State(rooms): State<Rooms>,
    Path(room): Path<String>,
) -> Result<Json<RoomView>, Problem> {
    let room = name(&room)?;
    let setting = rooms.store().setting(&room).await?;
    let look = rooms.look(&room).await.map_err(no_redis)?;
    if setting.is_none() && look.is_none() {
        let detail = "nothing is set for this room, and no gateway has it";
        return Err(Problem::not_found("unknown_room", "Unknown room", detail));
    }
    Ok(Json(rooms.view(&room, setting, look)))
}

async fn set(
    State(rooms): State<Rooms>,
    Path(room): Path<String>,
    JsonBody(fields): JsonBody<RoomFields>,
) -> Result<Json<RoomView>, Problem> {
    let room = name(&room)?;
    check(&fields)?;
    let set = rooms.store().set(&room, &fields, now_ms()).await;
    let setting = set.map_err(not_set)?;
    // If Redis is away now, the next round puts it there.
    if let Err(error) = rooms.publish(&room, &setting).await {
        warn!(%error, room = room.as_str(), "a setting is not in Redis yet");
    }
    let look = rooms.look(&room).await.ok().flatten();
    Ok(Json(rooms.view(&room, Some(setting), look)))
}

fn check(fields: &RoomFields) -> Result<(), Problem> {
    let limits = [
        ("per_minute", fields.per_minute, PER_MINUTE_MAX),
        ("active_max", fields.active_max, ACTIVE_MAX),
        ("opens_at_ms", fields.opens_at_ms, NUMBER_MAX - 1),
    ];
    let wrong = limits.into_iter().filter(|(_, value, max)| value > max);
    let faults: Vec<Fault> = wrong
        .map(|(field, value, max)| Fault {
            pointer: format!("/{field}"),
            detail: format!("{field}: must be 0 to {max}, is {value}"),
        })
        .collect();
    if faults.is_empty() {
        return Ok(());
    }
    let details: Vec<&str> = faults.iter().map(|fault| fault.detail.as_str()).collect();
    let problem = Problem::unprocessable("invalid_room", "Invalid", details.join("; "));
    Err(problem.with_faults(faults))
}

impl Rooms {
    fn view(&self, room: &RoomName, setting: Option<Setting>, look: Option<Look>) -> RoomView {
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
            entered_last_minute: self.entered_last_minute(room, look.entered),
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
        }
    }
}

fn draw(look: &Look) -> Option<DrawView> {
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
        Problem::unprocessable("invalid_room", "Invalid", detail)
    })
}

fn not_set(failure: SetError) -> Problem {
    match failure {
        SetError::Sql(error) => error.into(),
        SetError::Over(over) => over_limit(over),
    }
}

fn no_redis(error: CallError) -> Problem {
    warn!(%error, "cannot look at a waiting room");
    Problem::redis()
}
