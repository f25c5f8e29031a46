//! Converts generated schemas to the document's form: merges flattened structs, and moves descriptions to where tools
//! read them.
//!
//! A struct may be used in requests and in answers. The document describes its form in requests:
//!
//! - A member with a default is required in answers. The default `null` only marks this; the document omits it.
//! - A member with the extension `x-name-in-requests` has that name in requests.
//! - A struct that refuses unknown members also refuses those of the request that it is flattened into. Answers may
//!   contain more.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON that this module has made"
)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// Prefix of a reference to a schema.
const COMPONENTS: &str = "#/components/schemas/";

/// Extension with the name of a member in requests, if it differs from answers.
const NAME_IN_REQUESTS: &str = "x-name-in-requests";

/// Schemas by name.
pub(crate) type Schemas = BTreeMap<String, Value>;

/// Where a schema is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Only in answers.
    Answer,
    /// In requests, or in both.
    Request,
    /// In a request that changes only the given members: no member is required.
    Patch,
}

/// Converts each schema to the document's form.
pub(crate) fn normalize_all(schemas: &mut Schemas, usage: impl Fn(&str) -> Use) {
    let parts = schemas.clone();
    for (name, schema) in schemas {
        normalize(schema, &parts, usage(name));
    }
}

/// Converts one schema, which refers to `parts`.
pub(crate) fn normalize(schema: &mut Value, parts: &Schemas, usage: Use) {
    flatten(schema, parts, usage);
    match usage {
        Use::Answer => require_defaults(schema),
        Use::Request => rename_members(schema),
        Use::Patch => {
            rename_members(schema);
            if let Some(members) = schema.as_object_mut() {
                members.remove("required");
            }
            for member in members_of(schema) {
                member.remove("default");
            }
        }
    }
    for member in members_of(schema) {
        member.remove(NAME_IN_REQUESTS);
        if member.get("default").is_some_and(Value::is_null) {
            member.remove("default");
        }
    }
}

fn members_of(schema: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    let properties = properties.into_iter().flat_map(Map::values_mut);
    properties.filter_map(Value::as_object_mut)
}

fn flatten(schema: &mut Value, parts: &Schemas, usage: Use) {
    match schema {
        Value::Object(members) => {
            members
                .values_mut()
                .for_each(|inner| flatten(inner, parts, usage));
            lift_description(members);
            if let Some(merged) = merge_all_of(members, parts, usage) {
                *members = merged;
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|inner| flatten(inner, parts, usage)),
        _ => {}
    }
}

/// utoipa puts the description of an `Option<Struct>` member on the reference; this moves it to the member.
fn lift_description(members: &mut Map<String, Value>) {
    if members.contains_key("description") {
        return;
    }
    let choices = members.get_mut("oneOf").and_then(Value::as_array_mut);
    let mut references = choices
        .into_iter()
        .flatten()
        .filter(|choice| choice["$ref"].is_string());
    let described = references.find_map(|choice| choice.as_object_mut()?.remove("description"));
    members.extend(described.map(|text| ("description".to_owned(), text)));
}

/// Merges the members of flattened structs. With `allOf`, parts that refuse unknown members would refuse each other's.
fn merge_all_of(
    members: &Map<String, Value>,
    parts: &Schemas,
    usage: Use,
) -> Option<Map<String, Value>> {
    let all = members.get("allOf")?.as_array()?;
    let mut merged = members.clone();
    merged.remove("allOf");
    merged.insert("type".to_owned(), "object".into());
    let mut properties = Map::new();
    let mut required = BTreeSet::new();
    for part in all {
        let name = name_of(part);
        let mut flattened = part.clone();
        if let Some(name) = name {
            flattened = parts.get(name)?.clone();
            flatten(&mut flattened, parts, usage);
        }
        if flattened["additionalProperties"] == false && (name.is_none() || usage != Use::Answer) {
            merged.insert("additionalProperties".to_owned(), false.into());
        }
        properties.extend(flattened["properties"].as_object()?.clone());
        let names = flattened["required"].as_array().into_iter().flatten();
        required.extend(names.filter_map(Value::as_str).map(str::to_owned));
    }
    merged.insert("properties".to_owned(), properties.into());
    if !required.is_empty() {
        merged.insert("required".to_owned(), json!(required));
    }
    Some(merged)
}

/// Requires members with a default: a request may omit them, an answer never does.
fn require_defaults(schema: &mut Value) {
    let mut names: BTreeSet<String> = BTreeSet::new();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        let property = property.as_object_mut();
        if property.is_some_and(|property| property.remove("default").is_some()) {
            names.insert(name.clone());
        }
    }
    if names.is_empty() {
        return;
    }
    let existing = schema["required"].as_array().into_iter().flatten();
    names.extend(existing.filter_map(Value::as_str).map(str::to_owned));
    schema["required"] = json!(names);
}

fn rename_members(schema: &mut Value) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else {
        return;
    };
    *properties = std::mem::take(properties)
        .into_iter()
        .map(|(name, member)| {
            let other = member.get(NAME_IN_REQUESTS).and_then(Value::as_str);
            (other.map_or(name, str::to_owned), member)
        })
        .collect();
}

/// Name of the schema of a JSON body.
pub(super) fn body_name(body: &Value) -> Option<String> {
    name_of(&body["content"]["application/json"]["schema"]).map(str::to_owned)
}

/// Names of all schemas that `roots` refer to, directly or indirectly.
pub(super) fn reachable<'a>(
    roots: impl IntoIterator<Item = &'a Value>,
    schemas: &'a Value,
) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut open: Vec<&Value> = roots.into_iter().collect();
    while let Some(value) = open.pop() {
        if let Some(name) = name_of(value)
            && names.insert(name.to_owned())
        {
            open.push(&schemas[name]);
        }
        match value {
            Value::Object(members) => open.extend(members.values()),
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    names
}

fn name_of(value: &Value) -> Option<&str> {
    value.get("$ref")?.as_str()?.strip_prefix(COMPONENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(schema: Value, usage: Use) -> Value {
        let inner = json!({
            "type": "object",
            "properties": { "a": { "default": 0 }, "b": {}, "n": { "default": null },
                "r": { "x-name-in-requests": "q" } },
            "required": ["b"],
            "additionalProperties": false,
        });
        let parts = Schemas::from([("Inner".to_owned(), inner)]);
        let mut schema = schema;
        normalize(&mut schema, &parts, usage);
        schema
    }

    fn outer() -> Value {
        let own = json!({ "type": "object", "properties": { "c": {} }, "required": ["c"] });
        let reference = json!({ "$ref": "#/components/schemas/Inner" });
        json!({ "description": "d", "allOf": [reference, own] })
    }

    #[test]
    fn flattened_response_struct_allows_and_lists_all_members() {
        let expected = json!({ "description": "d", "type": "object", "required": ["a", "b", "c", "n"],
            "properties": { "a": {}, "b": {}, "c": {}, "n": {}, "r": {} } });
        assert_eq!(normalized(outer(), Use::Answer), expected);
    }

    #[test]
    fn flattened_struct_of_a_request_refuses_unknown_members() {
        let expected = json!({ "description": "d", "type": "object", "required": ["b", "c"],
            "properties": { "a": { "default": 0 }, "b": {}, "c": {}, "n": {}, "q": {} },
            "additionalProperties": false });
        assert_eq!(normalized(outer(), Use::Request), expected);
    }

    #[test]
    fn patch_requires_no_member() {
        let expected = json!({ "description": "d", "type": "object",
            "properties": { "a": {}, "b": {}, "c": {}, "n": {}, "q": {} },
            "additionalProperties": false });
        assert_eq!(normalized(outer(), Use::Patch), expected);
    }

    #[test]
    fn description_of_an_optional_struct_is_on_its_member() {
        let choices = json!([{ "type": "null" }, { "$ref": "#/components/schemas/Inner", "description": "d" }]);
        let schema = normalized(
            json!({ "properties": { "m": { "oneOf": choices } } }),
            Use::Answer,
        );
        let member = &schema["properties"]["m"];
        assert_eq!(member["description"], "d");
        assert_eq!(
            member["oneOf"][1],
            json!({ "$ref": "#/components/schemas/Inner" })
        );
    }
}
