//! Schemas that are derived, in the form that the document has: flattened structs are part of theirs, and descriptions are where
//! tools read them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// Where a reference to a schema begins.
const COMPONENTS: &str = "#/components/schemas/";

/// Schemas by name.
pub(crate) type Schemas = BTreeMap<String, Value>;

/// Merges flattened structs and moves descriptions, in each schema.
pub(crate) fn normalize_all(schemas: &mut Schemas) {
    let parts = schemas.clone();
    schemas
        .values_mut()
        .for_each(|schema| normalize(schema, &parts));
}

/// The same in one schema, which refers to `parts`.
pub(crate) fn normalize(schema: &mut Value, parts: &Schemas) {
    match schema {
        Value::Object(members) => {
            members
                .values_mut()
                .for_each(|inner| normalize(inner, parts));
            lift_description(members);
            if let Some(merged) = merge_all_of(members, parts) {
                *members = merged;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| normalize(inner, parts)),
        _ => {}
    }
}

/// A derived `Option<Struct>` has the description of its member on the reference; here it is on the member.
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

/// The struct with the members of those that are flattened into it. With `allOf`, each part would refuse the members of the others
/// if it takes no unknown ones.
fn merge_all_of(members: &Map<String, Value>, parts: &Schemas) -> Option<Map<String, Value>> {
    let all = members.get("allOf")?.as_array()?;
    let mut merged = members.clone();
    merged.remove("allOf");
    merged.insert("type".to_owned(), "object".into());
    let mut properties = Map::new();
    let mut required = BTreeSet::new();
    for part in all {
        let mut flattened = part.clone();
        if let Some(name) = name_of(part) {
            flattened = parts.get(name)?.clone();
            normalize(&mut flattened, parts);
        } else if part["additionalProperties"] == false {
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

/// Requires members with a default: a request may leave them out, an answer never does.
pub(super) fn require_defaults(schema: &mut Value) {
    let mut names: BTreeSet<String> = BTreeSet::new();
    // Indexing would add the member to a schema without properties.
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
    let known = schema["required"].as_array().into_iter().flatten();
    names.extend(known.filter_map(Value::as_str).map(str::to_owned));
    schema["required"] = json!(names);
}

/// The names of all schemas that `roots` refer to, and those refer to.
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

    fn normalized(schema: Value) -> Value {
        let mut schemas = Schemas::from([
            (
                "Inner".to_owned(),
                json!({ "type": "object", "properties": { "a": { "default": 0 }, "b": {} }, "required": ["b"],
                    "additionalProperties": false }),
            ),
            ("Outer".to_owned(), schema),
        ]);
        normalize_all(&mut schemas);
        schemas.remove("Outer").unwrap()
    }

    #[test]
    fn flattened_struct_is_merged_and_admits_all_members() {
        let own = json!({ "type": "object", "properties": { "c": {} }, "required": ["c"] });
        let reference = json!({ "$ref": "#/components/schemas/Inner" });
        let mut view = normalized(json!({ "description": "d", "allOf": [reference, own] }));
        let expected = json!({ "description": "d", "type": "object", "required": ["b", "c"],
            "properties": { "a": { "default": 0 }, "b": {}, "c": {} } });
        assert_eq!(view, expected);
        require_defaults(&mut view);
        assert_eq!(view["required"], json!(["a", "b", "c"]));
        assert_eq!(view["properties"]["a"], json!({}));
        let mut words = json!({ "type": "string", "enum": ["a"] });
        require_defaults(&mut words);
        assert_eq!(words, json!({ "type": "string", "enum": ["a"] }));
    }

    #[test]
    fn description_of_an_optional_struct_is_on_its_member() {
        let choices = json!([{ "type": "null" }, { "$ref": "#/components/schemas/Inner", "description": "d" }]);
        let schema = normalized(json!({ "properties": { "m": { "oneOf": choices } } }));
        let member = &schema["properties"]["m"];
        assert_eq!(member["description"], "d");
        assert_eq!(
            member["oneOf"][1],
            json!({ "$ref": "#/components/schemas/Inner" })
        );
    }
}
