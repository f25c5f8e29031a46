//! Routes that describe themselves: one declaration mounts a handler, says who may call it and why it refuses, and documents it.
//!
//! ```text
//! Api::admin(Area::Rooms)
//!     .route(routes!(list), RouteRules::HEEDS.refuses(&[REDIS_UNAVAILABLE]))
//!     .route(routes!(set), RouteRules::own(Thing::Room).refuses(&[INVALID_ROOM]))
//! ```
//!
//! `#[utoipa::path]` on the handler gives its path, its parameters and its bodies; the doc comment gives summary and description. Here
//! are added: the port, the security, and the refusals that layers give.

mod document;
pub(crate) mod schemas;

use std::collections::HashMap;

use axum::Router;
use axum::http::Method;
use axum::routing::MethodRouter;
use serde_json::Value;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa_axum::router::UtoipaMethodRouter;

use crate::access::guard::{FORBIDDEN, NOT_FROM_CONSOLE, NOT_NOTED, UNAUTHORIZED};
use crate::access::scope::{Area, Level};
use crate::access::tenancy::{TenantRule, Thing};
use crate::http::refusal::{INVALID_BODY, INVALID_QUERY, OVERLOADED, SQL_UNAVAILABLE, TIMEOUT};
use crate::http::{Problem, Refusal};

pub use document::{Document, OperationKey};

/// The schema of a member that is one of some words, for types of crates that do not know the document.
pub fn words<const N: usize>(description: &str, words: [&'static str; N]) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description((!description.is_empty()).then_some(description))
        .enum_values(Some(words))
        .build()
}

/// When a change is written to the audit trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noting {
    /// Not at all.
    Never,
    /// Before it is made.
    Before,
    /// Behind the answer.
    Behind,
}

/// Who may call a route of the admin port, and how it may refuse.
#[derive(Clone, Copy, Debug)]
pub struct RouteRules {
    /// What it is to a tenant's key.
    pub tenants: TenantRule,
    /// Whether its POST changes nothing, so that `read` suffices.
    pub is_question: bool,
    /// When a POST is written to the audit trail.
    pub noting: Noting,
    /// Whether a key of some domains or tags opens it.
    pub is_narrow: bool,
    /// Refusals of the handler itself.
    pub refusals: &'static [Refusal],
}

impl RouteRules {
    /// The handler looks up what belongs to the tenant.
    pub const HEEDS: Self = Self::of(TenantRule::Heeds);

    /// No tenant's key opens it.
    pub const PLATFORM: Self = Self::of(TenantRule::Platform);

    /// The first path parameter names something of the tenant.
    pub const fn own(thing: Thing) -> Self {
        Self::of(TenantRule::Own(thing))
    }

    /// The usual rules, with this one for tenants.
    pub const fn of(tenants: TenantRule) -> Self {
        Self {
            tenants,
            is_question: false,
            noting: Noting::Before,
            is_narrow: false,
            refusals: &[],
        }
    }

    /// The same, whose handler may refuse for these reasons.
    #[must_use]
    pub const fn refuses(mut self, refusals: &'static [Refusal]) -> Self {
        self.refusals = refusals;
        self
    }

    /// The same; its POST changes nothing.
    #[must_use]
    pub const fn question(mut self) -> Self {
        self.is_question = true;
        self
    }

    /// The same; its POST is noted at this time.
    #[must_use]
    pub const fn noted(mut self, noting: Noting) -> Self {
        self.noting = noting;
        self
    }

    /// The same, and a key of some domains or tags opens it.
    #[must_use]
    pub const fn narrow(mut self) -> Self {
        self.is_narrow = true;
        self
    }

    /// What a caller needs in the route's area.
    pub(crate) fn level(&self, method: &Method) -> Level {
        let is_question = *method == Method::POST && self.is_question;
        match is_question || [Method::GET, Method::HEAD].contains(method) {
            true => Level::Read,
            false => Level::Write,
        }
    }

    /// When a request is written to the audit trail.
    pub(crate) fn noting(&self, method: &Method) -> Noting {
        match self.level(method) {
            Level::Read => Noting::Never,
            Level::Write if *method == Method::POST => self.noting,
            Level::Write => Noting::Before,
        }
    }
}

/// The rules of mounted routes, by method and path.
pub(crate) type MountedRules = HashMap<(Method, String), RouteRules>;

/// The routes of one area on the admin port, with their rules and their part of the document.
#[derive(Debug)]
pub struct Api<S> {
    area: Area,
    router: Router<S>,
    rules: MountedRules,
    document: Document,
}

impl<S: Clone + Send + Sync + 'static> Api<S> {
    /// Without routes.
    pub fn admin(area: Area) -> Self {
        Self {
            area,
            router: Router::new(),
            rules: HashMap::new(),
            document: Document::default(),
        }
    }

    /// The same with the handlers of one path, as `utoipa_axum::routes!` gives them.
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
                self.rules.insert((method.clone(), path.clone()), rules);
                let refusals = refusals(&method, &rules, &operation);
                let key = OperationKey {
                    path: path.clone(),
                    method: word,
                };
                self.document.add_admin(key, operation, &refusals, rules);
            }
            self.router = self.router.route(&path, handler.clone());
        }
        self
    }

    /// The same with handlers of one path that `origin/openapi.json` describes.
    #[must_use]
    pub fn route_described_by_hand(
        mut self,
        path: &str,
        methods: &[Method],
        handlers: MethodRouter<S>,
        rules: RouteRules,
    ) -> Self {
        for method in methods {
            let key = (method.clone(), path.to_owned());
            self.rules.insert(key, rules);
            let method = method.as_str().to_lowercase();
            let path = path.to_owned();
            self.document.add_rule(OperationKey { path, method }, rules);
        }
        self.router = self.router.route(path, handlers);
        self
    }

    /// What it adds to the OpenAPI document.
    pub fn into_document(self) -> Document {
        self.document
    }

    /// Its area, its routes and their rules.
    pub(crate) fn into_parts(self) -> (Area, Router<S>, MountedRules) {
        (self.area, self.router, self.rules)
    }
}

/// All reasons for which a request may be refused: those of the handler, of its extractors and of the layers around it. The pace of
/// tenants (429) is a response of its own.
fn refusals(method: &Method, rules: &RouteRules, operation: &Value) -> Vec<Refusal> {
    let mut all = rules.refusals.to_vec();
    let is_json = operation["requestBody"]["content"]["application/json"].is_object();
    all.extend(is_json.then_some(INVALID_BODY));
    let mut parameters = operation["parameters"].as_array().into_iter().flatten();
    let has_query = parameters.any(|parameter| parameter["in"] == "query");
    all.extend(has_query.then_some(INVALID_QUERY));
    all.extend([
        UNAUTHORIZED,
        FORBIDDEN,
        SQL_UNAVAILABLE,
        OVERLOADED,
        TIMEOUT,
    ]);
    if let TenantRule::Own(thing) = rules.tenants {
        all.push(thing.refusal());
    }
    if rules.level(method) == Level::Write {
        all.push(NOT_FROM_CONSOLE);
    }
    if rules.noting(method) == Noting::Before {
        all.push(NOT_NOTED);
    }
    all
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        refusal.because(refusal.meaning)
    }
}
