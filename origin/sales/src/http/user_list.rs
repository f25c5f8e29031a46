//! Users whom operators block in all sales, or exempt from risk checks.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use tracing::info;
use utoipa::ToSchema;
use weir_base::id::UserId;
use weir_sale::sale::SALES_MAX;

use super::refusals::{INVALID_REASON, INVALID_USER};
use crate::Sales;
use crate::model::user_list::UserList;
use crate::store::{ListedUser, Remark, UserListStatus};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{Problem, ReadQuery, TypedBody, read_typed};

/// Default number of users per page, and its maximum.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;

/// Maximum number of changes shown per user.
const LOG_LEN_MAX: usize = 100;

/// Maximum length of a reason and of an operator's name, in characters.
const TEXT_LEN_MAX: usize = 200;

/// Filters of the user list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only users with this status.
    #[param(inline)]
    status: UserStatusLabel,
    /// The last user of the previous page.
    after: Option<String>,
    /// Page size.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
}

/// Blocked: cannot buy. Allowed: can buy, exempt from the risk check.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = UserStatus)]
#[serde(rename_all = "snake_case")]
enum UserStatusLabel {
    Blocked,
    Allowed,
}

/// Blocked: cannot buy. Allowed: can buy, exempt from the risk check. None: like any other user.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = OptionalUserStatus)]
#[serde(rename_all = "snake_case")]
enum OptionalUserStatus {
    Blocked,
    Allowed,
    None,
}

impl From<Option<UserListStatus>> for OptionalUserStatus {
    fn from(status: Option<UserListStatus>) -> Self {
        match status {
            Some(UserListStatus::Blocked) => Self::Blocked,
            Some(UserListStatus::Allowed) => Self::Allowed,
            None => Self::None,
        }
    }
}

/// A user's status for all sales, from a time on.
#[derive(Serialize, ToSchema)]
#[schema(as = UserStatusChange)]
struct UserStatusView {
    /// The user's status.
    status: OptionalUserStatus,
    /// Reason; null: not listed.
    #[schema(required)]
    reason: Option<String>,
    /// The operator who set it; null: not given.
    #[schema(required)]
    operator: Option<String>,
    /// Since this time, in milliseconds since the Unix epoch; null: always.
    #[schema(required)]
    at_ms: Option<u64>,
}

/// A user and the user's status for all sales.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedUser)]
struct UserView {
    /// The user's id.
    user: String,
    #[serde(flatten)]
    status: UserStatusView,
}

/// A page of users.
#[derive(Serialize, ToSchema)]
pub(super) struct ListedUsers {
    /// The users of this page, by name.
    users: Vec<UserView>,
}

/// A user's status for all sales, with its history.
#[derive(Serialize, ToSchema)]
pub(super) struct UserListEntry {
    #[serde(flatten)]
    user: UserView,
    /// Newest change first, at most 100.
    log: Vec<UserStatusView>,
}

impl From<UserStatusLabel> for UserListStatus {
    fn from(word: UserStatusLabel) -> Self {
        match word {
            UserStatusLabel::Blocked => Self::Blocked,
            UserStatusLabel::Allowed => Self::Allowed,
        }
    }
}

/// New status of a user.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUserStatus {
    /// Blocked: cannot buy. Allowed: exempt from the risk check.
    status: UserStatusLabel,
    /// Reason.
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
    /// Operator, as given.
    #[schema(min_length = 1, max_length = 200)]
    operator: String,
}

/// Reason for removing a user from the list.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Removal {
    /// Reason.
    #[serde(default)]
    #[schema(max_length = 200)]
    reason: String,
    /// Operator, as given.
    #[serde(default)]
    #[schema(max_length = 200)]
    operator: String,
}

/// List users who are blocked in all sales, or exempt from risk checks
#[utoipa::path(
    get,
    path = "/user-list",
    operation_id = "listUsers",
    params(ListQuery),
    responses((status = 200, description = "Sorted by the bytes of their names", body = ListedUsers)),
)]
pub(super) async fn list(
    State(sales): State<Sales>,
    ReadQuery(query): ReadQuery<ListQuery>,
) -> Result<Json<ListedUsers>, Problem> {
    let after = query.after.as_ref().map(UserId::new).transpose();
    let after = after.map_err(|error| Problem::invalid_query(format!("after: {error}")))?;
    let limit = query.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let detail = format!("limit: must be 1 to {LIMIT_MAX}");
        return Err(Problem::invalid_query(detail));
    }
    let status = query.status.into();
    let users = sales
        .store
        .user_list()
        .listed_users(status, after.as_ref(), limit);
    let users = users.await?.into_iter().map(UserView::from).collect();
    Ok(Json(ListedUsers { users }))
}

/// Get a user's status for all sales, with its history
#[utoipa::path(
    get,
    path = "/user-list/{user}",
    operation_id = "getUserStatus",
    params(("user" = String, Path, description = "The user's name.")),
    responses((status = 200, description = "The user's entry, with its history", body = UserListEntry)),
)]
pub(super) async fn get(
    State(sales): State<Sales>,
    Path(user): Path<String>,
) -> Result<Json<UserListEntry>, Problem> {
    let user = read_user(user)?;
    user_entry(&sales, &user).await
}

/// Block a user in all sales, or exempt the user from risk checks
///
/// It takes effect in SQL immediately, and at gateways before the answer.
#[utoipa::path(
    put,
    path = "/user-list/{user}",
    operation_id = "setUserStatus",
    params(("user" = String, Path, description = "The user's name.")),
    request_body = NewUserStatus,
    responses((status = 200, description = "Done, and published to gateways", body = UserListEntry)),
)]
pub(super) async fn put(
    State(sales): State<Sales>,
    Path(user): Path<String>,
    TypedBody(new): TypedBody<NewUserStatus>,
) -> Result<Json<UserListEntry>, Problem> {
    let user = read_user(user)?;
    let response = remark(new.reason, new.operator)?;
    if response.reason.is_empty() || response.operator.is_empty() {
        let detail = "reason, operator: both are required";
        return Err(INVALID_REASON.because(detail));
    }
    change(&sales, &user, Some(new.status.into()), &response).await
}

/// Remove a user from the list
///
/// Repeating it changes nothing.
#[utoipa::path(
    delete,
    path = "/user-list/{user}",
    operation_id = "clearUserStatus",
    params(("user" = String, Path, description = "The user's name.")),
    request_body = Option<Removal>,
    responses((status = 200, description = "Done, and published to gateways", body = UserListEntry)),
)]
pub(super) async fn delete(
    State(sales): State<Sales>,
    Path(user): Path<String>,
    body: Bytes,
) -> Result<Json<UserListEntry>, Problem> {
    let user = read_user(user)?;
    let removal: Removal = match body.trim_ascii() {
        b"" | b"null" => Removal::default(),
        body => read_typed(body)?,
    };
    let response = remark(removal.reason, removal.operator)?;
    change(&sales, &user, None, &response).await
}

/// Changes SQL first, which takes effect at the origin at once. Then updates Redis for each sale in the catalogue,
/// which takes effect at gateways. Repeating the request completes an interrupted update.
async fn change(
    sales: &Sales,
    user: &UserId,
    status: Option<UserListStatus>,
    remark: &Remark,
) -> Result<Json<UserListEntry>, Problem> {
    let now_ms = now_ms();
    let changed = sales
        .store
        .user_list()
        .set_user_status(user, status, remark, now_ms);
    if changed.await? {
        let status = status.map_or("none", UserListStatus::label);
        info!(%status, operator = remark.operator, "changed a user's list entry for all sales");
    }
    for stored in sales.store.catalogue(now_ms, SALES_MAX).await? {
        let (sale, list) = (&stored.sale, UserList::Blocked);
        let is_barred = sales
            .store
            .cooldowns()
            .is_barred(&sale.id, user, now_ms)
            .await?;
        match is_barred {
            true => {
                let users = std::slice::from_ref(user);
                sales.ledger.add_users(sale, list, users).await?;
            }
            false => sales.ledger.remove_user(sale, list, user).await?,
        }
    }
    user_entry(sales, user).await
}

async fn user_entry(sales: &Sales, user: &UserId) -> Result<Json<UserListEntry>, Problem> {
    let listed = sales.store.user_list().listed_user(user).await?;
    let log = sales.store.user_list().list_log(user, LOG_LEN_MAX).await?;
    let unlisted = || UserView {
        user: user.to_string(),
        status: UserStatusView {
            status: OptionalUserStatus::None,
            reason: None,
            operator: None,
            at_ms: None,
        },
    };
    Ok(Json(UserListEntry {
        user: listed.map_or_else(unlisted, UserView::from),
        log: log
            .into_iter()
            .map(|entry| UserStatusView::new(entry.status, entry.remark, entry.at_ms))
            .collect(),
    }))
}

impl UserStatusView {
    fn new(status: Option<UserListStatus>, remark: Remark, at_ms: u64) -> Self {
        Self {
            status: status.into(),
            reason: Some(remark.reason),
            operator: Some(remark.operator),
            at_ms: Some(at_ms),
        }
    }
}

impl From<ListedUser> for UserView {
    fn from(listed: ListedUser) -> Self {
        Self {
            user: listed.user.to_string(),
            status: UserStatusView::new(Some(listed.status), listed.remark, listed.at_ms),
        }
    }
}

fn read_user(user: String) -> Result<UserId, Problem> {
    UserId::new(user).map_err(|error| INVALID_USER.because(error.to_string()))
}

fn remark(reason: String, operator: String) -> Result<Remark, Problem> {
    for (name, text) in [("reason", &reason), ("operator", &operator)] {
        if text.chars().count() > TEXT_LEN_MAX {
            let detail = format!("{name}: must have at most {TEXT_LEN_MAX} characters");
            return Err(INVALID_REASON.because(detail));
        }
    }
    Ok(Remark { reason, operator })
}
