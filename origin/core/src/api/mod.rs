//! Self-describing routes: one declaration mounts a handler, sets its access rules and refusals, and documents it.
//!
//! ```text
//! Api::admin(Area::Rooms)
//!     .route(routes!(list), RouteRules::HEEDS.refuses(&[REDIS_UNAVAILABLE]))
//!     .route(routes!(set), RouteRules::for_resource(ResourceKind::Room).refuses(&[INVALID_ROOM]))
//! ```
//!
//! `#[utoipa::path]` on the handler gives path, parameters and bodies; the doc comment gives summary and description.
//! This module adds the port, the security and the refusals of layers. A route of the public port declares its own
//! security.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON that this module has made"
)]

mod document;
pub(crate) mod schemas;

use std::collections::HashMap;

use axum::Router;
use axum::http::Method;
use serde_json::{Map, Value};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa_axum::router::UtoipaMethodRouter;

use crate::access::auth_layer::{NOT_FROM_CONSOLE, NOT_NOTED, TENANT_BUSY};
use crate::access::scope::{Area, Level};
use crate::access::tenancy::{ResourceKind, TenantRule};
use crate::http::files::Page;
use crate::http::refusal::{
    FORBIDDEN, INVALID_BODY, INVALID_QUERY, OVERLOADED, SQL_UNAVAILABLE, TIMEOUT, UNAUTHORIZED,
};
use crate::http::{Problem, Refusal};

pub use document::{Document, OperationKey};

/// Schema of a string enum, for types of crates without utoipa.
pub fn words(description: &str, words: impl IntoIterator<Item = &'static str>) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description((!description.is_empty()).then_some(description))
        .enum_values(Some(words))
        .build()
}

/// When a change is written to the audit trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditTiming {
    /// Never.
    Never,
    /// Before the change runs.
    Before,
    /// After the answer is sent.
    Behind,
}

/// Where a route is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// On the admin port, behind the keys of an area.
    Admin(Area),
    /// On the admin port, without authentication.
    OpenAdmin,
    /// On the public port.
    Public,
}

impl Port {
    fn tag(self) -> &'static str {
        match self {
            Self::Admin(_) | Self::OpenAdmin => "admin",
            Self::Public => "public",
        }
    }
}

/// Access rules and refusals of a route on the admin port.
#[derive(Clone, Copy, Debug)]
pub struct RouteRules {
    /// Access of tenants' keys.
    pub tenants: TenantRule,
    /// Whether its POST changes nothing, so that `read` suffices.
    pub is_question: bool,
    /// When a POST is recorded in the audit trail.
    pub audit_timing: AuditTiming,
    /// Whether keys restricted to some domains or tags may use it.
    pub is_narrow: bool,
    /// Refusals of the handler itself, in up to four lists.
    pub refusals: [&'static [Refusal]; 4],
}

impl RouteRules {
    /// The handler filters by the caller's tenant.
    pub const HEEDS: Self = Self::with_tenant_rule(TenantRule::Heeds);

    /// Tenants' keys are refused.
    pub const PLATFORM: Self = Self::with_tenant_rule(TenantRule::Platform);

    /// No key is needed.
    pub const OPEN: Self = Self::PLATFORM;

    /// The first path parameter must name an object of the tenant.
    pub const fn for_resource(thing: ResourceKind) -> Self {
        Self::with_tenant_rule(TenantRule::Own(thing))
    }

    /// Default rules with this tenant rule.
    pub const fn with_tenant_rule(tenants: TenantRule) -> Self {
        Self {
            tenants,
            is_question: false,
            audit_timing: AuditTiming::Before,
            is_narrow: false,
            refusals: [&[]; 4],
        }
    }

    /// Adds refusals of the handler.
    #[must_use]
    pub const fn refuses(mut self, refusals: &'static [Refusal]) -> Self {
        let [a, b, c, d] = self.refusals;
        assert!(d.is_empty(), "a route has up to four lists of refusals");
        self.refusals = [refusals, a, b, c];
        self
    }

    /// Declares that the route's POST changes nothing.
    #[must_use]
    pub const fn question(mut self) -> Self {
        self.is_question = true;
        self
    }

    /// Sets when the route's POST is recorded in the audit trail.
    #[must_use]
    pub const fn audited_at(mut self, timing: AuditTiming) -> Self {
        self.audit_timing = timing;
        self
    }

    /// Allows keys restricted to some domains or tags.
    #[must_use]
    pub const fn narrow(mut self) -> Self {
        self.is_narrow = true;
        self
    }

    /// The access level that a request needs in the route's area.
    pub(crate) fn level(&self, method: &Method) -> Level {
        let is_question = *method == Method::POST && self.is_question;
        match is_question || [Method::GET, Method::HEAD].contains(method) {
            true => Level::Read,
            false => Level::Write,
        }
    }

    /// When a request is recorded in the audit trail.
    pub(crate) fn audit_timing(&self, method: &Method) -> AuditTiming {
        match self.level(method) {
            Level::Read => AuditTiming::Never,
            Level::Write if *method == Method::POST => self.audit_timing,
            Level::Write => AuditTiming::Before,
        }
    }
}

/// The rules of mounted routes, by method and path.
pub(crate) type MountedRules = HashMap<(Method, String), RouteRules>;

/// Routes of one port, with their rules and their part of the document.
#[derive(Debug)]
pub struct Api<S> {
    port: Port,
    router: Router<S>,
    rules: MountedRules,
    document: Document,
}

impl<S: Clone + Send + Sync + 'static> Api<S> {
    /// Routes of the admin port in this permission area.
    pub fn admin(area: Area) -> Self {
        Self::on(Port::Admin(area))
    }

    /// Routes of the admin port without authentication.
    pub fn open_admin() -> Self {
        Self::on(Port::OpenAdmin)
    }

    /// Routes of the public port.
    pub fn public() -> Self {
        Self::on(Port::Public)
    }

    fn on(port: Port) -> Self {
        Self {
            port,
            router: Router::new(),
            rules: HashMap::new(),
            document: Document::default(),
        }
    }

    /// Adds the handlers of one path, from `utoipa_axum::routes!`.
    #[must_use]
    pub fn route(mut self, routes: UtoipaMethodRouter<S>, rules: RouteRules) -> Self {
        let (schemas, paths, handler) = routes;
        self.document.add_schemas(schemas);
        for (path, item) in paths.paths {
            let Ok(Value::Object(operations)) = serde_json::to_value(&item) else {
                continue;
            };
            for (word, operation) in operations {
                let Ok(method) = Method::from_bytes(word.to_uppercase().as_bytes()) else {
                    continue;
                };
                let key = OperationKey {
                    // OpenAPI has no parameters that span segments.
                    path: path.replace("{*", "{"),
                    method: word,
                };
                let Value::Object(described) = operation else {
                    continue;
                };
                self.describe(&method, key, described, rules);
            }
            self.router = self.router.route(&path, handler.clone());
        }
        self
    }

    /// Adds a page and its files.
    #[must_use]
    pub fn page(mut self, page: &'static Page) -> Self {
        for (path, described, refusals) in page.described() {
            let key = OperationKey {
                path,
                method: "get".to_owned(),
            };
            let rules = RouteRules::OPEN.refuses(refusals);
            self.describe(&Method::GET, key, described, rules);
        }
        self.router = self.router.merge(page.routes());
        self
    }

    fn describe(
        &mut self,
        method: &Method,
        key: OperationKey,
        described: Map<String, Value>,
        rules: RouteRules,
    ) {
        let refusals = refusals(self.port, method, &rules, &described);
        if matches!(self.port, Port::Admin(_)) {
            let route = (method.clone(), key.path.clone());
            self.rules.insert(route, rules);
            self.document.add_rule(key.clone(), rules);
        }
        self.document.add(self.port, key, described, refusals);
    }

    /// The routes' part of the OpenAPI document.
    pub fn into_document(self) -> Document {
        self.document
    }

    /// The routes, without authorization.
    pub fn into_router(self, state: S) -> Router {
        self.router.with_state(state)
    }

    /// The permission area, if any, the routes and their rules.
    pub(crate) fn into_parts(self) -> (Option<Area>, Router<S>, MountedRules) {
        let area = match self.port {
            Port::Admin(area) => Some(area),
            Port::OpenAdmin | Port::Public => None,
        };
        (area, self.router, self.rules)
    }
}

/// All refusals of a request: by the handler, its extractors and the layers around it.
fn refusals(
    port: Port,
    method: &Method,
    rules: &RouteRules,
    described: &Map<String, Value>,
) -> Vec<Refusal> {
    let mut all = rules.refusals.concat();
    let body = described.get("requestBody");
    let is_json = body.is_some_and(|body| body["content"]["application/json"].is_object());
    all.extend(is_json.then_some(INVALID_BODY));
    let parameters = described.get("parameters").and_then(Value::as_array);
    let mut parameters = parameters.into_iter().flatten();
    let has_query = parameters.any(|parameter| parameter["in"] == "query");
    all.extend(has_query.then_some(INVALID_QUERY));
    match port {
        Port::Admin(_) => all.extend(refusals_of_guard(method, rules)),
        Port::OpenAdmin => {}
        Port::Public => all.push(TIMEOUT),
    }
    all
}

fn refusals_of_guard(method: &Method, rules: &RouteRules) -> Vec<Refusal> {
    let mut all = vec![
        TENANT_BUSY,
        UNAUTHORIZED,
        FORBIDDEN,
        SQL_UNAVAILABLE,
        OVERLOADED,
        TIMEOUT,
    ];
    if let TenantRule::Own(thing) = rules.tenants {
        all.push(thing.refusal());
    }
    if rules.level(method) == Level::Write {
        all.push(NOT_FROM_CONSOLE);
    }
    if rules.audit_timing(method) == AuditTiming::Before {
        all.push(NOT_NOTED);
    }
    all
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        refusal.because(refusal.description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_method_needs_write_and_query_route_needs_read() {
        let (plain, question) = (RouteRules::PLATFORM, RouteRules::PLATFORM.question());
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(plain.level(&method), Level::Read, "{method}");
        }
        for method in [Method::POST, Method::PATCH, Method::TRACE] {
            assert_eq!(plain.level(&method), Level::Write, "{method}");
        }
        assert_eq!(question.level(&Method::POST), Level::Read);
        assert_eq!(question.level(&Method::PUT), Level::Write);
    }

    #[test]
    fn change_is_audited_before_unless_its_route_differs() {
        let plain = RouteRules::PLATFORM;
        assert_eq!(plain.audit_timing(&Method::POST), AuditTiming::Before);
        assert_eq!(plain.audit_timing(&Method::GET), AuditTiming::Never);
        let behind = plain.audited_at(AuditTiming::Behind);
        assert_eq!(behind.audit_timing(&Method::POST), AuditTiming::Behind);
        assert_eq!(behind.audit_timing(&Method::DELETE), AuditTiming::Before);
        let unnoted = plain.audited_at(AuditTiming::Never);
        assert_eq!(unnoted.audit_timing(&Method::POST), AuditTiming::Never);
    }
}
