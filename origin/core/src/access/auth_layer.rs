//! The authorization layer around all admin routes. The area of a route's [`Api`] and its method determine the
//! permission: reads need `<area>:read`, everything else `<area>:write`. A route without a permission cannot be
//! declared.
//!
//! Changes are recorded in the audit trail before they run; the outcome is recorded afterwards.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tracing::error;

use super::pace::Pass;
use super::scope::{Area, Level, Scope};
use super::tenancy;
use super::trail::{Intent, TrailError, Verdict};
use super::{AuditDetail, AuthLayer, Caller, session};
use crate::api::{Api, AuditTiming, MountedRules, RouteRules};
use crate::clock::now_ms;
use crate::http::refusal::{FORBIDDEN, UNAUTHORIZED};
use crate::http::{PeerAddress, Problem, Refusal, bearer};

/// 403: a change in a session that another site's page may have sent.
pub const NOT_FROM_CONSOLE: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "not_from_console",
    "Forbidden",
    "A session change without the console's header, or from another site",
);

/// 503: cannot write an audit entry.
pub const NOT_NOTED: Refusal = Refusal::unavailable(
    "not_noted",
    "The audit entry could not be stored, so nothing was done",
);

/// 429: the tenant exceeds its request rate.
pub(crate) const TENANT_BUSY: Refusal = Refusal::new(
    StatusCode::TOO_MANY_REQUESTS,
    "tenant_limit",
    "Too many",
    "The tenant would exceed its limits",
);

/// The authorization rules of an area's routes.
#[derive(Clone, Debug)]
struct AreaRules {
    area: Area,
    mounted: Arc<MountedRules>,
}

impl AreaRules {
    /// The rules declared where the route is mounted.
    fn rules(&self, method: &Method, route: &str) -> RouteRules {
        let mounted = self.mounted.get(&(reading(method), route.to_owned()));
        mounted.copied().unwrap_or(RouteRules::PLATFORM)
    }

    /// Why `caller` is refused; `None`: it is allowed.
    fn refusal(caller: &Caller, need: Scope, rules: &RouteRules) -> Option<Problem> {
        let name = &caller.0.name;
        if !caller.may(need) {
            let detail = format!("this needs {need}, which the key {name:?} lacks");
            return Some(forbidden(detail));
        }
        let is_open = !caller.has_filter() || rules.is_narrow;
        (!is_open).then(|| {
            forbidden(format!(
                "the key {name:?} is restricted to some domains or tags, but this covers all"
            ))
        })
    }
}

/// The route of GET also answers HEAD.
fn reading(method: &Method) -> Method {
    match *method {
        Method::HEAD => Method::GET,
        _ => method.clone(),
    }
}

#[derive(Clone, Debug)]
struct CheckState {
    auth: AuthLayer,
    guard: AreaRules,
}

impl AuthLayer {
    /// Mounts the routes of `api` behind authorization.
    pub fn mount<S: Clone + Send + Sync + 'static>(&self, api: Api<S>, state: S) -> Router {
        let (area, routes, rules) = api.into_parts();
        let routes = routes.with_state(state);
        let Some(area) = area else {
            return routes;
        };
        let guard = AreaRules {
            area,
            mounted: Arc::new(rules),
        };
        let auth = self.clone();
        routes.route_layer(from_fn_with_state(CheckState { auth, guard }, check))
    }

    /// Authenticates the caller of a request.
    pub(super) async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let caller = match bearer(headers) {
            Some(token) => {
                let token = std::str::from_utf8(token).map_err(|_| unknown())?;
                self.opened_by(token).await?
            }
            // With another authorization header, the cookie does not apply.
            None if headers.contains_key(header::AUTHORIZATION) => None,
            None => self.in_session(headers).await?,
        };
        caller.ok_or_else(unknown)
    }
}

async fn check(
    State(post): State<CheckState>,
    route: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = route.as_ref().map_or("", MatchedPath::as_str);
    let caller = match post.auth.caller(request.headers()).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let pass = match post.auth.pass(&caller) {
        Ok(pass) => pass,
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(caller.clone());
    let guard = post.guard;
    let rules = guard.rules(request.method(), route);
    let need = Scope {
        area: guard.area,
        level: rules.level(request.method()),
    };
    let is_change = need.level == Level::Write;
    if is_change && caller.0.session.is_some() && !session::is_from_page(request.headers()) {
        return not_from_page().into_response();
    }
    let refusal = match AreaRules::refusal(&caller, need, &rules) {
        None => tenancy::refusal(rules.tenants, &caller, &mut request).await,
        refusal => refusal,
    };
    let timing = rules.audit_timing(request.method());
    let intent = AuditedRequest::from_request(&request, route).with_caller(&caller);
    let run = async {
        match refusal {
            Some(problem) => problem.into_response(),
            None => next.run(request).await,
        }
    };
    let response = post.auth.run_audited(timing, intent, run).await;
    match pass {
        Some(pass) => pass.until_sent(response),
        None => response,
    }
}

impl AuthLayer {
    /// Applies the rate limit of the caller's tenant, if it has one. Refused requests are not recorded: they could fill
    /// the audit trail.
    fn pass(&self, caller: &Caller) -> Result<Option<Pass>, Problem> {
        let Some(tenant) = caller.tenant() else {
            return Ok(None);
        };
        let pass = self.access.0.paces.take(&tenant.name, &tenant.limits);
        pass.map(Some).map_err(|wait_ms| {
            let detail = format!("too many requests of the tenant \"{}\"", tenant.name);
            TENANT_BUSY
                .because(detail)
                .retry_after(wait_ms.div_ceil(1_000))
        })
    }

    /// Runs `run` with an entry in the audit trail. If the entry cannot be written first, `run` does not start.
    pub(super) async fn note(
        &self,
        intent: Intent,
        run: impl Future<Output = Response>,
    ) -> Response {
        let trail = &self.access.0.trail;
        let id = match trail.begin(&intent).await {
            Ok(id) => id,
            Err(error) => return not_noted(error).into_response(),
        };
        let response = run.await;
        trail.end(id, &verdict(&response)).await;
        response
    }

    async fn run_audited(
        &self,
        timing: AuditTiming,
        intent: Intent,
        run: impl Future<Output = Response>,
    ) -> Response {
        match timing {
            AuditTiming::Never => run.await,
            AuditTiming::Before => self.note(intent, run).await,
            AuditTiming::Behind => {
                let response = run.await;
                self.access.0.behind.add(intent, verdict(&response));
                response
            }
        }
    }
}

/// The request in the form that the audit trail stores. Query and body are omitted, because they may contain restricted
/// data.
pub(super) struct AuditedRequest {
    method: String,
    route: String,
    path: String,
    source: String,
}

impl AuditedRequest {
    pub(super) fn from_request(request: &Request, route: &str) -> Self {
        let source = request.extensions().get::<PeerAddress>();
        Self {
            method: request.method().as_str().to_owned(),
            route: route.to_owned(),
            path: request.uri().path().to_owned(),
            source: source.map_or_else(String::new, |peer| peer.0.to_string()),
        }
    }

    pub(super) fn with_caller(self, caller: &Caller) -> Intent {
        Intent {
            at_ms: now_ms(),
            actor: caller.0.id.clone(),
            actor_name: caller.0.name.clone(),
            tenant: caller.tenant().map(|tenant| tenant.name.to_string()),
            is_session: caller.0.session.is_some(),
            method: self.method,
            route: self.route,
            path: self.path,
            source: self.source,
        }
    }
}

fn verdict(response: &Response) -> Verdict {
    let created = response.headers().get(header::LOCATION);
    let created = created.and_then(|value| value.to_str().ok());
    let detail = response.extensions().get::<AuditDetail>();
    Verdict {
        at_ms: now_ms(),
        status: response.status().as_u16(),
        created: created.unwrap_or_default().to_owned(),
        detail: detail.map_or_else(String::new, |detail| detail.0.clone()),
    }
}

fn unknown() -> Problem {
    let detail =
        "this needs a key (authorization: Bearer <key>) or a console session (sign in at /ui)";
    UNAUTHORIZED.because(detail).challenge("Bearer")
}

/// 403: the key lacks the permission.
pub(super) fn forbidden(detail: impl Into<Cow<'static, str>>) -> Problem {
    FORBIDDEN.because(detail)
}

/// 403: a change in a session that another site's page may have sent.
pub(super) fn not_from_page() -> Problem {
    let detail = "changes in a console session need the header x-weir-console: 1";
    NOT_FROM_CONSOLE.because(detail)
}

fn not_noted(failure: TrailError) -> Problem {
    match failure {
        TrailError::Sql(error) => error.into(),
        failure => {
            error!(error = %failure, "cannot write an audit entry");
            NOT_NOTED.because("the audit entry could not be stored, so nothing was done")
        }
    }
}
