//! The routing of an event type to topics.
//!
//! ```json
//! [{"if": {"/attributes/from": "mail"}, "topics": ["events", "mail"]}]
//! ```
//!
//! A rule matches if all its locations have the given values; a rule without `if` matches every event. An event goes to
//! the topics of all matching rules, or else to [`DEFAULT`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_base::FieldError;

use crate::event::{Event, Pointer};
use crate::limits::TOPICS_MAX;
use crate::name::Topic;

/// The topic of events without a matching rule.
pub const DEFAULT: &str = "events";

/// Maximum rules of one type.
pub const RULES_MAX: usize = 32;

/// Maximum conditions of one rule.
pub const CONDITIONS_MAX: usize = 16;

/// Where events of one type go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Routes {
    rules: Vec<Route>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EventTypeRoute))]
pub struct Route {
    /// Conditions on an event's attributes.
    #[serde(default, rename = "if", skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(schema_with = conditions, required = false))]
    pub conditions: BTreeMap<Pointer, Value>,
    /// Topics of a matching event.
    #[cfg_attr(feature = "openapi", schema(schema_with = topics))]
    pub topics: Vec<Topic>,
}

#[cfg(feature = "openapi")]
fn conditions() -> utoipa::openapi::Object {
    utoipa::openapi::ObjectBuilder::new()
        .description(Some("Places in the attributes, and their values."))
        .max_properties(Some(CONDITIONS_MAX))
        .build()
}

#[cfg(feature = "openapi")]
fn topics() -> utoipa::openapi::schema::Array {
    let topic = utoipa::openapi::ObjectBuilder::new()
        .schema_type(utoipa::openapi::schema::Type::String)
        .pattern(Some("^[a-z0-9_.-]{1,64}$"));
    utoipa::openapi::schema::ArrayBuilder::new()
        .items(topic)
        .min_items(Some(1))
        .max_items(Some(TOPICS_MAX))
        .description(Some("The topics that the event goes to."))
        .build()
}

impl Routes {
    /// Creates routes from rules.
    ///
    /// # Errors
    /// If a number is out of bounds, with the path of the field.
    pub fn new(rules: Vec<Route>) -> Result<Self, FieldError> {
        let routes = Self { rules };
        routes.check()?;
        Ok(routes)
    }

    /// Checks bounds that the types do not express, for deserialised routes.
    ///
    /// # Errors
    /// If a field is invalid, with its path relative to the routes.
    pub fn check(&self) -> Result<(), FieldError> {
        let bounded = |path: &str, count: usize, min: usize, max: usize| {
            let problem = || format!("must have {min} to {max} entries, has {count}");
            match (min..=max).contains(&count) {
                true => Ok(()),
                false => Err(FieldError::new(path, problem())),
            }
        };
        bounded("", self.rules.len(), 0, RULES_MAX)?;
        for (index, rule) in self.rules.iter().enumerate() {
            let conditions = rule.conditions.len();
            bounded(&format!("[{index}].if"), conditions, 0, CONDITIONS_MAX)?;
            bounded(
                &format!("[{index}].topics"),
                rule.topics.len(),
                1,
                TOPICS_MAX,
            )?;
        }
        let topics = self.rules.iter().flat_map(|rule| &rule.topics);
        let topics: BTreeSet<&Topic> = topics.collect();
        // This bounds the topics of an event, independent of the matching rules.
        match topics.len() <= TOPICS_MAX {
            true => Ok(()),
            false => {
                let problem = format!("name {} topics, the maximum is {TOPICS_MAX}", topics.len());
                Err(FieldError::new("", problem))
            }
        }
    }

    /// The rules in order.
    pub fn rules(&self) -> &[Route] {
        &self.rules
    }

    /// The topics of `event`: each once, in order.
    pub fn topics(&self, event: &Event) -> Vec<Topic> {
        let holding = self.rules.iter().filter(|rule| rule.matches(event));
        let topics: BTreeSet<&Topic> = holding.flat_map(|rule| &rule.topics).collect();
        match topics.is_empty() {
            true => default_topics(),
            false => topics.into_iter().take(TOPICS_MAX).cloned().collect(),
        }
    }
}

impl Route {
    fn matches(&self, event: &Event) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.all(|(place, value)| place.find(&event.attributes) == Some(value))
    }
}

/// The default topic.
fn default_topics() -> Vec<Topic> {
    // The constant is a valid topic name.
    Topic::new(DEFAULT).map_or_else(|_| vec![], |topic| vec![topic])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    fn routes(json: &str) -> Routes {
        let routes: Routes = serde_json::from_str(json).unwrap();
        routes.check().unwrap();
        routes
    }

    fn topics(routes: &Routes, attributes: &str) -> Vec<String> {
        let json = format!(r#"{{"type":"view","attributes":{attributes}}}"#);
        let topics = routes.topics(&Event::read(&json).unwrap());
        topics.iter().map(Topic::to_string).collect()
    }

    #[test]
    fn event_is_routed_to_topics_of_all_matching_rules() {
        let routes = routes(
            r#"[{"if":{"/attributes/from":"mail"},"topics":["mail","events"]},
                {"if":{"/attributes/from":"mail","/attributes/user/vip":true},"topics":["vip"]},
                {"if":{"/attributes/n":3},"topics":["three","mail"]}]"#,
        );
        assert_eq!(topics(&routes, r#"{"from":"mail"}"#), ["events", "mail"]);
        let both = r#"{"from":"mail","user":{"vip":true},"n":3}"#;
        assert_eq!(topics(&routes, both), ["events", "mail", "three", "vip"]);
        assert_eq!(topics(&routes, r#"{"user":{"vip":true}}"#), [DEFAULT]);
        assert_eq!(topics(&routes, r#"{"n":"3"}"#), [DEFAULT]);
        assert_eq!(topics(&Routes::default(), "{}"), [DEFAULT]);
    }

    #[test]
    fn rule_without_conditions_always_matches() {
        let routes = routes(r#"[{"topics":["all"]}]"#);
        assert_eq!(topics(&routes, "{}"), ["all"]);
        let json = serde_json::to_string(&routes).unwrap();
        assert_eq!(json, r#"[{"topics":["all"]}]"#);
    }

    #[test]
    fn invalid_event_rules_are_refused_with_their_path() {
        let path = |json: &str| {
            let routes: Routes = serde_json::from_str(json).unwrap();
            routes.check().unwrap_err().path
        };
        assert_eq!(path(r#"[{"topics":["a"]},{"topics":[]}]"#), "[1].topics");
        let list = |rules: Vec<String>| format!("[{}]", rules.join(","));
        let many = |count| list(vec![r#"{"topics":["a"]}"#.to_string(); count]);
        assert_eq!(path(&many(RULES_MAX + 1)), "");
        let different = (0..=TOPICS_MAX).map(|n| format!(r#"{{"topics":["t{n}"]}}"#));
        assert_eq!(path(&list(different.collect())), "");
        let conditions: Vec<_> = (0..=CONDITIONS_MAX)
            .map(|n| format!(r#""/attributes/{n}":1"#))
            .collect();
        let json = format!(r#"[{{"if":{{{}}},"topics":["a"]}}]"#, conditions.join(","));
        assert_eq!(path(&json), "[0].if");
        for bad in [
            r#"[{"if":{"/type":"a"},"topics":["a"]}]"#,
            r#"[{"topics":["A"]}]"#,
            r#"[{"topics":["a"],"colour":1}]"#,
            r#"[{}]"#,
        ] {
            assert!(serde_json::from_str::<Routes>(bad).is_err(), "{bad}");
        }
    }
}
