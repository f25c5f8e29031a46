//! YAML as a tree of JSON values, which Envoy also reads. Every edit is an edit of the tree.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use crate::workspace;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::net::SocketAddr;

/// The pointers to a cluster's `lb_endpoints`, and to the address of one endpoint.
pub(super) const ENDPOINTS: &str = "/load_assignment/endpoints/0/lb_endpoints";
const ADDRESS: &str = "/endpoint/address";

/// Parses the documents of a workspace file.
pub(super) fn read(file: &str) -> Result<Vec<Value>> {
    let path = workspace::root().join(file);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    documents(&text).with_context(|| format!("{} is not YAML", path.display()))
}

/// Parses the documents of a text, separated by `---`.
pub(super) fn documents(text: &str) -> Result<Vec<Value>> {
    let documents = yaml_serde::Deserializer::from_str(text);
    let parsed: Result<_, _> = documents.map(Value::deserialize).collect();
    Ok(parsed?)
}

/// The only document of a text.
pub(super) fn document(text: &str) -> Result<Value> {
    let [document] = <[Value; 1]>::try_from(documents(text)?)
        .ok()
        .context("not one YAML document")?;
    Ok(document)
}

/// Replaces the value at `pointer` (RFC 6901). The value must already exist: a missing target is an error, so that a
/// test never runs an unedited configuration.
pub fn set(tree: &mut Value, pointer: &str, new: impl Into<Value>) -> Result<()> {
    *at(tree, pointer)? = new.into();
    Ok(())
}

/// The value at `pointer`.
pub(super) fn at<'a>(tree: &'a mut Value, pointer: &str) -> Result<&'a mut Value> {
    tree.pointer_mut(pointer)
        .with_context(|| format!("{pointer} is missing"))
}

/// The list at `pointer`.
pub(super) fn list<'a>(tree: &'a mut Value, pointer: &str) -> Result<&'a mut Vec<Value>> {
    let found = at(tree, pointer)?.as_array_mut();
    found.with_context(|| format!("{pointer} is not a list"))
}

/// The fields of the object at `pointer`; an empty pointer means the tree itself.
pub(super) fn fields<'a>(
    tree: &'a mut Value,
    pointer: &str,
) -> Result<&'a mut serde_json::Map<String, Value>> {
    let found = at(tree, pointer)?.as_object_mut();
    found.with_context(|| format!("{pointer} has no fields"))
}

/// The index of the list element called `name`.
pub(super) fn position(list: &[Value], name: &str) -> Result<usize> {
    let found = list.iter().position(|element| element["name"] == name);
    found.with_context(|| format!("no item is named {name}"))
}

/// The only value below `tree` that matches `is_it`.
pub(super) fn only<'a>(
    tree: &'a mut Value,
    subject: &str,
    is_it: impl Fn(&Value) -> bool,
) -> Result<&'a mut Value> {
    let mut places = Vec::new();
    places_of(tree, &is_it, String::new(), &mut places);
    ensure!(
        places.len() == 1,
        "expected one of {subject}, found {}",
        places.len()
    );
    at(tree, &places[0])
}

/// Pointers to all values below `tree` that match `is_it`.
fn places_of(
    tree: &Value,
    is_it: &impl Fn(&Value) -> bool,
    here: String,
    places: &mut Vec<String>,
) {
    match tree {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                places_of(value, is_it, format!("{here}/{name}"), places);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                places_of(value, is_it, format!("{here}/{index}"), places);
            }
        }
        _ => {}
    }
    if is_it(tree) {
        places.push(here);
    }
}

/// Calls `each` for `tree` and all values below it.
pub(super) fn visit(tree: &mut Value, each: &mut impl FnMut(&mut Value)) {
    each(tree);
    match tree {
        Value::Object(fields) => fields.values_mut().for_each(|value| visit(value, each)),
        Value::Array(list) => list.iter_mut().for_each(|value| visit(value, each)),
        _ => {}
    }
}

/// Sets the address of a cluster's endpoint.
pub(super) fn set_endpoint(cluster: &mut Value, index: usize, address: SocketAddr) -> Result<()> {
    let place = format!("{ENDPOINTS}/{index}{ADDRESS}");
    set(cluster, &place, socket_address(address))
}

/// An Envoy `Address`.
pub fn socket_address(address: SocketAddr) -> Value {
    serde_json::json!({
        "socket_address": { "address": address.ip().to_string(), "port_value": address.port() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_is_read_with_its_aliases_and_documents() {
        let text = "a: &x { b: '1' }\nc: [*x, 2s]\n---\n- d\n";
        let expected = [
            json!({"a": {"b": "1"}, "c": [{"b": "1"}, "2s"]}),
            json!(["d"]),
        ];
        assert_eq!(documents(text).unwrap(), expected);
        assert!(document(text).is_err() && documents("a: [").is_err());
    }

    #[test]
    fn setting_a_missing_path_is_an_error() {
        let mut tree = json!({"a": [1]});
        set(&mut tree, "/a/0", 2).unwrap();
        assert_eq!(tree, json!({"a": [2]}));
        let error = set(&mut tree, "/a/b", 3).unwrap_err();
        assert!(error.to_string().contains("/a/b"), "{error}");
    }

    #[test]
    fn search_requires_exactly_one_match() {
        let mut tree = json!({"a/b": {"name": "x"}, "c": [{"name": "x"}, {"name": "y"}]});
        let is = |name: &'static str| move |value: &Value| value["name"] == name;
        assert_eq!(
            *only(&mut tree, "y", is("y")).unwrap(),
            json!({"name": "y"})
        );
        assert!(only(&mut tree, "x", is("x")).is_err());
        assert!(only(&mut tree, "z", is("z")).is_err());
        tree["c"] = json!([]);
        assert_eq!(
            *only(&mut tree, "x", is("x")).unwrap(),
            json!({"name": "x"})
        );
    }
}
