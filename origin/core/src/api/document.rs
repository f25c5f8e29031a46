//! Builds the OpenAPI document from the parts that each area generates.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON that this module has made"
)]

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::schemas::{self, Schemas, Use};
use super::{Port, RouteRules};
use crate::access::tenancy::TenantRule;
use crate::http::refusal::{NO_METHOD, NO_ROUTE};
use crate::http::{ProblemBody, Refusal};

/// An operation's path and method, as written in the document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationKey {
    /// The path as mounted.
    pub path: String,
    /// The method in lower case.
    pub method: String,
}

/// A part of the document.
#[derive(Clone, Debug, Default)]
pub struct Document {
    operations: BTreeMap<OperationKey, Operation>,
    schemas: Schemas,
    rules: BTreeMap<OperationKey, TenantRule>,
}

/// An operation of one port, or of both.
#[derive(Clone, Debug)]
struct Operation {
    /// The handler's description, without refusals.
    described: Map<String, Value>,
    ports: Vec<Port>,
    /// The accepted authentication schemes.
    security: Vec<Value>,
    refusals: Vec<Refusal>,
}

impl Document {
    /// The responses that every port may give: problems.
    pub fn of_every_port() -> Self {
        let mut document = Self::default();
        let mut schemas = vec![(ProblemBody::name().into_owned(), ProblemBody::schema())];
        ProblemBody::schemas(&mut schemas);
        document.add_schemas(schemas);
        document
    }

    pub(super) fn add_schemas(&mut self, schemas: Vec<(String, RefOr<Schema>)>) {
        for (name, schema) in schemas {
            self.schemas
                .insert(name, serde_json::to_value(schema).unwrap_or_default());
        }
    }

    /// Adds an operation of a port with its possible refusals.
    pub(super) fn add(
        &mut self,
        port: Port,
        key: OperationKey,
        mut described: Map<String, Value>,
        refusals: Vec<Refusal>,
    ) {
        if !described.contains_key("description") {
            let summary = described.get("summary").and_then(Value::as_str);
            let description = format!("{}.", summary.unwrap_or_default().trim_end_matches('.'));
            described.insert("description".to_owned(), description.into());
        }
        let parameters = described
            .get_mut("parameters")
            .and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            merge_default(&mut parameter["schema"]);
            // A schema by `schema_with` contains its own description.
            if parameter["description"].is_null()
                && let Some(schema) = parameter["schema"].as_object_mut()
                && let Some(description) = schema.remove("description")
            {
                parameter["description"] = description;
            }
        }
        if let Some(body) = described.get_mut("requestBody") {
            name_optional_body(body);
        }
        described.remove("tags");
        let own_security = described.remove("security");
        let security = match (port, own_security) {
            (Port::Admin(_), _) => vec![json!({ "admin": [] })],
            (_, Some(Value::Array(ways))) => ways,
            _ => vec![json!({})],
        };
        let operation = Operation {
            described,
            ports: vec![port],
            security,
            refusals,
        };
        match self.operations.get_mut(&key) {
            Some(other) => other.merge(operation),
            None => drop(self.operations.insert(key, operation)),
        }
    }

    pub(super) fn add_rule(&mut self, key: OperationKey, rules: RouteRules) {
        self.rules.insert(key, rules.tenants);
    }

    /// Merges another part. If both contain an operation, the first description is used.
    pub fn merge(&mut self, other: Self) {
        for (key, operation) in other.operations {
            match self.operations.get_mut(&key) {
                Some(existing) => existing.merge(operation),
                None => drop(self.operations.insert(key, operation)),
            }
        }
        self.schemas.extend(other.schemas);
        self.rules.extend(other.rules);
    }

    /// The tenant rule of each operation.
    pub fn tenant_rules(&self) -> &BTreeMap<OperationKey, TenantRule> {
        &self.rules
    }

    /// The complete document, for an origin of this version.
    pub fn to_value(&self, version: &str) -> Value {
        let mut whole = without_operations(version);
        for (key, operation) in &self.operations {
            whole["paths"][&key.path][&key.method] = operation.write();
        }
        let raw = &mut whole["components"]["schemas"];
        for (name, schema) in &self.schemas {
            raw[name] = schema.clone();
        }
        let bodies = |of_patch: bool| {
            let operations = self.operations.iter();
            operations
                .filter(move |(key, _)| !of_patch || key.method == "patch")
                .filter_map(|(_, operation)| operation.described.get("requestBody"))
        };
        let of_requests = schemas::reachable(bodies(false), raw);
        let of_patches: Vec<String> = bodies(true).filter_map(schemas::body_name).collect();
        let mut derived = self.schemas.clone();
        schemas::normalize_all(&mut derived, |name| {
            if of_patches.iter().any(|one| one == name) {
                Use::Patch
            } else if of_requests.contains(name) {
                Use::Request
            } else {
                Use::Answer
            }
        });
        for (name, schema) in derived {
            whole["components"]["schemas"][name] = schema;
        }
        let used = schemas::reachable([&whole["paths"]], &whole["components"]["schemas"]);
        if let Some(all) = whole["components"]["schemas"].as_object_mut() {
            // After flattening, some structs are no longer referenced.
            all.retain(|name, _| used.contains(name) || !self.schemas.contains_key(name));
        }
        let refusals = self.operations.values();
        let refusals = refusals.flat_map(|operation| &operation.refusals);
        for refusal in refusals.chain(&[NO_ROUTE, NO_METHOD]) {
            whole["info"]["x-error-codes"][refusal.code] = refusal.description.into();
        }
        whole
    }
}

/// utoipa describes an optional body as null or its type. Client generators need the type's name alone.
fn name_optional_body(body: &mut Value) {
    let Some(schema) = body.pointer_mut("/content/application~1json/schema") else {
        return;
    };
    let choices = schema.get("oneOf").and_then(Value::as_array);
    let mut choices = choices.into_iter().flatten();
    let reference = choices.find_map(|choice| choice["$ref"].as_str());
    if let Some(reference) = reference {
        *schema = json!({ "$ref": reference });
        body["required"] = false.into();
    }
}

fn without_operations(version: &str) -> Value {
    let header = |name| json!({ "type": "apiKey", "in": "header", "name": name });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir origin",
            "version": version,
            "description": "Routes tagged `public` are on --listen, behind the gateways; those tagged `admin` are on --admin-listen. GET /healthz is on both. Errors are problem details (RFC 9457) with a code in `error`; each response lists its codes in x-error-codes, and info.x-error-codes explains each. An unknown path answers 404 `no_route`, an unsupported method 405 `no_method`.",
        },
        "components": { "securitySchemes": {
            "admin": {
                "type": "http",
                "scheme": "bearer",
                "description": "A key, or the admin token. Alternatively, the cookie weir_session from POST /access/session with the header x-weir-console. A key without the permission for a route gets 403 `forbidden`",
            },
            "claim": header("x-weir-claim"),
            "claimSignature": header("x-weir-claim-signature"),
            "user": header("x-weir-user"),
            "userSignature": header("x-weir-user-signature"),
        } },
    })
}

impl Operation {
    /// Merges another port's description of this operation.
    fn merge(&mut self, other: Self) {
        self.ports.extend(other.ports);
        self.security.extend(other.security);
        self.refusals.extend(other.refusals);
        let others = other.described.get("responses").and_then(Value::as_object);
        let own = self.described.entry("responses");
        let own = own.or_insert_with(|| json!({}));
        for (status, response) in others.into_iter().flatten() {
            if own[status].is_null() {
                own[status] = response.clone();
            }
        }
        let others = other.described.get("parameters").and_then(Value::as_array);
        let own = self.described.entry("parameters");
        let Value::Array(own) = own.or_insert_with(|| json!([])) else {
            return;
        };
        for parameter in others.into_iter().flatten() {
            let place = |one: &Value| (one["in"].clone(), one["name"].clone());
            if own
                .iter()
                .all(|existing| place(existing) != place(parameter))
            {
                own.push(parameter.clone());
            }
        }
    }

    fn write(&self) -> Value {
        let mut whole = Value::Object(self.described.clone());
        let mut tags: Vec<&str> = self.ports.iter().map(|port| port.tag()).collect();
        tags.dedup();
        whole["tags"] = json!(tags);
        whole["security"] = match self.security.as_slice() {
            [only] if *only == json!({}) => json!([]),
            ways => ways.into(),
        };
        for (status, of_status) in by_status(&self.refusals) {
            let described = &mut whole["responses"][status.to_string()];
            *described = response(described.take(), &of_status);
        }
        whole
    }
}

/// utoipa describes an inline type with a default as `allOf` of both.
fn merge_default(schema: &mut Value) {
    let parts = schema.get("allOf").and_then(Value::as_array);
    if let Some([inline, default]) = parts.map(Vec::as_slice)
        && let Some(default) = default.get("default").cloned()
    {
        let mut merged = inline.clone();
        merged["default"] = default;
        *schema = merged;
    }
}

/// Groups refusals by status, each code once.
fn by_status(refusals: &[Refusal]) -> BTreeMap<u16, Vec<Refusal>> {
    let mut all: BTreeMap<u16, Vec<Refusal>> = BTreeMap::new();
    for refusal in refusals {
        let of_status = all.entry(refusal.status.as_u16()).or_default();
        if of_status
            .iter()
            .all(|existing| existing.code != refusal.code)
        {
            of_status.push(*refusal);
        }
    }
    all
}

/// The response with these refusals, in addition to the handler's description of its status.
fn response(described: Value, refusals: &[Refusal]) -> Value {
    let mut whole = match described {
        Value::Null => json!({}),
        described => described,
    };
    let meanings = refusals
        .iter()
        .map(|refusal| format!("`{}`: {}", refusal.code, refusal.description));
    let own = whole["description"].as_str().map(str::to_owned);
    let sentences: Vec<String> = own.into_iter().chain(meanings).collect();
    whole["description"] = sentences.join("; ").into();
    let schema = json!({ "$ref": "#/components/schemas/Problem" });
    whole["content"][weir_base::problem::MEDIA_TYPE] = json!({ "schema": schema });
    let codes: Vec<&str> = refusals.iter().map(|refusal| refusal.code).collect();
    whole["x-error-codes"] = json!(codes);
    whole
}
