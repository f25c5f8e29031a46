//! Checks that the OpenAPI document contains every answer in tests: its status, its code, and its JSON schema.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use axum::http::Method;
use jsonschema::Validator;
use serde_json::{Value, json};

use super::Answer;

/// The document as served by the origin.
pub static DOCUMENT: LazyLock<&Value> = LazyLock::new(weir_origin::openapi::document);

static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// Panics if the document does not contain the answer. Ignores unknown and unmounted routes.
pub fn hold(method: &Method, path: &str, answer: &Answer) {
    let Some((name, operations)) = item(path) else {
        return;
    };
    let operation = &operations[method.as_str().to_lowercase()];
    let code = answer.body["error"].as_str();
    if !operation.is_object() || matches!(code, Some("no_route" | "no_method")) {
        return;
    }
    let body = format!("{method} {name}: {} {}", answer.status, answer.body);
    let response = &operation["responses"][answer.status.as_str()];
    assert!(response.is_object(), "not in the document: {body}");
    if let Some(codes) = response["x-error-codes"].as_array()
        && let Some(code) = code
    {
        assert!(codes.contains(&code.into()), "this code is not: {body}");
    }
    let reference = &response["content"]["application/json"]["schema"]["$ref"];
    if let Some(reference) = reference.as_str() {
        let errors: Vec<String> = validator(reference)
            .iter_errors(&answer.body)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?} {body}");
    }
}

/// The document's entry for a path; the most specific one of those that match.
fn item(path: &str) -> Option<(&String, &Value)> {
    let paths = DOCUMENT["paths"].as_object()?.iter();
    paths
        .filter(|(template, _)| fits(template, path))
        .min_by_key(|(template, _)| template.matches('{').count())
}

fn fits(template: &str, path: &str) -> bool {
    let (template, path) = (template.split('/'), path.split('/'));
    template.clone().count() == path.clone().count()
        && template
            .zip(path)
            .all(|(a, b)| a == b || (a.starts_with('{') && !b.is_empty()))
}

fn validator(reference: &str) -> Arc<Validator> {
    let mut all = VALIDATORS.lock().unwrap();
    let existing = all.entry(reference.to_owned()).or_insert_with(|| {
        let schema = json!({ "$ref": reference, "components": DOCUMENT["components"] });
        Arc::new(jsonschema::validator_for(&schema).unwrap())
    });
    existing.clone()
}
