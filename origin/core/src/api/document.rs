//! The OpenAPI document, put together from what each area derives.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use super::RouteRules;
use super::schemas::{self, Schemas};
use crate::access::tenancy::TenantRule;
use crate::http::Refusal;

/// An operation by its path and its method, both as the document spells them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationKey {
    /// As it is mounted.
    pub path: String,
    /// In small letters.
    pub method: String,
}

/// A part of the document.
#[derive(Clone, Debug, Default)]
pub struct Document {
    operations: BTreeMap<OperationKey, Value>,
    schemas: Schemas,
    codes: BTreeMap<&'static str, &'static str>,
    rules: BTreeMap<OperationKey, TenantRule>,
}

impl Document {
    pub(super) fn add_schemas(&mut self, schemas: Vec<(String, RefOr<Schema>)>) {
        for (name, schema) in schemas {
            self.schemas
                .insert(name, serde_json::to_value(schema).unwrap_or_default());
        }
    }

    /// Adds an operation of the admin port, which may refuse for these reasons.
    pub(super) fn add_admin(
        &mut self,
        key: OperationKey,
        mut operation: Value,
        refusals: &[Refusal],
        rules: RouteRules,
    ) {
        if operation["description"].is_null() {
            let summary = operation["summary"].as_str().unwrap_or_default();
            operation["description"] = format!("{}.", summary.trim_end_matches('.')).into();
        }
        let parameters = operation.get_mut("parameters");
        let parameters = parameters.and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            // A schema by `schema_with` keeps its description for itself.
            let schema = parameter.get_mut("schema").and_then(Value::as_object_mut);
            let described = schema.and_then(|schema| schema.remove("description"));
            if let (true, Some(text)) = (parameter["description"].is_null(), described) {
                parameter["description"] = text;
            }
        }
        operation["tags"] = json!(["admin"]);
        operation["security"] = json!([{ "admin": [] }]);
        for (status, of_status) in by_status(refusals) {
            operation["responses"][status.to_string()] = response(&of_status);
        }
        operation["responses"]["429"] = json!({ "$ref": "#/components/responses/TenantBusy" });
        let codes = refusals.iter();
        self.codes
            .extend(codes.map(|refusal| (refusal.code, refusal.meaning)));
        self.rules.insert(key.clone(), rules.tenants);
        self.operations.insert(key, operation);
    }

    pub(super) fn add_rule(&mut self, key: OperationKey, rules: RouteRules) {
        self.rules.insert(key, rules.tenants);
    }

    /// Adds another part.
    pub fn merge(&mut self, other: Self) {
        self.operations.extend(other.operations);
        self.schemas.extend(other.schemas);
        self.codes.extend(other.codes);
        self.rules.extend(other.rules);
    }

    /// What each operation is to tenants' keys.
    pub fn tenant_rules(&self) -> &BTreeMap<OperationKey, TenantRule> {
        &self.rules
    }

    /// What is in this and in `whole`: operations and schemas that are described twice.
    pub fn duplicates(&self, whole: &Value) -> Vec<String> {
        let operations = self.operations.keys();
        let operations = operations
            .filter(|key| !whole["paths"][&key.path][&key.method].is_null())
            .map(|key| format!("{} {}", key.method, key.path));
        let schemas = self.schemas.keys();
        let schemas = schemas
            .filter(|name| !whole["components"]["schemas"][name].is_null())
            .cloned();
        operations.chain(schemas).collect()
    }

    /// Adds all of it to the document `whole`.
    pub fn write_to(&self, whole: &mut Value) {
        for (key, operation) in &self.operations {
            whole["paths"][&key.path][&key.method] = operation.clone();
        }
        let mut derived = self.schemas.clone();
        schemas::normalize_all(&mut derived);
        let all = &mut whole["components"]["schemas"];
        for (name, schema) in &derived {
            all[name] = schema.clone();
        }
        let bodies = self.operations.values().map(|each| &each["requestBody"]);
        let of_requests = schemas::reachable(bodies, all);
        let paths = &whole["paths"];
        let used = schemas::reachable([paths], &whole["components"]["schemas"]);
        let all = &mut whole["components"]["schemas"];
        for name in derived.keys() {
            if !used.contains(name) {
                // A flattened struct that is part of others now.
                all.as_object_mut().and_then(|all| all.remove(name));
            } else if !of_requests.contains(name) {
                schemas::require_defaults(&mut all[name]);
            }
        }
        for (code, meaning) in &self.codes {
            whole["info"]["x-error-codes"][code] = (*meaning).into();
        }
    }
}

/// Refusals of each status, each code once.
fn by_status(refusals: &[Refusal]) -> BTreeMap<u16, Vec<Refusal>> {
    let mut all: BTreeMap<u16, Vec<Refusal>> = BTreeMap::new();
    for refusal in refusals {
        let of_status = all.entry(refusal.status.as_u16()).or_default();
        if of_status.iter().all(|known| known.code != refusal.code) {
            of_status.push(*refusal);
        }
    }
    all
}

fn response(refusals: &[Refusal]) -> Value {
    let meanings = refusals
        .iter()
        .map(|refusal| format!("`{}`: {}", refusal.code, refusal.meaning));
    let codes: Vec<&str> = refusals.iter().map(|refusal| refusal.code).collect();
    let schema = json!({ "$ref": "#/components/schemas/Problem" });
    let content = Map::from_iter([(
        weir_base::problem::MEDIA_TYPE.to_owned(),
        json!({ "schema": schema }),
    )]);
    json!({
        "description": meanings.collect::<Vec<_>>().join("; "),
        "content": content,
        "x-error-codes": codes,
    })
}
