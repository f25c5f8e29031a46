//! Routes of keys and the audit trail.

use axum::extract::{Extension, Path, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tracing::{error, info};
use utoipa::ToSchema;
use utoipa::openapi::Object;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, Type};
use utoipa_axum::routes;

use super::scope::{Area, Role, Scope, Scopes};
use super::store::{AddKeyOutcome, KEYS_MAX, StoredKey};
use super::tenancy::of_tenants;
use super::trail::EntryView;
use super::{AuthLayer, Caller, TENANT_LIMIT, auth_layer, key, over_limit, sign_in, tenants};
use crate::api::{Api, Document, RouteRules, words};
use crate::clock::now_ms;
use crate::http::refusal::BODY_TOO_LARGE;
use crate::http::{Problem, ReadQuery, Refusal, TypedBody, page_len};
use crate::tenants::TenantName;

/// Maximum length of a key's name, in characters.
const NAME_LEN_MAX: usize = 80;

/// Maximum number of domains and tags per key, and the maximum characters of each.
const WORDS_MAX: usize = 20;
const WORD_LEN_MAX: usize = 64;

/// The latest expiry of a key: the end of the year 9999.
const INSTANT_MS_MAX: u64 = 253_402_300_799_999;

/// Default and maximum number of audit entries per page.
const PAGE: usize = 50;
const PAGE_MAX: usize = 200;

const INVALID_KEY: Refusal = Refusal::invalid("invalid_key", "Invalid key", "The key is invalid");

pub(super) const NO_RANDOM: Refusal =
    Refusal::unavailable("no_random", "No random numbers from the operating system");

const TOO_MANY_KEYS: Refusal = Refusal::conflict(
    "too_many_keys",
    "Too many keys",
    "The maximum number of keys is reached",
);

const UNKNOWN_KEY: Refusal =
    Refusal::not_found("unknown_key", "Unknown key", "There is no such key");

/// The routes of keys, the audit trail and tenants.
fn admin() -> Api<AuthLayer> {
    let reads = RouteRules::HEEDS;
    let key = reads.refuses(&[UNKNOWN_KEY]);
    let api = Api::admin(Area::Access)
        .route(
            routes!(create),
            reads.refuses(&[
                TENANT_LIMIT,
                TOO_MANY_KEYS,
                INVALID_KEY,
                NO_RANDOM,
                BODY_TOO_LARGE,
            ]),
        )
        .route(routes!(list), reads)
        .route(routes!(one, revoke), key)
        .route(routes!(audit), reads);
    tenants::add(api)
}

/// All routes of access.
pub fn routes(auth: &AuthLayer) -> Router {
    let guarded = auth.mount(admin(), auth.clone());
    guarded.merge(sign_in::api().into_router(auth.clone()))
}

/// The routes' part of the OpenAPI document.
pub fn document() -> Document {
    let mut document = admin().into_document();
    document.merge(sign_in::api().into_document());
    document
}

/// A new key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewKey {
    /// Display name.
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// Role of the holder; set either role or scopes.
    #[schema(required = false, schema_with = roles)]
    role: Option<String>,
    /// Permissions; set either this or a role.
    #[schema(required = false, schema_with = scopes)]
    scopes: Option<Vec<String>>,
    /// Domains that the key is restricted to; empty: all.
    #[serde(default)]
    #[schema(max_items = 20)]
    domains: Vec<String>,
    /// Tags that the key is restricted to: links with at least one; empty: all.
    #[serde(default)]
    #[schema(max_items = 20)]
    tags: Vec<String>,
    /// Milliseconds since the Unix epoch.
    expires_at_ms: Option<u64>,
    /// Tenant of the key; default: the caller's tenant. A tenant's key can access only the tenant's own objects, and
    /// has only permissions for sales, rooms, links and access.
    #[schema(
        nullable = false,
        max_length = 20,
        pattern = "^[a-z0-9]+(-[a-z0-9]+)*$"
    )]
    tenant: Option<String>,
}

/// A key without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = Key)]
struct KeyView {
    /// Its id.
    id: String,
    /// Display name.
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// Role of its holder.
    #[schema(required, value_type = Option<Role>)]
    role: Option<&'static str>,
    /// Permissions, from its role or set directly.
    #[schema(schema_with = scopes)]
    scopes: Vec<String>,
    /// Domains that the key is restricted to; empty: all.
    domains: Vec<String>,
    /// Tags that the key is restricted to: links with at least one; empty: all.
    tags: Vec<String>,
    /// Milliseconds since the Unix epoch.
    created_at_ms: u64,
    /// Id of the key that created it, or admin-token.
    created_by: String,
    /// Milliseconds since the Unix epoch.
    #[schema(required)]
    expires_at_ms: Option<u64>,
    /// Milliseconds since the Unix epoch.
    #[schema(required)]
    revoked_at_ms: Option<u64>,
    /// Its tenant; null: the platform.
    #[schema(required, value_type = Option<String>)]
    tenant: Option<TenantName>,
    /// Whether the key is valid now.
    good: bool,
}

/// A new key: the only answer with its secret.
#[derive(Serialize, ToSchema)]
struct MadeKey {
    #[serde(flatten)]
    view: KeyView,
    /// The key itself. Weir does not store it.
    key: String,
}

/// Keys of the platform or of a tenant.
#[derive(Serialize, ToSchema)]
struct Keys {
    /// The keys, newest first.
    keys: Vec<KeyView>,
}

/// A page of the audit trail.
#[derive(Serialize, ToSchema)]
struct AuditTrail {
    /// `after` of the next page; null: this is the last page.
    #[schema(required)]
    next: Option<String>,
    /// The entries, newest first.
    entries: Vec<EntryView>,
}

fn roles() -> Object {
    let description = "Role of the holder; set either role or scopes.";
    words(description, Role::ALL.map(Role::label))
}

pub(super) fn scopes() -> Array {
    let areas = Area::ALL.map(Area::label).join("|");
    let scope = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(format!("^({areas}):(read|write)$")));
    ArrayBuilder::new()
        .items(scope)
        .min_items(Some(1))
        .description(Some("Permissions."))
        .build()
}

type CreatedKey = (StatusCode, [(HeaderName, String); 1], Json<MadeKey>);

impl From<StoredKey> for KeyView {
    fn from(stored: StoredKey) -> Self {
        Self {
            good: stored.is_good(now_ms()),
            scopes: stored.may().words(),
            role: stored.role.map(Role::label),
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
    /// The tenant of the new key. A tenant can only create its own keys.
    fn holder(&self, caller: &Caller) -> Result<Option<TenantName>, Problem> {
        let own = caller.tenant().map(|tenant| &tenant.name);
        match (&self.tenant, own) {
            (None, own) => Ok(own.cloned()),
            (Some(name), Some(own)) if own.as_str() != name => Err(auth_layer::forbidden(
                "tenant: a tenant can only create its own keys",
            )),
            (Some(name), _) => TenantName::new(name).map(Some).ok_or_else(no_tenant),
        }
    }

    /// The permissions of the new key: its role or its scopes.
    fn may(&self) -> Result<(Option<Role>, Scopes), Problem> {
        match (&self.role, &self.scopes) {
            (Some(word), None) => {
                let role = Role::from_label(word);
                let role =
                    role.ok_or_else(|| invalid("role: must be viewer, operator or admin"))?;
                Ok((Some(role), Scopes::default()))
            }
            (None, Some(words)) => {
                let scopes: Result<Vec<Scope>, _> = words.iter().map(|word| word.parse()).collect();
                let scopes = scopes.map_err(|error| invalid(format!("scopes: {error}")))?;
                let scopes: Scopes = scopes.into_iter().collect();
                match scopes.is_empty() {
                    true => Err(invalid("scopes: must have at least one")),
                    false => Ok((None, scopes)),
                }
            }
            _ => Err(invalid("set exactly one of role and scopes")),
        }
    }

    fn check(&self, now_ms: u64) -> Result<(), Problem> {
        if !is_word(&self.name, NAME_LEN_MAX) {
            let detail =
                format!("name: must be 1 to {NAME_LEN_MAX} characters without control characters");
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
                "expires_at_ms: must be in the future, in milliseconds since the Unix epoch, or null",
            )),
            _ => Ok(()),
        }
    }
}

fn is_word(text: &str, len_max: usize) -> bool {
    let is_control = text.chars().any(char::is_control);
    (1..=len_max).contains(&text.chars().count()) && !is_control
}

/// Create a key; only this answer shows it
///
/// Creates a key. Only this answer shows it: Weir stores a hash.
#[utoipa::path(
    post,
    path = "/access/keys",
    operation_id = "makeKey",
    request_body = NewKey,
    responses((status = 201, description = "Created", body = MadeKey)),
)]
async fn create(
    State(auth): State<AuthLayer>,
    Extension(caller): Extension<Caller>,
    TypedBody(new): TypedBody<NewKey>,
) -> Result<CreatedKey, Problem> {
    let now_ms = now_ms();
    new.check(now_ms)?;
    let (role, scopes) = new.may()?;
    let tenant = new.holder(&caller)?;
    if tenant.is_some()
        && let Some(other) = of_tenants(&scopes).lacks(&scopes)
    {
        let detail =
            format!("scopes: {other}: a tenant can only have sales, rooms, links and access");
        return Err(invalid(detail));
    }
    let id = key::new_id().map_err(no_random)?;
    let displayed = key::new_key(&id).map_err(no_random)?;
    let stored = StoredKey {
        hash: key::hash(&displayed),
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
        let detail = format!("{lacking}: a key cannot grant scopes it lacks");
        return Err(auth_layer::forbidden(detail));
    }
    match auth.access.0.store.add_key(&stored).await? {
        AddKeyOutcome::Made => {}
        AddKeyOutcome::TooMany => {
            let detail = format!("the maximum of {KEYS_MAX} keys is reached");
            return Err(TOO_MANY_KEYS.because(detail));
        }
        AddKeyOutcome::Over(over) => return Err(over_limit(over)),
        AddKeyOutcome::NoTenant => return Err(no_tenant()),
    }
    info!(key = stored.id, by = caller.0.id, "key created");
    let location = [(header::LOCATION, format!("/access/keys/{}", stored.id))];
    let view = stored.into();
    let created = MadeKey {
        view,
        key: displayed,
    };
    Ok((StatusCode::CREATED, location, Json(created)))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct KeysQuery {
    /// Keys of this tenant; default: of the platform. A tenant's key always gets its own tenant's keys.
    tenant: Option<String>,
}

/// List the keys of the platform or of a tenant, newest first
///
/// Returns metadata of keys, newest first, including expired ones. It never returns secrets.
#[utoipa::path(
    get,
    path = "/access/keys",
    operation_id = "listKeys",
    params(KeysQuery),
    responses((status = 200, description = "They", body = Keys)),
)]
async fn list(
    State(auth): State<AuthLayer>,
    caller: Caller,
    ReadQuery(query): ReadQuery<KeysQuery>,
) -> Result<Json<Keys>, Problem> {
    let tenant = asked_tenant(&caller, query.tenant.as_deref())?;
    let keys = auth.access.0.store.keys(tenant).await?;
    let keys = keys.into_iter().map(Into::into).collect();
    Ok(Json(Keys { keys }))
}

/// The requested tenant. A tenant's key can only read its own tenant.
fn asked_tenant<'a>(
    caller: &'a Caller,
    requested: Option<&'a str>,
) -> Result<Option<&'a str>, Problem> {
    let own = caller.tenant().map(|tenant| tenant.name.as_str());
    let requested = requested.filter(|requested| !requested.is_empty());
    match (own, requested) {
        (Some(own), Some(requested)) if own != requested => Err(auth_layer::forbidden(
            "tenant: a tenant's key can only read its own tenant",
        )),
        (own, requested) => Ok(own.or(requested)),
    }
}

/// Returns a key that the caller may see.
async fn found(auth: &AuthLayer, caller: &Caller, id: &str) -> Result<StoredKey, Problem> {
    let found = auth.access.0.store.key(id).await?;
    let own = caller.tenant().map(|tenant| &tenant.name);
    let is_seen = |key: &StoredKey| own.is_none_or(|own| key.tenant.as_ref() == Some(own));
    found.filter(is_seen).ok_or_else(unknown_key)
}

/// Get a key's metadata
///
/// Returns a key's metadata, without its secret.
#[utoipa::path(
    get,
    path = "/access/keys/{id}",
    operation_id = "getKey",
    params(("id" = String, Path, description = "The key's id.")),
    responses((status = 200, description = "It", body = KeyView)),
)]
async fn one(
    State(auth): State<AuthLayer>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<KeyView>, Problem> {
    Ok(Json(found(&auth, &caller, &id).await?.into()))
}

/// Revoke a key and end its sessions; other origins follow within five seconds
///
/// Revokes a key and ends its sessions. Other origins follow within five seconds. Repeating it changes nothing.
#[utoipa::path(
    delete,
    path = "/access/keys/{id}",
    operation_id = "revokeKey",
    params(("id" = String, Path, description = "The key's id.")),
    responses((status = 200, description = "The key is revoked", body = KeyView)),
)]
async fn revoke(
    State(auth): State<AuthLayer>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<KeyView>, Problem> {
    // Check first: the tenant of a key never changes.
    found(&auth, &caller, &id).await?;
    let revoked = auth.access.0.store.revoke(&id, now_ms()).await;
    // Also after an error: the key may be revoked although the answer is lost.
    auth.access.forget_known();
    let revoked = revoked?.ok_or_else(unknown_key)?;
    info!(key = id, "key revoked");
    Ok(Json(revoked.into()))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// The `next` of the previous page.
    #[param(value_type = Option<String>)]
    after: Option<u64>,
    /// Only entries of this key.
    actor: Option<String>,
    /// Only entries of this tenant's keys. A tenant's key always gets its own tenant's entries.
    tenant: Option<String>,
    /// Entries of a page.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
}

/// List audit entries, newest first
///
/// Returns pages of changes, newest first. An entry without a status has an unknown outcome.
#[utoipa::path(
    get,
    path = "/access/audit",
    operation_id = "listAuditTrail",
    params(AuditQuery),
    responses((status = 200, description = "A page of the audit trail", body = AuditTrail)),
)]
async fn audit(
    State(auth): State<AuthLayer>,
    caller: Caller,
    ReadQuery(query): ReadQuery<AuditQuery>,
) -> Result<Json<AuditTrail>, Problem> {
    let limit = page_len(query.limit, PAGE_MAX)?.unwrap_or(PAGE);
    let before = query.after.unwrap_or(u64::MAX);
    let actor = query.actor.as_deref().filter(|actor| !actor.is_empty());
    let tenant = asked_tenant(&caller, query.tenant.as_deref())?;
    // One more entry shows whether there is another page.
    let trail = &auth.access.0.trail;
    let entries = trail.entries_before(before, tenant, actor, limit + 1);
    let mut entries = entries.await?;
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    let next = entries.last().filter(|_| has_more).map(EntryView::id);
    let next = next.map(str::to_owned);
    Ok(Json(AuditTrail { next, entries }))
}

fn invalid(detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    INVALID_KEY.because(detail)
}

fn unknown_key() -> Problem {
    UNKNOWN_KEY.because("there is no such key")
}

fn no_tenant() -> Problem {
    invalid("tenant: there is no such tenant")
}

pub(super) fn no_random(failure: key::NoRandom) -> Problem {
    error!(error = %failure, "cannot create a key");
    NO_RANDOM.because("no random numbers from the operating system")
}
