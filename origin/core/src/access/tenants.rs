//! Routes of tenants, for the platform's operators.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::info;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, Type};
use utoipa_axum::routes;

use super::AuthLayer;
use crate::api::{Api, RouteRules};
use crate::clock::now_ms;
use crate::http::refusal::BODY_TOO_LARGE;
use crate::http::{Problem, Refusal, TypedBody, ValidationError};
use crate::tenants::store::PutTenantOutcome;
use crate::tenants::{DOMAINS_MAX, Limits, TENANTS_MAX, Tenant, TenantName};

/// Maximum length of a title, in characters.
const TITLE_LEN_MAX: usize = 80;

/// Maximum length of a link domain's name, in bytes.
const DOMAIN_LEN_MAX: usize = 16;

const INVALID_TENANT: Refusal =
    Refusal::invalid("invalid_tenant", "Invalid tenant", "The tenant is invalid");

const TENANT_DOMAIN_TAKEN: Refusal = Refusal::conflict(
    "tenant_domain_taken",
    "Domain taken",
    "The domain belongs to another tenant",
);

const TENANT_NAMES_TAKEN: Refusal = Refusal::conflict(
    "tenant_names_taken",
    "Names taken",
    "Sales or waiting rooms already have names that start with this one, and `takes_over` is not set",
);

const TOO_MANY_TENANTS: Refusal = Refusal::conflict(
    "too_many_tenants",
    "Too many tenants",
    "The limit of tenants is reached",
);

const UNKNOWN_TENANT: Refusal = Refusal::not_found(
    "unknown_tenant",
    "Unknown tenant",
    "There is no such tenant",
);

/// Adds the routes of tenants.
pub(super) fn add(api: Api<AuthLayer>) -> Api<AuthLayer> {
    let rules = RouteRules::PLATFORM;
    let tenant = rules.refuses(&[UNKNOWN_TENANT]);
    api.route(routes!(list), rules)
        .route(routes!(one, delete), tenant)
        .route(
            routes!(put),
            tenant.refuses(&[
                TENANT_NAMES_TAKEN,
                TENANT_DOMAIN_TAKEN,
                TOO_MANY_TENANTS,
                INVALID_TENANT,
                BODY_TOO_LARGE,
            ]),
        )
}

fn domains() -> Array {
    let domain = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^[a-z0-9-]{1,16}$"));
    ArrayBuilder::new()
        .items(domain)
        .max_items(Some(DOMAINS_MAX))
        .description(Some(
            "Its link domains. Each belongs to at most one tenant.",
        ))
        .default(Some(json!([])))
        .build()
}

/// A tenant. A request replaces it completely: a missing field gets its default.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTenant {
    /// Display name.
    #[schema(min_length = 1, max_length = 80)]
    title: String,
    /// Its link domains. Each belongs to at most one tenant.
    #[serde(default)]
    #[schema(schema_with = domains)]
    domains: Vec<String>,
    #[serde(default)]
    limits: Limits,
    /// Whether a new tenant takes over sales and waiting rooms whose names start with its name.
    #[serde(default)]
    #[schema(default = false)]
    takes_over: bool,
}

/// A tenant.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenant)]
struct TenantView {
    /// Its name.
    #[schema(value_type = String, pattern = "^[a-z0-9]+(-[a-z0-9]+)*$", max_length = 20)]
    name: TenantName,
    /// Display name.
    title: String,
    /// Prefix of the names of its sales and rooms.
    prefix: String,
    /// Its link domains.
    #[schema(schema_with = domains)]
    domains: Vec<String>,
    limits: Limits,
    /// Milliseconds since the Unix epoch.
    created_at_ms: u64,
    /// Milliseconds since the Unix epoch.
    changed_at_ms: u64,
}

impl From<Tenant> for TenantView {
    fn from(tenant: Tenant) -> Self {
        Self {
            prefix: tenant.name.prefix(),
            name: tenant.name,
            title: tenant.title,
            domains: tenant.domains,
            limits: tenant.limits,
            created_at_ms: tenant.created_at_ms,
            changed_at_ms: tenant.changed_at_ms,
        }
    }
}

/// All tenants, by name.
#[derive(Serialize, ToSchema)]
struct Tenants {
    /// The tenants.
    tenants: Vec<TenantView>,
}

/// A tenant and its usage.
#[derive(Serialize, ToSchema)]
struct TenantStatus {
    #[serde(flatten)]
    tenant: TenantView,
    /// Usage by limit.
    used: BTreeMap<&'static str, u64>,
}

/// List all tenants by name
///
/// Only for keys of the platform.
#[utoipa::path(
    get,
    path = "/tenants",
    operation_id = "listTenants",
    responses((status = 200, description = "They", body = Tenants)),
)]
async fn list(State(auth): State<AuthLayer>) -> Result<Json<Tenants>, Problem> {
    let tenants = auth.access.0.tenants.all().await?;
    let tenants = tenants.into_iter().map(Into::into).collect();
    Ok(Json(Tenants { tenants }))
}

/// Get a tenant with its usage and limits
///
/// Only for keys of the platform.
#[utoipa::path(
    get,
    path = "/tenants/{id}",
    operation_id = "getTenant",
    params(
        ("id" = String, Path, description = "The tenant's name: 1 to 20 of a-z, 0-9 and single hyphens inside.", max_length = 20, pattern = "^[a-z0-9]+(-[a-z0-9]+)*$"),
    ),
    responses((status = 200, description = "It", body = TenantStatus)),
)]
async fn one(
    State(auth): State<AuthLayer>,
    Path(name): Path<String>,
) -> Result<Json<TenantStatus>, Problem> {
    let (access, now_ms) = (&auth.access.0, now_ms());
    let tenant = access.tenants.tenant(&name).await?.ok_or_else(unknown)?;
    let used = access.tenants.used(&tenant.name).await?;
    let keys = access.store.good_keys(&name, now_ms).await?;
    Ok(Json(TenantStatus {
        tenant: tenant.into(),
        used: used.into_iter().chain([("keys", keys)]).collect(),
    }))
}

/// Create a tenant, or change its title, domains and limits
///
/// Other origins follow within five seconds. Only for keys of the platform.
#[utoipa::path(
    put,
    path = "/tenants/{id}",
    operation_id = "setTenant",
    params(
        ("id" = String, Path, description = "The tenant's name: 1 to 20 of a-z, 0-9 and single hyphens inside.", max_length = 20, pattern = "^[a-z0-9]+(-[a-z0-9]+)*$"),
    ),
    request_body = NewTenant,
    responses(
        (status = 200, description = "Changed", body = TenantView),
        (status = 201, description = "Created", body = TenantView),
    ),
)]
async fn put(
    State(auth): State<AuthLayer>,
    Path(name): Path<String>,
    TypedBody(new): TypedBody<NewTenant>,
) -> Result<(StatusCode, Json<TenantView>), Problem> {
    let takes_over = new.takes_over;
    let tenant = new.checked(&name, now_ms())?;
    let put = auth.access.0.tenants.put(&tenant, takes_over).await;
    // Also after an error: the change may be stored although the answer is lost.
    auth.access.forget_known();
    let status = match put? {
        PutTenantOutcome::Made => StatusCode::CREATED,
        PutTenantOutcome::Changed => StatusCode::OK,
        refused => return Err(not_put(refused)),
    };
    info!(tenant = name, limits = ?tenant.limits, domains = ?tenant.domains, "tenant set");
    let stored = auth.access.0.tenants.tenant(&name).await?;
    Ok((status, Json(stored.ok_or_else(unknown)?.into())))
}

/// Delete a tenant with its domains and keys
///
/// Its sales, waiting rooms and links stay and then belong to the platform. Only for keys of the platform.
#[utoipa::path(
    delete,
    path = "/tenants/{id}",
    operation_id = "deleteTenant",
    params(
        ("id" = String, Path, description = "The tenant's name: 1 to 20 of a-z, 0-9 and single hyphens inside.", max_length = 20, pattern = "^[a-z0-9]+(-[a-z0-9]+)*$"),
    ),
    responses((status = 204, description = "Deleted")),
)]
async fn delete(
    State(auth): State<AuthLayer>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let deleted = auth.access.0.tenants.delete(&name, now_ms()).await;
    auth.access.forget_known();
    if !deleted? {
        return Err(unknown());
    }
    info!(tenant = name, "tenant deleted");
    Ok(StatusCode::NO_CONTENT)
}

impl NewTenant {
    fn checked(self, name: &str, now_ms: u64) -> Result<Tenant, Problem> {
        let mut mistakes = Vec::new();
        let tenant_name = TenantName::new(name);
        if tenant_name.is_none() {
            let len_max = TenantName::LEN_MAX;
            mistakes.push((
                "id".to_owned(),
                format!("must be 1 to {len_max} of a-z, 0-9 and single - inside"),
            ));
        }
        let is_control = self.title.chars().any(char::is_control);
        if is_control || !(1..=TITLE_LEN_MAX).contains(&self.title.chars().count()) {
            let must =
                format!("must be 1 to {TITLE_LEN_MAX} characters without control characters");
            mistakes.push(("title".to_owned(), must));
        }
        let is_sound = self.domains.iter().all(|domain| is_domain(domain));
        if !is_sound || self.domains.len() > DOMAINS_MAX {
            let must = format!("must be at most {DOMAINS_MAX} link domains");
            mistakes.push(("domains".to_owned(), must));
        }
        let limits = self.limits.invalid_fields().into_iter();
        mistakes.extend(limits.map(|(field, must)| (format!("limits/{field}"), must)));
        let (Some(name), true) = (tenant_name, mistakes.is_empty()) else {
            return Err(invalid(&mistakes));
        };
        let mut domains = self.domains;
        domains.sort();
        domains.dedup();
        Ok(Tenant {
            name,
            title: self.title,
            domains,
            limits: self.limits,
            created_at_ms: now_ms,
            changed_at_ms: now_ms,
        })
    }
}

/// Whether the name of a link domain is valid. The domain need not exist yet.
fn is_domain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=DOMAIN_LEN_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

fn invalid(mistakes: &[(String, String)]) -> Problem {
    let details = mistakes.iter().map(|(field, must)| {
        let field = field.replace('/', ".");
        format!("{field}: {must}")
    });
    let detail = details.collect::<Vec<_>>().join("; ");
    let validation_errors = mistakes.iter().map(|(field, must)| ValidationError {
        pointer: format!("/{field}"),
        detail: must.clone(),
    });
    INVALID_TENANT
        .because(detail)
        .with_validation_errors(validation_errors.collect())
}

fn not_put(refused: PutTenantOutcome) -> Problem {
    match refused {
        PutTenantOutcome::NamesTaken(accepted) => {
            let accepted: Vec<String> = accepted
                .iter()
                .map(|(subject, n)| format!("{n} {subject}"))
                .collect();
            let detail = format!(
                "{} already have such a name: set takes_over to give them to the tenant",
                accepted.join(" and ")
            );
            TENANT_NAMES_TAKEN.because(detail)
        }
        PutTenantOutcome::DomainTaken(domain) => {
            let detail = format!("domains: \"{domain}\" belongs to another tenant");
            TENANT_DOMAIN_TAKEN.because(detail)
        }
        PutTenantOutcome::TooMany | PutTenantOutcome::Made | PutTenantOutcome::Changed => {
            let detail = format!("the maximum of {TENANTS_MAX} tenants is reached");
            TOO_MANY_TENANTS.because(detail)
        }
    }
}

fn unknown() -> Problem {
    UNKNOWN_TENANT.because("there is no such tenant")
}
