//! All that is wrong with a body, by what the OpenAPI document says of it. A deserializer stops at the first mistake; whoever
//! writes a request wants to hear of all of them.

use std::sync::LazyLock;

use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{ValidationError, Validator};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::problem::Fault;
use crate::api::schemas::{self, Schemas, Use};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../openapi.json")).unwrap_or_default()
});

/// What of the OpenAPI document is not derived yet.
pub fn handwritten() -> &'static Value {
    &DOCUMENT
}

/// The most mistakes that are told: a body of nothing but mistakes must not make an answer that is larger than itself.
const FAULTS_MAX: usize = 32;

/// What is wrong with the body of a request to this route, as the document spells it; nothing if it is of no known form.
pub(super) fn faults_at(method: &str, route: &str, body: &Value) -> Vec<Fault> {
    let method = method.to_ascii_lowercase();
    let operation = &DOCUMENT["paths"][route][&method];
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    schema["$ref"]
        .as_str()
        .map_or_else(Vec::new, |name| faults_by(name, body))
}

/// What is wrong with `body` as the schema of this name has it.
pub(super) fn faults_of(schema: &str, body: &Value) -> Vec<Fault> {
    faults_by(&format!("#/components/schemas/{schema}"), body)
}

/// What is wrong with `body` as the schema of this type has it.
pub(super) fn faults_in<T: ToSchema>(body: &Value, usage: Use) -> Vec<Fault> {
    let mut parts = Vec::new();
    T::schemas(&mut parts);
    let parts = parts.into_iter();
    let mut parts: Schemas = parts
        .map(|(name, part)| (name, serde_json::to_value(part).unwrap_or_default()))
        .collect();
    let mut schema = serde_json::to_value(T::schema()).unwrap_or_default();
    schemas::normalize(&mut schema, &parts, usage);
    schemas::normalize_all(&mut parts, |_| Use::Request);
    schema["components"]["schemas"] = json!(parts);
    jsonschema::validator_for(&schema)
        .map_or_else(|_| Vec::new(), |known| faults_with(&known, body))
}

fn faults_by(reference: &str, body: &Value) -> Vec<Fault> {
    validator(reference).map_or_else(Vec::new, |validator| faults_with(&validator, body))
}

fn faults_with(validator: &Validator, body: &Value) -> Vec<Fault> {
    let errors = validator.iter_errors(body);
    errors
        .flat_map(|error| faults(&error))
        .take(FAULTS_MAX)
        .collect()
}

/// Compiled for each body that is refused: those are few, and compiling takes less than a round trip.
fn validator(reference: &str) -> Option<Validator> {
    let schema = json!({ "$ref": reference, "components": DOCUMENT["components"] });
    jsonschema::validator_for(&schema).ok()
}

/// One for each member that is missing, or that should not be there.
fn faults(error: &ValidationError<'_>) -> Vec<Fault> {
    let at = error.instance_path().to_string();
    let member = |name: &str, detail: &str| Fault {
        pointer: format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
        detail: detail.to_owned(),
    };
    match error.kind() {
        Kind::Required { property } => {
            vec![member(property.as_str().unwrap_or_default(), "is missing")]
        }
        Kind::AdditionalProperties { unexpected } => unexpected
            .iter()
            .map(|name| member(name, "is not known"))
            .collect(),
        // Without the value: the client knows it, and it may be long.
        _ => vec![Fault {
            pointer: at,
            detail: error.masked_with("this").to_string(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(method: &str, route: &str, body: &Value) -> Vec<String> {
        let faults = faults_at(method, route, body);
        let said = faults
            .iter()
            .map(|fault| format!("{}: {}", fault.pointer, fault.detail));
        let mut said: Vec<String> = said.collect();
        said.sort();
        said
    }

    #[test]
    fn every_mistake_is_told_with_its_place() {
        let body = json!({ "id": "s", "total": -1, "shards": "4", "colour": 1, "user_cap": 1001,
            "reservation": { "from_ms": 1 } });
        let said = said("POST", "/sales", &body);
        let places: Vec<&str> = said
            .iter()
            .filter_map(|line| line.split(':').next())
            .collect();
        assert_eq!(
            places,
            [
                "/colour",
                "/ends_at_ms",
                "/reservation",
                "/shards",
                "/starts_at_ms",
                "/title",
                "/total",
                "/user_cap"
            ],
            "{said:#?}"
        );
        assert_eq!(said[0], "/colour: is not known");
        assert_eq!(said[1], "/ends_at_ms: is missing");
        assert!(said[3].contains("this is not of type"), "{}", said[3]);
    }

    #[test]
    fn what_has_no_form_has_no_mistakes_and_many_are_cut() {
        assert_eq!(said("POST", "/no/such", &json!(1)), Vec::<String>::new());
        assert_eq!(faults_of("NoSuch", &json!(1)), []);
        let members = (0..100).map(|n| (format!("m{n}"), Value::Null));
        let body = Value::Object(members.collect());
        assert_eq!(faults_of("NewSale", &body).len(), FAULTS_MAX);
    }
}
