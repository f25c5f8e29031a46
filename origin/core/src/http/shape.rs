//! Validates a body by its OpenAPI schema, and reports all errors. A deserializer stops at the first one.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON that this module has made"
)]

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::problem::ValidationError;
use crate::api::schemas::{self, Schemas, Use};

/// Maximum number of reported errors, so that an invalid body does not produce a larger answer.
const ERRORS_MAX: usize = 32;

/// Validates `body` by the schema of this type.
pub(super) fn errors_in<T: ToSchema>(body: &Value, usage: Use) -> Vec<ValidationError> {
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
        .map_or_else(|_| Vec::new(), |existing| errors_with(&existing, body))
}

fn errors_with(validator: &Validator, body: &Value) -> Vec<ValidationError> {
    let errors = validator.iter_errors(body);
    errors
        .flat_map(|error| validation_errors(&error))
        .take(ERRORS_MAX)
        .collect()
}

/// One error per missing or unknown member.
fn validation_errors(error: &jsonschema::ValidationError<'_>) -> Vec<ValidationError> {
    let at = error.instance_path().to_string();
    let member = |name: &str, detail: &str| ValidationError {
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
        // Omit the value: the client knows it, and it may be long.
        _ => vec![ValidationError {
            pointer: at,
            detail: error.masked_with("this").to_string(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(ToSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Window {
        from_ms: u64,
        until_ms: u64,
    }

    #[derive(ToSchema)]
    #[schema(as = ShapeFields)]
    #[serde(deny_unknown_fields)]
    #[derive(serde::Deserialize)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Fields {
        title: String,
        #[schema(minimum = 1, maximum = 64)]
        shards: u32,
        #[schema(value_type = Option<Window>)]
        window: Option<Value>,
    }

    #[derive(ToSchema, serde::Deserialize)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Body {
        id: String,
        #[serde(flatten)]
        fields: Fields,
    }

    fn validation_errors(body: &Value, usage: Use) -> Vec<String> {
        let validation_errors = errors_in::<Body>(body, usage);
        let validation_errors = validation_errors
            .iter()
            .map(|fault| format!("{}: {}", fault.pointer, fault.detail));
        let mut validation_errors: Vec<String> = validation_errors.collect();
        validation_errors.sort();
        validation_errors
    }

    #[test]
    fn every_validation_error_has_its_path() {
        let body = json!({ "id": "s", "shards": "4", "colour": 1, "window": { "from_ms": 1 } });
        let validation_errors = validation_errors(&body, Use::Request);
        assert_eq!(validation_errors[0], "/colour: is not known");
        assert!(
            validation_errors[1].starts_with("/shards: this is not of type"),
            "{validation_errors:#?}"
        );
        assert_eq!(validation_errors[2], "/title: is missing");
        assert!(
            validation_errors[3].starts_with("/window: "),
            "{validation_errors:#?}"
        );
        assert_eq!(validation_errors.len(), 4);
    }

    #[test]
    fn patch_can_omit_any_member() {
        assert_eq!(
            validation_errors(&json!({}), Use::Patch),
            Vec::<String>::new()
        );
        let validation_errors = validation_errors(&json!({ "shards": 65 }), Use::Patch);
        assert!(
            validation_errors[0].starts_with("/shards: "),
            "{validation_errors:#?}"
        );
    }

    #[test]
    fn long_list_of_validation_errors_is_truncated() {
        let members = (0..100).map(|n| (format!("m{n}"), Value::Null));
        let body = Value::Object(members.collect());
        assert_eq!(errors_in::<Body>(&body, Use::Request).len(), ERRORS_MAX);
    }
}
