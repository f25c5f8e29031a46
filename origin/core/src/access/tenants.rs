//! Tenants as routes, for the platform's operators.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tracing::info;

use super::Door;
use crate::clock::now_ms;
use crate::http::{Fault, JsonBody, Problem};
use crate::tenants::store::Put;
use crate::tenants::{DOMAINS_MAX, Limits, TENANTS_MAX, Tenant, TenantName};

/// The longest title, in characters.
const TITLE_LEN_MAX: usize = 80;

/// The longest name of a domain of links, in bytes.
const DOMAIN_LEN_MAX: usize = 16;

pub(super) fn routes(door: &Door) -> Router {
    Router::new()
        .route("/tenants", get(list))
        .route("/tenants/{id}", get(one).put(put).delete(delete))
        .with_state(door.clone())
}

/// A tenant that is to be. All of it is replaced: what is left out is as in one that nobody has set anything of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTenant {
    title: String,
    #[serde(default)]
    domains: Vec<String>,
    #[serde(default)]
    limits: Limits,
    /// Whether a new tenant gets what bears its name already.
    #[serde(default)]
    takes_over: bool,
}

/// A tenant as operators see it.
#[derive(Serialize)]
struct TenantView {
    name: TenantName,
    title: String,
    /// How the names of its sales and rooms begin.
    prefix: String,
    domains: Vec<String>,
    limits: Limits,
    created_at_ms: u64,
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

/// `GET /tenants`: all, by their names.
async fn list(State(door): State<Door>) -> Result<Json<Value>, Problem> {
    let tenants = door.access.0.tenants.all().await?;
    let tenants: Vec<TenantView> = tenants.into_iter().map(Into::into).collect();
    Ok(Json(json!({ "tenants": tenants })))
}

/// `GET /tenants/{id}`: one, with what stands against its limits.
async fn one(State(door): State<Door>, Path(name): Path<String>) -> Result<Json<Value>, Problem> {
    let (access, now_ms) = (&door.access.0, now_ms());
    let tenant = access.tenants.tenant(&name).await?.ok_or_else(unknown)?;
    let used = access.tenants.used(&tenant.name).await?;
    let keys = access.store.good_keys(&name, now_ms).await?;
    let used = used.into_iter().chain([("keys", keys)]);
    let used: Map<String, Value> = used
        .map(|(what, count)| (what.to_owned(), json!(count)))
        .collect();
    let mut view = json!(TenantView::from(tenant));
    view["used"] = Value::Object(used);
    Ok(Json(view))
}

/// `PUT /tenants/{id}`: makes a tenant, or changes one.
async fn put(
    State(door): State<Door>,
    Path(name): Path<String>,
    JsonBody(new): JsonBody<NewTenant>,
) -> Result<(StatusCode, Json<TenantView>), Problem> {
    let takes_over = new.takes_over;
    let tenant = new.checked(&name, now_ms())?;
    let put = door.access.0.tenants.put(&tenant, takes_over).await;
    // Even if the answer was lost: it may be done.
    door.access.forget_known();
    let status = match put? {
        Put::Made => StatusCode::CREATED,
        Put::Changed => StatusCode::OK,
        refused => return Err(not_put(refused)),
    };
    info!(tenant = name, limits = ?tenant.limits, domains = ?tenant.domains, "tenant set");
    let stored = door.access.0.tenants.tenant(&name).await?;
    Ok((status, Json(stored.ok_or_else(unknown)?.into())))
}

/// `DELETE /tenants/{id}`: its keys open nothing any more; what bears its name stays, and is the platform's.
async fn delete(State(door): State<Door>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let deleted = door.access.0.tenants.delete(&name, now_ms()).await;
    door.access.forget_known();
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
            let must = format!("must be 1 to {TITLE_LEN_MAX} characters, none a control character");
            mistakes.push(("title".to_owned(), must));
        }
        let is_sound = self.domains.iter().all(|domain| is_domain(domain));
        if !is_sound || self.domains.len() > DOMAINS_MAX {
            let must = format!("must be at most {DOMAINS_MAX} names of domains of links");
            mistakes.push(("domains".to_owned(), must));
        }
        let limits = self.limits.mistakes().into_iter();
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

/// Whether a domain of links may be called so. Whether there is one is no matter: it may come later.
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
    let faults = mistakes.iter().map(|(field, must)| Fault {
        pointer: format!("/{field}"),
        detail: must.clone(),
    });
    Problem::unprocessable("invalid_tenant", "Invalid tenant", detail).with_faults(faults.collect())
}

fn not_put(refused: Put) -> Problem {
    match refused {
        Put::NamesTaken(taken) => {
            let taken: Vec<String> = taken
                .iter()
                .map(|(what, n)| format!("{n} {what}"))
                .collect();
            let detail = format!(
                "{} bear such a name already: with takes_over they become the tenant's",
                taken.join(" and ")
            );
            Problem::conflict("tenant_names_taken", "Names taken", detail)
        }
        Put::DomainTaken(domain) => {
            let detail = format!("domains: {domain} is another tenant's");
            Problem::conflict("tenant_domain_taken", "Domain taken", detail)
        }
        Put::TooMany | Put::Made | Put::Changed => {
            let detail = format!("there are {TENANTS_MAX} tenants already");
            Problem::conflict("too_many_tenants", "Too many tenants", detail)
        }
    }
}

fn unknown() -> Problem {
    Problem::not_found(
        "unknown_tenant",
        "Unknown tenant",
        "there is no such tenant",
    )
}
