//! Routes of console sessions.

use std::net::{IpAddr, Ipv4Addr};

use axum::Json;
use axum::extract::{FromRequest, MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tracing::warn;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::http::{NO_RANDOM, no_random, scopes};
use super::scope::Role;
use super::session::{SignInError, is_from_page, set_cookie};
use super::{AuthLayer, Caller, auth_layer};
use crate::api::{Api, RouteRules};
use crate::clock::now_ms;
use crate::http::refusal::{BODY_TOO_LARGE, OVERLOADED, SQL_UNAVAILABLE, TIMEOUT, UNAUTHORIZED};
use crate::http::{PeerAddress, Problem, Refusal, TypedBody};
use crate::tenants::TenantName;

const TOO_MANY_ATTEMPTS: Refusal = Refusal::new(
    StatusCode::TOO_MANY_REQUESTS,
    "too_many_attempts",
    "Too many attempts",
    "Too many invalid keys from this address; it has to wait",
);

const WRONG_KEY: Refusal = Refusal::new(
    StatusCode::UNAUTHORIZED,
    "wrong_key",
    "Invalid key",
    "The key is unknown or has expired",
);

/// The routes of sessions. They need no permission; the handlers identify the caller.
pub(super) fn api() -> Api<AuthLayer> {
    let rules = RouteRules::OPEN.refuses(&[SQL_UNAVAILABLE, OVERLOADED, TIMEOUT]);
    Api::open_admin()
        .route(
            routes!(sign_in),
            rules.refuses(&[
                WRONG_KEY,
                auth_layer::NOT_FROM_CONSOLE,
                auth_layer::NOT_NOTED,
                TOO_MANY_ATTEMPTS,
                NO_RANDOM,
                BODY_TOO_LARGE,
            ]),
        )
        .route(routes!(whoami), rules.refuses(&[UNAUTHORIZED]))
        .route(
            routes!(sign_out),
            rules.refuses(&[auth_layer::NOT_FROM_CONSOLE]),
        )
}

/// The sign-in request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SignIn {
    /// A key, or the admin token.
    key: String,
}

/// The caller of a request.
#[derive(Serialize, ToSchema)]
#[schema(as = Caller)]
struct CallerView {
    /// Its id.
    id: String,
    /// Display name.
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// Role of the caller; null: scopes were set directly.
    #[schema(required, value_type = Option<Role>)]
    role: Option<&'static str>,
    /// Permissions, from its role or set directly.
    #[schema(schema_with = scopes)]
    scopes: Vec<String>,
    /// Domains that the key is restricted to; empty: all.
    domains: Vec<String>,
    /// Tags that the key is restricted to: links with at least one; empty: all.
    tags: Vec<String>,
    /// Tenant of the key; null: the platform.
    #[schema(required, value_type = Option<String>)]
    tenant: Option<TenantName>,
    /// Whether it is a session of the console.
    session: bool,
    /// Milliseconds since the Unix epoch.
    #[schema(required)]
    expires_at_ms: Option<u64>,
}

impl From<Caller> for CallerView {
    fn from(caller: Caller) -> Self {
        let user = caller.0.as_ref().clone();
        Self {
            id: user.id,
            name: user.name,
            role: user.role.map(Role::label),
            scopes: user.scopes.words(),
            domains: user.domains,
            tags: user.tags,
            tenant: user.tenant.map(|tenant| tenant.name.clone()),
            session: user.session.is_some(),
            expires_at_ms: user.expires_at_ms,
        }
    }
}

/// Get the caller and its permissions
///
/// Returns the caller, identified by a key or a session, and its permissions. Pages use it before they show a form.
#[utoipa::path(
    get,
    path = "/access/session",
    operation_id = "getCaller",
    responses((status = 200, description = "They", body = CallerView), (status = 204, description = "Not signed in")),
)]
async fn whoami(State(auth): State<AuthLayer>, headers: HeaderMap) -> Result<Response, Problem> {
    match auth.caller(&headers).await {
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

/// Sign in to the console: exchange a key for the cookie weir_session
///
/// Starts a console session: exchanges a key for the cookie `weir_session`, which scripts cannot read.
#[utoipa::path(
    post,
    path = "/access/session",
    operation_id = "signIn",
    params(("x-weir-console" = String, Header, description = "Any value: pages of other sites cannot send this header.")),
    request_body = SignIn,
    responses((status = 201, description = "Signed in", body = CallerView)),
)]
async fn sign_in(
    State(auth): State<AuthLayer>,
    route: MatchedPath,
    request: Request,
) -> Result<Response, Problem> {
    if !is_from_page(request.headers()) {
        return Err(auth_layer::not_from_page());
    }
    let headers = request.headers().clone();
    let address = request.extensions().get::<PeerAddress>();
    let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
    let requested = auth_layer::AuditedRequest::from_request(&request, route.as_str());
    let TypedBody(SignIn { key }) = TypedBody::from_request(request, &()).await?;
    let caller = auth.let_in(key.trim(), address).await?;
    let intent = requested.with_caller(&caller);
    let begin = async {
        match auth.begin_session(&caller).await {
            Ok((cookie, caller)) => session_response(&cookie, caller, &headers),
            Err(failure) => not_begun(failure).into_response(),
        }
    };
    Ok(auth.note(intent, begin).await)
}

impl AuthLayer {
    /// Authenticates a sign-in. An address with too many failures has to wait.
    async fn let_in(&self, presented: &str, address: IpAddr) -> Result<Caller, Problem> {
        let attempts = &self.access.0.attempts;
        if let Some(wait_ms) = attempts.wait_ms(address, now_ms()) {
            self.access.0.metrics.sign_in("too_many");
            return Err(too_many(wait_ms));
        }
        let Some(caller) = self.opened_by(presented).await? else {
            attempts.failed(address, now_ms());
            self.access.0.metrics.sign_in("refused");
            warn!(%address, "console sign-in with an invalid key");
            return Err(wrong_key());
        };
        self.access.0.metrics.sign_in("done");
        Ok(caller)
    }
}

fn session_response(cookie: &str, caller: Caller, headers: &HeaderMap) -> Response {
    let view: CallerView = caller.into();
    let mut response = (StatusCode::CREATED, Json(view)).into_response();
    if let Some(cookie) = set_cookie(Some(cookie), headers) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// Sign out
///
/// Ends the session.
#[utoipa::path(
    delete,
    path = "/access/session",
    operation_id = "signOut",
    params(("x-weir-console" = String, Header, description = "Any value: pages of other sites cannot send this header.")),
    responses((status = 204, description = "The session is ended")),
)]
async fn sign_out(State(auth): State<AuthLayer>, headers: HeaderMap) -> Result<Response, Problem> {
    if !is_from_page(&headers) {
        return Err(auth_layer::not_from_page());
    }
    let caller = auth.in_session(&headers).await?;
    if let Some(id) = caller
        .as_ref()
        .and_then(|caller| caller.0.session.as_deref())
    {
        auth.access.0.store.end_session(id).await?;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(cookie) = set_cookie(None, &headers) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn wrong_key() -> Problem {
    let detail = "the key is unknown or has expired";
    WRONG_KEY.because(detail).challenge("Bearer")
}

fn too_many(wait_ms: u64) -> Problem {
    let detail = "too many invalid keys from this address; please wait";
    TOO_MANY_ATTEMPTS
        .because(detail)
        .retry_after(wait_ms.div_ceil(1_000))
}

fn not_begun(failure: SignInError) -> Problem {
    match failure {
        SignInError::Sql(error) => error.into(),
        SignInError::NoRandom(failure) => no_random(failure),
    }
}
