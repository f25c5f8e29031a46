//! Event types: validation rules, retention and routes.
//!
//! ```json
//! {"schema": {"type": "object", "required": ["sku"]}, "customer": "/attributes/user", "window": "30m",
//!  "retention": "62d", "routes": [{"if": {"/attributes/from": "mail"}, "topics": ["mail"]}]}
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonschema::Validator;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use weir_base::FieldError;
use weir_base::duration::Duration;
use weir_event::answer::{Reason, Rejection};
use weir_event::event::{Event, Pointer};
use weir_event::name::EventType;
use weir_event::routes::Routes;

use crate::store::StoredType;
use weir_origin_core::json_schema;

/// Maximum number of types.
pub const TYPES_MAX: usize = 1_000;

/// Maximum length of a type definition, in bytes of JSON.
pub const TYPE_LEN_MAX: usize = 64 << 10;

/// Default retention of events.
pub const RETENTION_MS: u64 = 62 * DAY_MS;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Maximum retention of events, in milliseconds: ten years.
const RETENTION_MS_MAX: u64 = 3_653 * DAY_MS;

/// Definition of an event type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewEventType)]
pub struct TypeSpec {
    /// JSON Schema of the attributes; none: anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub schema: Option<Value>,
    /// JSON pointers to further customer ids in events of servers, besides `customer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<String>, pattern = "^/attributes/", max_length = 256)]
    pub customer: Option<Pointer>,
    /// Default window for queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub window: Option<String>,
    /// Retention of its events. Default: 62 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retention: Option<String>,
    /// Rules that route events to topics.
    #[serde(default, skip_serializing_if = "has_no_rules")]
    #[schema(value_type = Vec<weir_event::routes::Route>, max_items = 32)]
    pub routes: Routes,
}

fn has_no_rules(routes: &Routes) -> bool {
    routes.rules().is_empty()
}

/// A compiled type that validates events.
#[derive(Debug)]
pub struct RegisteredType {
    /// Its name.
    pub name: EventType,
    /// 1, incremented by each change.
    pub version: u64,
    /// Time of the last change, in milliseconds since the Unix epoch.
    pub changed_at_ms: u64,
    /// Its definition.
    pub spec: TypeSpec,
    /// Retention of its events, in milliseconds.
    pub retention_ms: u64,
    /// Default window of queries, in milliseconds.
    pub window_ms: Option<u64>,
    validator: Option<Validator>,
}

/// A snapshot of all types. One snapshot validates a whole body, even if types change meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Types {
    by_name: BTreeMap<String, Arc<RegisteredType>>,
}

impl RegisteredType {
    /// Checks and compiles a definition.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn new(
        name: EventType,
        version: u64,
        changed_at_ms: u64,
        spec: TypeSpec,
    ) -> Result<Self, FieldError> {
        spec.routes
            .check()
            .map_err(|error| FieldError::new(format!("routes{}", error.path), error.problem))?;
        let retention_ms = match &spec.retention {
            Some(text) => duration("retention", text, RETENTION_MS_MAX)?,
            None => RETENTION_MS,
        };
        let window = spec.window.as_ref();
        let window_ms = window.map(|text| duration("window", text, RETENTION_MS_MAX));
        Ok(Self {
            validator: spec.schema.as_ref().map(compile).transpose()?,
            window_ms: window_ms.transpose()?,
            retention_ms,
            name,
            version,
            changed_at_ms,
            spec,
        })
    }

    /// Compiles a type from SQL.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn of(stored: &StoredType) -> Result<Self, FieldError> {
        let name = EventType::new(&stored.name).map_err(|error| FieldError::new("name", error))?;
        let spec = serde_json::from_str(&stored.document);
        let spec = spec.map_err(|error| FieldError::new("", error))?;
        Self::new(name, stored.version, stored.changed_at_ms, spec)
    }

    /// Checks an event's attributes.
    ///
    /// # Errors
    /// Reports what is wrong and where, but not the values: the answer may be logged.
    pub fn check(&self, event: &Event) -> Result<(), Rejection> {
        let Some(validator) = &self.validator else {
            return Ok(());
        };
        let attributes = Value::Object(event.attributes.clone());
        let Err(error) = validator.validate(&attributes) else {
            return Ok(());
        };
        let path = json_schema::cut(&error.instance_path().to_string());
        let problem = json_schema::cut(&error.masked().to_string());
        let message = format!("/attributes{path}: {problem}");
        Err(Rejection::new(Reason::Schema, message))
    }
}

impl Types {
    /// Creates a snapshot of these types.
    pub fn new(types: impl IntoIterator<Item = Arc<RegisteredType>>) -> Self {
        let named = |one: Arc<RegisteredType>| (one.name.as_str().to_owned(), one);
        Self {
            by_name: types.into_iter().map(named).collect(),
        }
    }

    /// Finds a type by name.
    pub fn get(&self, name: &str) -> Option<&Arc<RegisteredType>> {
        self.by_name.get(name)
    }

    /// All types, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RegisteredType>> {
        self.by_name.values()
    }

    /// Number of types.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are no types.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Retention of a type's events, in milliseconds. A removed type has the default retention.
    pub fn retention_ms(&self, name: &str) -> u64 {
        self.get(name).map_or(RETENTION_MS, |one| one.retention_ms)
    }
}

fn duration(path: &str, text: &str, max_ms: u64) -> Result<u64, FieldError> {
    let problem = || {
        FieldError::new(
            path,
            "must be a duration from 1s to 3653d, such as 30m or 62d",
        )
    };
    let duration = Duration::read(text).ok_or_else(problem)?;
    match (1_000..=max_ms).contains(&duration.ms) {
        true => Ok(duration.ms),
        false => Err(problem()),
    }
}

fn compile(schema: &Value) -> Result<Validator, FieldError> {
    json_schema::compile(schema).map_err(|problem| FieldError::new("schema", problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn registered(spec: Value) -> Result<RegisteredType, FieldError> {
        let spec = serde_json::from_value(spec).unwrap();
        RegisteredType::new(EventType::new("view").unwrap(), 1, 0, spec)
    }

    fn check(existing: &RegisteredType, attributes: Value) -> Result<(), Rejection> {
        let event = json!({ "type": "view", "attributes": attributes });
        existing.check(&Event::read(&event.to_string()).unwrap())
    }

    #[test]
    fn attributes_are_validated_without_values_in_errors() {
        let existing = registered(json!({"schema": {
            "type": "object", "required": ["sku"],
            "properties": {"sku": {"type": "string", "pattern": "^[a-z0-9]+$"}},
        }}));
        let existing = existing.unwrap();
        assert_eq!(check(&existing, json!({"sku": "a1"})), Ok(()));
        let refused = check(&existing, json!({"sku": "Secret!"})).unwrap_err();
        assert_eq!(refused.reason, Reason::Schema);
        assert!(
            refused.message.starts_with("/attributes/sku: "),
            "{refused}"
        );
        assert!(!refused.message.contains("Secret"), "{refused}");
        assert!(check(&existing, json!({})).is_err());
    }

    #[test]
    fn invalid_type_definition_is_refused_with_its_field() {
        let path = |spec: Value| registered(spec).unwrap_err().path;
        assert_eq!(path(json!({"schema": {"type": "colour"}})), "schema");
        assert_eq!(path(json!({"schema": 7})), "schema");
        assert_eq!(path(json!({"schema": {"pattern": "("}})), "schema");
        assert_eq!(
            path(json!({"schema": {"pattern": "(a{1000}){1000}{1000}"}})),
            "schema"
        );
        assert_eq!(
            path(json!({"schema": {"$ref": "http://127.0.0.1:1/x"}})),
            "schema"
        );
        assert_eq!(
            path(json!({"schema": {"$ref": "file:///etc/passwd"}})),
            "schema"
        );
        assert_eq!(path(json!({"retention": "soon"})), "retention");
        assert_eq!(path(json!({"retention": "0s"})), "retention");
        assert_eq!(path(json!({"window": "9999999d"})), "window");
        assert_eq!(
            path(json!({"routes": [{"topics": []}]})),
            "routes[0].topics"
        );
    }

    /// Each schema refers to itself without descending into the value: the library must detect the cycle.
    #[test]
    fn recursive_schema_validation_terminates() {
        let circle = json!({"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}});
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"$defs": circle, "$ref": "#/$defs/a"}),
            json!({"if": {"$ref": "#"}}),
            json!({"$dynamicRef": "#"}),
        ] {
            let existing = registered(json!({"schema": schema})).unwrap();
            assert_eq!(
                check(&existing, json!({"a": {"b": {}}})),
                Ok(()),
                "{schema}"
            );
        }
    }

    #[test]
    fn tree_schema_validation_ends_with_the_event_data() {
        let tree = json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "n": {"type": "number"}}});
        let existing = registered(json!({"schema": tree})).unwrap();
        assert_eq!(
            check(&existing, json!({"left": {"right": {"n": 1}}})),
            Ok(())
        );
        assert!(check(&existing, json!({"left": {"right": {"n": "1"}}})).is_err());
    }
}
