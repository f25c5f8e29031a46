//! Keys, sessions and the audit trail as routes.

use axum::extract::{Extension, FromRequest, MatchedPath, Path, Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use tracing::{error, info, warn};

use super::scope::{Area, Role, Scope, Scopes};
use super::session::{SignInError, is_from_page, set_cookie};
use super::store::{Added, KEYS_MAX, StoredKey};
use super::tenancy::{TenantRules, of_tenants};
use super::trail::EntryView;
use super::{Caller, Door, Guard, guard, key, over_limit, tenants};
use crate::clock::now_ms;
use crate::http::{JsonBody, PeerAddress, Problem, ReadQuery, page_len};
use crate::tenants::TenantName;

/// The longest name of a key, in characters.
const NAME_LEN_MAX: usize = 80;

/// The most domains and tags of one key, and the most characters of one.
const WORDS_MAX: usize = 20;
const WORD_LEN_MAX: usize = 64;

/// The last instant a key may name: the end of the year 9999.
const INSTANT_MS_MAX: u64 = 253_402_300_799_999;

/// Entries of the audit trail in a page that does not say, and the most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 200;

/// The routes of access.
///
/// - `POST` and `GET /access/keys`; `GET` and `DELETE /access/keys/{id}`
/// - `POST`, `GET` and `DELETE /access/session`
/// - `GET /access/audit`
/// - `GET /tenants`; `GET`, `PUT` and `DELETE /tenants/{id}`
pub fn routes(door: &Door, rules: TenantRules) -> Router {
    let guarded = Router::new()
        .route("/access/keys", post(create).get(list))
        .route("/access/keys/{id}", get(one).delete(revoke))
        .route("/access/audit", get(audit))
        .with_state(door.clone())
        .merge(tenants::routes(door));
    let open = Router::new()
        .route(
            "/access/session",
            post(sign_in).get(whoami).delete(sign_out),
        )
        .with_state(door.clone());
    let guard = Guard::of(Area::Access).tenants(rules);
    door.guard(guarded, guard).merge(open)
}

/// A key to be made.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKey {
    name: String,
    /// Either this
    role: Option<String>,
    /// or these.
    scopes: Option<Vec<String>>,
    #[serde(default)]
    domains: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
    expires_at_ms: Option<u64>,
    /// Whose it is to be; `None`: whose the caller's is.
    tenant: Option<String>,
}

/// A key as operators see it.
#[derive(Serialize)]
struct KeyView {
    id: String,
    name: String,
    role: Option<&'static str>,
    /// What it may do, by its role or by itself.
    scopes: Vec<String>,
    domains: Vec<String>,
    tags: Vec<String>,
    created_at_ms: u64,
    created_by: String,
    expires_at_ms: Option<u64>,
    revoked_at_ms: Option<u64>,
    /// Whose it is; null: the platform's.
    tenant: Option<TenantName>,
    /// Whether it opens anything now.
    good: bool,
}

/// The answer to a new key: the only one that has it.
#[derive(Serialize)]
struct MadeKey {
    #[serde(flatten)]
    view: KeyView,
    key: String,
}

type Created = (StatusCode, [(HeaderName, String); 1], Json<MadeKey>);

impl From<StoredKey> for KeyView {
    fn from(stored: StoredKey) -> Self {
        Self {
            good: stored.is_good(now_ms()),
            scopes: stored.may().words(),
            role: stored.role.map(Role::word),
            id: stored.id,
            name: stored.name,
            domains: stored.domains,
            tags: stored.tags,
            created_at_ms: stored.created_at_ms,
            created_by: stored.created_by,
            expires_at_ms: stored.expires_at_ms,
            revoked_at_ms: stored.revoked_at_ms,
            tenant: stored.tenant,
        }
    }
}

impl NewKey {
    /// Whose it is: a tenant makes keys of its own alone.
    fn holder(&self, caller: &Caller) -> Result<Option<TenantName>, Problem> {
        let own = caller.tenant().map(|tenant| &tenant.name);
        match (&self.tenant, own) {
            (None, own) => Ok(own.cloned()),
            (Some(name), Some(own)) if own.as_str() != name => Err(guard::forbidden(
                "tenant: a tenant makes keys of its own alone",
            )),
            (Some(name), _) => TenantName::new(name).map(Some).ok_or_else(no_tenant),
        }
    }

    /// What it may do: by its role, or by its scopes.
    fn may(&self) -> Result<(Option<Role>, Scopes), Problem> {
        match (&self.role, &self.scopes) {
            (Some(word), None) => {
                let role = Role::from_word(word);
                let role =
                    role.ok_or_else(|| invalid("role: must be viewer, operator or admin"))?;
                Ok((Some(role), Scopes::default()))
            }
            (None, Some(words)) => {
                let scopes: Result<Vec<Scope>, _> = words.iter().map(|word| word.parse()).collect();
                let scopes = scopes.map_err(|error| invalid(format!("scopes: {error}")))?;
                let scopes: Scopes = scopes.into_iter().collect();
                match scopes.is_empty() {
                    true => Err(invalid("scopes: must have one at least")),
                    false => Ok((None, scopes)),
                }
            }
            _ => Err(invalid("one of role and scopes must be set")),
        }
    }

    fn check(&self, now_ms: u64) -> Result<(), Problem> {
        if !is_word(&self.name, NAME_LEN_MAX) {
            let detail = format!(
                "name: must be 1 to {NAME_LEN_MAX} characters, none of them a control character"
            );
            return Err(invalid(detail));
        }
        for (field, words) in [("domains", &self.domains), ("tags", &self.tags)] {
            let is_sound = words.iter().all(|word| is_word(word, WORD_LEN_MAX));
            if words.len() > WORDS_MAX || !is_sound {
                let detail = format!(
                    "{field}: must be at most {WORDS_MAX} of 1 to {WORD_LEN_MAX} characters"
                );
                return Err(invalid(detail));
            }
        }
        match self.expires_at_ms {
            Some(at_ms) if !(now_ms + 1..=INSTANT_MS_MAX).contains(&at_ms) => Err(invalid(
                "expires_at_ms: must lie in the future, in milliseconds since the Unix epoch, or be null",
            )),
            _ => Ok(()),
        }
    }
}

fn is_word(text: &str, len_max: usize) -> bool {
    let is_control = text.chars().any(char::is_control);
    (1..=len_max).contains(&text.chars().count()) && !is_control
}

/// `POST /access/keys`. Nobody gives more than they have.
async fn create(
    State(door): State<Door>,
    Extension(caller): Extension<Caller>,
    JsonBody(new): JsonBody<NewKey>,
) -> Result<Created, Problem> {
    let now_ms = now_ms();
    new.check(now_ms)?;
    let (role, scopes) = new.may()?;
    let tenant = new.holder(&caller)?;
    if tenant.is_some()
        && let Some(other) = of_tenants(&scopes).lacks(&scopes)
    {
        let detail = format!("scopes: {other}: a tenant has only sales, rooms, links and access");
        return Err(invalid(detail));
    }
    let id = key::new_id().map_err(no_random)?;
    let shown = key::new_key(&id).map_err(no_random)?;
    let stored = StoredKey {
        hash: key::hash(&shown),
        id,
        name: new.name,
        role,
        scopes,
        domains: new.domains,
        tags: new.tags,
        created_at_ms: now_ms,
        created_by: caller.0.id.clone(),
        expires_at_ms: new.expires_at_ms,
        revoked_at_ms: None,
        tenant,
    };
    if let Some(lacking) = caller.0.scopes.lacks(&stored.may()) {
        let detail = format!("{lacking}: nobody gives what they have not");
        let status = StatusCode::FORBIDDEN;
        return Err(Problem::new(status, "forbidden", "Forbidden", detail));
    }
    match door.access.0.store.add_key(&stored).await? {
        Added::Made => {}
        Added::TooMany => {
            let detail = format!("there are {KEYS_MAX} keys already");
            return Err(Problem::conflict("too_many_keys", "Too many keys", detail));
        }
        Added::Over(over) => return Err(over_limit(over)),
        Added::NoTenant => return Err(no_tenant()),
    }
    info!(key = stored.id, by = caller.0.id, "key made");
    let location = [(header::LOCATION, format!("/access/keys/{}", stored.id))];
    let view = stored.into();
    let made = MadeKey { view, key: shown };
    Ok((StatusCode::CREATED, location, Json(made)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysQuery {
    tenant: Option<String>,
}

/// `GET /access/keys`: those of the platform, or of a tenant, the newest first.
async fn list(
    State(door): State<Door>,
    caller: Caller,
    ReadQuery(query): ReadQuery<KeysQuery>,
) -> Result<Json<Value>, Problem> {
    let tenant = asked_tenant(&caller, query.tenant.as_deref())?;
    let keys = door.access.0.store.keys(tenant).await?;
    let keys: Vec<KeyView> = keys.into_iter().map(Into::into).collect();
    Ok(Json(json!({ "keys": keys })))
}

/// Whose things are asked for: a tenant's key tells of its own alone.
fn asked_tenant<'a>(
    caller: &'a Caller,
    asked: Option<&'a str>,
) -> Result<Option<&'a str>, Problem> {
    let own = caller.tenant().map(|tenant| tenant.name.as_str());
    let asked = asked.filter(|asked| !asked.is_empty());
    match (own, asked) {
        (Some(own), Some(asked)) if own != asked => Err(guard::forbidden(
            "tenant: a tenant's key tells of its own alone",
        )),
        (own, asked) => Ok(own.or(asked)),
    }
}

/// A key that the caller may know of.
async fn found(door: &Door, caller: &Caller, id: &str) -> Result<StoredKey, Problem> {
    let found = door.access.0.store.key(id).await?;
    let own = caller.tenant().map(|tenant| &tenant.name);
    let is_seen = |key: &StoredKey| own.is_none_or(|own| key.tenant.as_ref() == Some(own));
    found.filter(is_seen).ok_or_else(unknown_key)
}

/// `GET /access/keys/{id}`.
async fn one(
    State(door): State<Door>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<KeyView>, Problem> {
    Ok(Json(found(&door, &caller, &id).await?.into()))
}

/// `DELETE /access/keys/{id}`: from now on it opens nothing, and its sessions have ended. Again changes nothing.
async fn revoke(
    State(door): State<Door>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<KeyView>, Problem> {
    // Whose it is never changes.
    found(&door, &caller, &id).await?;
    let revoked = door.access.0.store.revoke(&id, now_ms()).await;
    // Even if the answer was lost: it may be done.
    door.access.forget_known();
    let revoked = revoked?.ok_or_else(unknown_key)?;
    info!(key = id, "key revoked");
    Ok(Json(revoked.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    key: String,
}

/// Who is signed in, or shows a key.
#[derive(Serialize)]
struct CallerView {
    id: String,
    name: String,
    role: Option<&'static str>,
    scopes: Vec<String>,
    domains: Vec<String>,
    tags: Vec<String>,
    /// Whose key it is; null: the platform's.
    tenant: Option<TenantName>,
    /// Whether it is a session of the console.
    session: bool,
    expires_at_ms: Option<u64>,
}

impl From<Caller> for CallerView {
    fn from(caller: Caller) -> Self {
        let who = caller.0.as_ref().clone();
        Self {
            id: who.id,
            name: who.name,
            role: who.role.map(Role::word),
            scopes: who.scopes.words(),
            domains: who.domains,
            tags: who.tags,
            tenant: who.tenant.map(|tenant| tenant.name.clone()),
            session: who.session.is_some(),
            expires_at_ms: who.expires_at_ms,
        }
    }
}

/// `GET /access/session`: who asks, and what they may; 204: nobody is signed in, which a page asks before it shows a form.
async fn whoami(State(door): State<Door>, headers: HeaderMap) -> Result<Response, Problem> {
    match door.caller(&headers).await {
        Ok(caller) => Ok(Json(CallerView::from(caller)).into_response()),
        Err(problem) => {
            let is_nobody = problem.status == StatusCode::UNAUTHORIZED;
            match is_nobody && !headers.contains_key(header::AUTHORIZATION) {
                true => Ok(StatusCode::NO_CONTENT.into_response()),
                false => Err(problem),
            }
        }
    }
}

/// `POST /access/session`: a key, or the token of the environment, for a cookie.
async fn sign_in(
    State(door): State<Door>,
    route: MatchedPath,
    request: Request,
) -> Result<Response, Problem> {
    if !is_from_page(request.headers()) {
        return Err(guard::not_from_page());
    }
    let headers = request.headers().clone();
    let address = request.extensions().get::<PeerAddress>();
    let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
    let asked = guard::Asked::of(&request, route.as_str());
    let JsonBody(SignIn { key }) = JsonBody::from_request(request, &()).await?;
    let caller = door.let_in(key.trim(), address).await?;
    let intent = asked.by(&caller);
    let begin = async {
        match door.begin_session(&caller).await {
            Ok((cookie, caller)) => begun(&cookie, caller, &headers),
            Err(failure) => not_begun(failure).into_response(),
        }
    };
    Ok(door.note(intent, begin).await)
}

impl Door {
    /// Who shows this key at sign-in. An address that shows too many wrong ones has to wait.
    async fn let_in(&self, shown: &str, address: IpAddr) -> Result<Caller, Problem> {
        let attempts = &self.access.0.attempts;
        if let Some(wait_ms) = attempts.wait_ms(address, now_ms()) {
            self.access.0.metrics.sign_in("too_many");
            return Err(too_many(wait_ms));
        }
        let Some(caller) = self.opened_by(shown).await? else {
            attempts.failed(address, now_ms());
            self.access.0.metrics.sign_in("refused");
            warn!(%address, "somebody tried to sign in with what is no key");
            return Err(wrong_key());
        };
        self.access.0.metrics.sign_in("done");
        Ok(caller)
    }
}

fn begun(cookie: &str, caller: Caller, headers: &HeaderMap) -> Response {
    let view: CallerView = caller.into();
    let mut response = (StatusCode::CREATED, Json(view)).into_response();
    if let Some(cookie) = set_cookie(Some(cookie), headers) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// `DELETE /access/session`: the cookie opens nothing any more.
async fn sign_out(State(door): State<Door>, headers: HeaderMap) -> Result<Response, Problem> {
    if !is_from_page(&headers) {
        return Err(guard::not_from_page());
    }
    let caller = door.in_session(&headers).await?;
    if let Some(id) = caller
        .as_ref()
        .and_then(|caller| caller.0.session.as_deref())
    {
        door.access.0.store.end_session(id).await?;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(cookie) = set_cookie(None, &headers) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    after: Option<u64>,
    actor: Option<String>,
    tenant: Option<String>,
    limit: Option<usize>,
}

/// `GET /access/audit`: the last first, page by page; `after` is the `next` of the page before.
async fn audit(
    State(door): State<Door>,
    caller: Caller,
    ReadQuery(query): ReadQuery<AuditQuery>,
) -> Result<Json<Value>, Problem> {
    let limit = page_len(query.limit, PAGE_MAX)?.unwrap_or(PAGE);
    let before = query.after.unwrap_or(u64::MAX);
    let actor = query.actor.as_deref().filter(|actor| !actor.is_empty());
    let tenant = asked_tenant(&caller, query.tenant.as_deref())?;
    // One more tells whether there is another page.
    let trail = &door.access.0.trail;
    let entries = trail.before(before, tenant, actor, limit + 1);
    let mut entries = entries.await?;
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    let next = entries.last().filter(|_| has_more).map(EntryView::id);
    Ok(Json(json!({ "next": next, "entries": entries })))
}

fn invalid(detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    Problem::unprocessable("invalid_key", "Invalid key", detail)
}

fn unknown_key() -> Problem {
    Problem::not_found("unknown_key", "Unknown key", "there is no such key")
}

fn no_tenant() -> Problem {
    invalid("tenant: there is no such tenant")
}

fn wrong_key() -> Problem {
    let detail = "that is no key that opens anything";
    Problem::new(StatusCode::UNAUTHORIZED, "wrong_key", "Wrong key", detail).challenge("Bearer")
}

fn too_many(wait_ms: u64) -> Problem {
    let detail = "too many wrong keys from this address; please wait";
    let status = StatusCode::TOO_MANY_REQUESTS;
    Problem::new(status, "too_many_attempts", "Too many attempts", detail)
        .retry_after(wait_ms.div_ceil(1_000))
}

fn no_random(failure: key::NoRandom) -> Problem {
    error!(error = %failure, "no key is made");
    Problem::unavailable("no_random", "the system gives no random numbers")
}

fn not_begun(failure: SignInError) -> Problem {
    match failure {
        SignInError::Sql(error) => error.into(),
        SignInError::NoRandom(failure) => no_random(failure),
    }
}
