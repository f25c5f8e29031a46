//! Every answer that a test sees is one that the OpenAPI document names: its status, its code, the form of its JSON.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use axum::http::Method;
use jsonschema::Validator;
use serde_json::{Value, json};

use super::Answer;

/// The document, as the origin serves it.
pub static DOCUMENT: LazyLock<&Value> = LazyLock::new(weir_origin::openapi::document);

static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// Panics if it is not. What is asked of no route, or of one that is not mounted, is no business of the document.
pub fn hold(method: &Method, path: &str, answer: &Answer) {
    let Some((name, operations)) = item(path) else {
        return;
    };
    let operation = &operations[method.as_str().to_lowercase()];
    let code = answer.body["error"].as_str();
    if !operation.is_object() || matches!(code, Some("no_route" | "no_method")) {
        return;
    }
    let seen = format!("{method} {name}: {} {}", answer.status, answer.body);
    let response = &operation["responses"][answer.status.as_str()];
    assert!(response.is_object(), "not in the document: {seen}");
    if let Some(codes) = response["x-error-codes"].as_array()
        && let Some(code) = code
    {
        assert!(codes.contains(&code.into()), "this code is not: {seen}");
    }
    let reference = &response["content"]["application/json"]["schema"]["$ref"];
    if let Some(reference) = reference.as_str() {
        let errors: Vec<String> = validator(reference)
            .iter_errors(&answer.body)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?} {seen}");
    }
}

/// What the document says of a path; of those that fit it, the one that says most by itself.
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
    let known = all.entry(reference.to_owned()).or_insert_with(|| {
        let schema = json!({ "$ref": reference, "components": DOCUMENT["components"] });
        Arc::new(jsonschema::validator_for(&schema).unwrap())
    });
    known.clone()
}
