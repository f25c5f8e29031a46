//! The layer that all admin routes are behind. It names the permission that a route needs by the area of its router and by its
//! method, so that a route without one cannot be written: what reads needs `<area>:read`, everything else `<area>:write`.
//!
//! Whatever changes something is noted in the audit trail before it is done, and what became of it after.

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
use super::tenancy::{self, TenantRules};
use super::trail::{Intent, TrailError, Verdict};
use super::{Caller, Door, session};
use crate::api::{Api, MountedRules, Noting, RouteRules};
use crate::clock::now_ms;
use crate::http::refusal::{FORBIDDEN, UNAUTHORIZED};
use crate::http::{PeerAddress, Problem, Refusal, bearer};

/// 403: a change in a session that another site's page may have sent.
pub const NOT_FROM_CONSOLE: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "not_from_console",
    "Forbidden",
    "A change in a session came without the console's header, or from another site",
);

/// 503: the audit trail takes no entry.
pub const NOT_NOTED: Refusal = Refusal::unavailable(
    "not_noted",
    "The audit trail took no entry, so nothing was done",
);

/// Routes, as they are written.
type Routes = &'static [&'static str];

/// How the routes of an area are guarded.
#[derive(Clone, Debug)]
pub struct Guard {
    area: Area,
    questions: Routes,
    behind: Routes,
    unnoted: Routes,
    narrow: &'static [(Level, &'static str)],
    tenants: TenantRules,
    mounted: Arc<MountedRules>,
}

impl Guard {
    /// By method alone; every change is noted before it is done.
    pub fn of(area: Area) -> Self {
        Self {
            area,
            questions: &[],
            behind: &[],
            unnoted: &[],
            narrow: &[],
            tenants: &[],
            mounted: Arc::default(),
        }
    }

    /// Routes whose POST only asks something.
    #[must_use]
    pub fn questions(mut self, routes: Routes) -> Self {
        self.questions = routes;
        self
    }

    /// Routes whose POST is noted behind the answer: it is to be as fast as it is, and to go on while SQL is away. An origin
    /// that dies forgets the entries of the last moment.
    #[must_use]
    pub fn behind(mut self, routes: Routes) -> Self {
        self.behind = routes;
        self
    }

    /// Routes whose POST is no act of an operator, and is not noted.
    #[must_use]
    pub fn unnoted(mut self, routes: Routes) -> Self {
        self.unnoted = routes;
        self
    }

    /// Routes that heed what a narrow key is about. To all others such a key opens nothing.
    #[must_use]
    pub fn narrow(mut self, routes: &'static [(Level, &'static str)]) -> Self {
        self.narrow = routes;
        self
    }

    /// What its routes are to tenants' keys. What is not named is the platform's.
    #[must_use]
    pub fn tenants(mut self, rules: TenantRules) -> Self {
        self.tenants = rules;
        self
    }

    /// What was declared where the route is mounted, or what the lists say of it.
    fn rules(&self, method: &Method, route: &str) -> RouteRules {
        let mounted = self.mounted.get(&(reading(method), route.to_owned()));
        mounted
            .copied()
            .unwrap_or_else(|| self.listed(method, route))
    }

    fn listed(&self, method: &Method, route: &str) -> RouteRules {
        let mut rules = RouteRules::of(tenancy::rule(self.tenants, method, route));
        rules.is_question = self.questions.contains(&route);
        rules.is_narrow = self.narrow.contains(&(rules.level(method), route));
        if self.unnoted.contains(&route) {
            rules.noting = Noting::Never;
        } else if self.behind.contains(&route) {
            rules.noting = Noting::Behind;
        }
        rules
    }

    /// Why `caller` may not; `None`: it may.
    fn refusal(caller: &Caller, need: Scope, rules: &RouteRules) -> Option<Problem> {
        let name = &caller.0.name;
        if !caller.may(need) {
            let detail = format!("this needs {need}, which the key {name:?} has not");
            return Some(forbidden(detail));
        }
        let is_open = !caller.has_filter() || rules.is_narrow;
        (!is_open).then(|| {
            forbidden(format!(
                "the key {name:?} is about some domains or tags, and this is about all"
            ))
        })
    }
}

/// A HEAD is answered by the route of its GET.
fn reading(method: &Method) -> Method {
    match *method {
        Method::HEAD => Method::GET,
        _ => method.clone(),
    }
}

#[derive(Clone, Debug)]
struct Post {
    door: Door,
    guard: Guard,
}

impl Door {
    /// The routes of `api`, for those who may.
    pub fn mount<S: Clone + Send + Sync + 'static>(&self, api: Api<S>, state: S) -> Router {
        let (area, routes, rules) = api.into_parts();
        let Some(area) = area else {
            return routes.with_state(state);
        };
        let mut guard = Guard::of(area);
        guard.mounted = Arc::new(rules);
        self.guard(routes.with_state(state), guard)
    }

    /// Routes for those who may.
    pub fn guard(&self, routes: Router, guard: Guard) -> Router {
        // Axum panics at a layer over nothing: an origin without sales has none of their routes.
        if !routes.has_routes() {
            return routes;
        }
        let door = self.clone();
        routes.route_layer(from_fn_with_state(Post { door, guard }, check))
    }

    /// Who sends this.
    pub(super) async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let caller = match bearer(headers) {
            Some(shown) => {
                let shown = std::str::from_utf8(shown).map_err(|_| unknown())?;
                self.opened_by(shown).await?
            }
            // Something else that is no cookie's business.
            None if headers.contains_key(header::AUTHORIZATION) => None,
            None => self.in_session(headers).await?,
        };
        caller.ok_or_else(unknown)
    }
}

async fn check(
    State(post): State<Post>,
    route: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = route.as_ref().map_or("", MatchedPath::as_str);
    let caller = match post.door.caller(request.headers()).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let pass = match post.door.pass(&caller) {
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
    let refusal = match Guard::refusal(&caller, need, &rules) {
        None => tenancy::refusal(rules.tenants, &caller, &mut request).await,
        refusal => refusal,
    };
    let noting = rules.noting(request.method());
    let intent = Asked::of(&request, route).by(&caller);
    let run = async {
        match refusal {
            Some(problem) => problem.into_response(),
            None => next.run(request).await,
        }
    };
    let response = post.door.noted(noting, intent, run).await;
    match pass {
        Some(pass) => pass.until_sent(response),
        None => response,
    }
}

impl Door {
    /// Lets a request go on, if it is a tenant's by that tenant's pace. What is refused here is not noted: it could fill the trail.
    fn pass(&self, caller: &Caller) -> Result<Option<Pass>, Problem> {
        let Some(tenant) = caller.tenant() else {
            return Ok(None);
        };
        let pass = self.access.0.paces.take(&tenant.name, &tenant.limits);
        pass.map(Some).map_err(|wait_ms| {
            let detail = format!("too many requests of the tenant {}", tenant.name);
            let status = StatusCode::TOO_MANY_REQUESTS;
            Problem::new(status, "tenant_limit", "Too many", detail)
                .retry_after(wait_ms.div_ceil(1_000))
        })
    }

    /// Does what `run` does, with an entry in the audit trail. What cannot be noted before is not done.
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

    async fn noted(
        &self,
        noting: Noting,
        intent: Intent,
        run: impl Future<Output = Response>,
    ) -> Response {
        match noting {
            Noting::Never => run.await,
            Noting::Before => self.note(intent, run).await,
            Noting::Behind => {
                let response = run.await;
                self.access.0.behind.add(intent, verdict(&response));
                response
            }
        }
    }
}

/// What a request asks for, as the trail keeps it. The query and the body stay out: they may say what only some may read.
pub(super) struct Asked {
    method: String,
    route: String,
    path: String,
    source: String,
}

impl Asked {
    pub(super) fn of(request: &Request, route: &str) -> Self {
        let source = request.extensions().get::<PeerAddress>();
        Self {
            method: request.method().as_str().to_owned(),
            route: route.to_owned(),
            path: request.uri().path().to_owned(),
            source: source.map_or_else(String::new, |peer| peer.0.to_string()),
        }
    }

    pub(super) fn by(self, caller: &Caller) -> Intent {
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
    let made = response.headers().get(header::LOCATION);
    let made = made.and_then(|value| value.to_str().ok());
    Verdict {
        at_ms: now_ms(),
        status: response.status().as_u16(),
        made: made.unwrap_or_default().to_owned(),
    }
}

fn unknown() -> Problem {
    let detail =
        "this needs a key: authorization: Bearer <key>, or a session of the console, at /ui";
    UNAUTHORIZED.because(detail).challenge("Bearer")
}

/// 403: the key does not open this.
pub(super) fn forbidden(detail: impl Into<Cow<'static, str>>) -> Problem {
    FORBIDDEN.because(detail)
}

/// 403: a change in a session that another site's page may have sent.
pub(super) fn not_from_page() -> Problem {
    let detail = "changes within a session need the header x-weir-console: 1";
    NOT_FROM_CONSOLE.because(detail)
}

fn not_noted(failure: TrailError) -> Problem {
    match failure {
        TrailError::Sql(error) => error.into(),
        failure => {
            error!(error = %failure, "the audit trail takes no entry");
            NOT_NOTED.because("the audit trail took no entry, so nothing was done")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_nobody_thought_of_needs_to_write() {
        let guard = Guard::of(Area::Fitment).questions(&["/ask"]);
        let need = |method: &Method, route| {
            let level = guard.rules(method, route).level(method);
            let area = Area::Fitment;
            Scope { area, level }.to_string()
        };
        assert_eq!(need(&Method::GET, "/a"), "fitment:read");
        assert_eq!(need(&Method::HEAD, "/a"), "fitment:read");
        assert_eq!(need(&Method::POST, "/ask"), "fitment:read");
        assert_eq!(need(&Method::PUT, "/ask"), "fitment:write");
        for method in [Method::POST, Method::PATCH, Method::TRACE] {
            assert_eq!(need(&method, "/a"), "fitment:write", "{method}");
        }
    }

    #[test]
    fn what_changes_is_noted_before_unless_a_route_says_otherwise() {
        let guard = Guard::of(Area::Links).behind(&["/b"]).unnoted(&["/u"]);
        let noting = |method, route| guard.rules(&method, route).noting(&method);
        assert_eq!(noting(Method::POST, "/a"), Noting::Before);
        assert_eq!(noting(Method::POST, "/b"), Noting::Behind);
        assert_eq!(noting(Method::DELETE, "/b"), Noting::Before);
        assert_eq!(noting(Method::POST, "/u"), Noting::Never);
        assert_eq!(noting(Method::GET, "/a"), Noting::Never);
    }
}
