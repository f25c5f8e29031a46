//! Users of every sale: whom operators have blocked, and whom they let buy whatever a risk check says.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::info;
use weir_base::id::UserId;
use weir_sale::sale::SALES_MAX;

use crate::store::{ListEntry, ListedUser, Said, Standing};
use crate::{Sales, UserList};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{JsonBody, Problem, ReadQuery, read_json_of};

/// The users of a page, unless the query says so, and at most.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;

/// The changes that are shown of a user.
const LOG_LEN_MAX: usize = 100;

/// The longest reason and the longest name of an operator, in characters.
const TEXT_LEN_MAX: usize = 200;

/// What is asked of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    standing: StandingWord,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StandingWord {
    Blocked,
    Allowed,
}

impl From<StandingWord> for Standing {
    fn from(word: StandingWord) -> Self {
        match word {
            StandingWord::Blocked => Self::Blocked,
            StandingWord::Allowed => Self::Allowed,
        }
    }
}

/// How a user is to stand.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewStanding {
    standing: StandingWord,
    reason: String,
    operator: String,
}

/// Why a user is taken off the list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Removal {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    operator: String,
}

/// `GET /user-list`: a page of those who stand so.
pub(super) async fn list(
    State(sales): State<Sales>,
    ReadQuery(query): ReadQuery<ListQuery>,
) -> Result<Json<Value>, Problem> {
    let after = query.after.as_ref().map(UserId::new).transpose();
    let after = after.map_err(|error| Problem::invalid_query(format!("after: {error}")))?;
    let limit = query.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let detail = format!("limit: must be 1 to {LIMIT_MAX}");
        return Err(Problem::invalid_query(detail));
    }
    let standing = query.standing.into();
    let users = sales.store.listed_users(standing, after.as_ref(), limit);
    let users: Vec<Value> = users.await?.iter().map(view).collect();
    Ok(Json(json!({ "users": users })))
}

/// `GET /user-list/{user}`: how a user stands, and since when, and what was before.
pub(super) async fn get(
    State(sales): State<Sales>,
    Path(user): Path<String>,
) -> Result<Json<Value>, Problem> {
    let user = read_user(user)?;
    stands(&sales, &user).await
}

/// `PUT /user-list/{user}`: a user stands so from now on. Again changes nothing.
pub(super) async fn put(
    State(sales): State<Sales>,
    Path(user): Path<String>,
    JsonBody(new): JsonBody<NewStanding>,
) -> Result<Json<Value>, Problem> {
    let user = read_user(user)?;
    let said = said(new.reason, new.operator)?;
    if said.reason.is_empty() || said.operator.is_empty() {
        let detail = "reason, operator: must be there";
        return Err(Problem::unprocessable(
            "invalid_reason",
            "No reason",
            detail,
        ));
    }
    change(&sales, &user, Some(new.standing.into()), &said).await
}

/// `DELETE /user-list/{user}`: a user stands as anybody. Again changes nothing.
pub(super) async fn delete(
    State(sales): State<Sales>,
    Path(user): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let user = read_user(user)?;
    let removal: Removal = match body.trim_ascii() {
        b"" | b"null" => Removal::default(),
        body => read_json_of(body, "Removal")?,
    };
    let said = said(removal.reason, removal.operator)?;
    change(&sales, &user, None, &said).await
}

/// SQL first: from then on the origin refuses, or lets buy. Then gateways hear of it, in each sale that runs; the same request
/// again tells those that did not.
async fn change(
    sales: &Sales,
    user: &UserId,
    standing: Option<Standing>,
    said: &Said,
) -> Result<Json<Value>, Problem> {
    let now_ms = now_ms();
    let changed = sales.store.set_standing(user, standing, said, now_ms);
    if changed.await? {
        let standing = standing.map_or("none", Standing::word);
        info!(%standing, operator = said.operator, "how a user stands in every sale has changed");
    }
    for stored in sales.store.catalogue(now_ms, SALES_MAX).await? {
        let (sale, list) = (&stored.sale, UserList::Blocked);
        let is_barred = sales.store.is_barred(&sale.id, user, now_ms).await?;
        match is_barred {
            true => {
                let users = std::slice::from_ref(user);
                sales.ledger.add_users(sale, list, users).await?;
            }
            false => sales.ledger.remove_user(sale, list, user).await?,
        }
    }
    stands(sales, user).await
}

async fn stands(sales: &Sales, user: &UserId) -> Result<Json<Value>, Problem> {
    let listed = sales.store.listed_user(user).await?;
    let log = sales.store.list_log(user, LOG_LEN_MAX).await?;
    let log: Vec<Value> = log.iter().map(log_view).collect();
    let mut view = match listed {
        Some(listed) => view(&listed),
        None => json!({
            "user": user.as_str(), "standing": "none", "reason": null, "operator": null,
            "at_ms": null,
        }),
    };
    view["log"] = json!(log);
    Ok(Json(view))
}

fn view(listed: &ListedUser) -> Value {
    json!({
        "user": listed.user.as_str(), "standing": listed.standing.word(),
        "reason": listed.said.reason, "operator": listed.said.operator, "at_ms": listed.at_ms,
    })
}

fn log_view(entry: &ListEntry) -> Value {
    json!({
        "standing": entry.standing.map_or("none", Standing::word), "reason": entry.said.reason,
        "operator": entry.said.operator, "at_ms": entry.at_ms,
    })
}

fn read_user(user: String) -> Result<UserId, Problem> {
    UserId::new(user)
        .map_err(|error| Problem::unprocessable("invalid_user", "Invalid user", error.to_string()))
}

fn said(reason: String, operator: String) -> Result<Said, Problem> {
    for (name, text) in [("reason", &reason), ("operator", &operator)] {
        if text.chars().count() > TEXT_LEN_MAX {
            let detail = format!("{name}: must have at most {TEXT_LEN_MAX} characters");
            return Err(Problem::unprocessable("invalid_reason", "Too long", detail));
        }
    }
    Ok(Said { reason, operator })
}
