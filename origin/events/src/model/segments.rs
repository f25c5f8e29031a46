//! Segments: customers by rules on their events.
//!
//! ```json
//! {"conditions": [{"type": "order", "at_least": 1, "days": 180}, {"type": "order", "at_most": 0, "days": 30}], "notify": true}
//! ```

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_base::FieldError;
use weir_event::name::EventType;

/// Maximum number of segments.
pub const SEGMENTS_MAX: u64 = 100;

/// Maximum length of a segment's definition, in bytes of JSON.
pub const SEGMENT_LEN_MAX: usize = 4 << 10;

/// Maximum number of conditions.
const CONDITIONS_MAX: usize = 3;

/// Maximum length of a window, in days.
const DAYS_MAX: u32 = 366;

/// Maximum number of events in a condition.
const EVENTS_MAX: u32 = 10_000;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Definition of a segment: its members meet all conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSegment)]
pub struct SegmentSpec {
    /// One of them needs `at_least` 1 or more: customers without events are in no segment.
    #[schema(min_items = 1, max_items = 3)]
    pub conditions: Vec<Condition>,
    /// Whether customers who enter or leave become events, for webhooks and other consumer groups.
    #[serde(default)]
    pub notify: bool,
}

/// How many events of a type a customer has in the last days.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SegmentCondition)]
pub struct Condition {
    /// The type of the events.
    #[serde(rename = "type")]
    #[schema(pattern = "^[a-z0-9_.-]{1,64}$")]
    pub event_type: String,
    /// Minimum number of events; default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, maximum = 10000)]
    pub at_least: Option<u32>,
    /// Maximum number of events; default: no maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, maximum = 10000)]
    pub at_most: Option<u32>,
    /// Length of the window, which ends at the evaluation.
    #[schema(minimum = 1, maximum = 366)]
    pub days: u32,
}

impl SegmentSpec {
    /// Checks the definition.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn check(&self) -> Result<(), FieldError> {
        if !(1..=CONDITIONS_MAX).contains(&self.conditions.len()) {
            let detail = format!("must be 1 to {CONDITIONS_MAX} conditions");
            return Err(FieldError::new("conditions", detail));
        }
        for (at, condition) in self.conditions.iter().enumerate() {
            let wrong = |(field, detail): (&str, String)| {
                FieldError::new(format!("conditions[{at}].{field}"), detail)
            };
            condition.check().map_err(wrong)?;
        }
        match self.split() {
            Some(_) => Ok(()),
            None => Err(FieldError::new(
                "conditions",
                "one condition must have at_least 1 or more",
            )),
        }
    }

    /// A condition that only customers with events meet, and the other conditions.
    pub fn split(&self) -> Option<(&Condition, Vec<&Condition>)> {
        let at = self
            .conditions
            .iter()
            .position(|one| *one.range().start() > 0)?;
        let mut conditions: Vec<&Condition> = self.conditions.iter().collect();
        let first = conditions.remove(at);
        Some((first, conditions))
    }
}

impl Condition {
    fn check(&self) -> Result<(), (&'static str, String)> {
        EventType::new(&self.event_type).map_err(|error| ("type", error.to_string()))?;
        if !(1..=DAYS_MAX).contains(&self.days) {
            return Err(("days", format!("must be 1 to {DAYS_MAX}")));
        }
        for (field, value) in [("at_least", self.at_least), ("at_most", self.at_most)] {
            if value.is_some_and(|value| value > EVENTS_MAX) {
                return Err((field, format!("must be at most {EVENTS_MAX}")));
            }
        }
        match (self.at_least, self.at_most) {
            (None, None) => Err(("at_least", "or at_most is required".to_owned())),
            _ if self.range().is_empty() => {
                Err(("at_most", "must not be less than at_least".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// The numbers of events that meet the condition.
    pub fn range(&self) -> RangeInclusive<u64> {
        let most = self.at_most.map_or(u64::MAX, u64::from);
        u64::from(self.at_least.unwrap_or(0))..=most
    }

    /// The first and the last instant of the window that ends at `end_ms`, in milliseconds since the Unix epoch.
    pub fn window(&self, end_ms: u64) -> RangeInclusive<u64> {
        (end_ms + 1).saturating_sub(u64::from(self.days) * DAY_MS)..=end_ms
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn error_of(conditions: &Value) -> String {
        let spec = json!({"conditions": conditions});
        let spec: SegmentSpec = serde_json::from_value(spec).unwrap();
        spec.check().unwrap_err().to_string()
    }

    #[test]
    fn segment_needs_events_of_at_least_one_type() {
        let dormant = json!({"conditions": [{"type": "order", "at_most": 0, "days": 30}, {"type": "order", "at_least": 1, "days": 180}]});
        let spec: SegmentSpec = serde_json::from_value(dormant).unwrap();
        spec.check().unwrap();
        let (first, others) = spec.split().unwrap();
        assert_eq!((first.days, others.len(), others[0].days), (180, 1, 30));
        let nobody = error_of(&json!([{"type": "order", "at_most": 0, "days": 30}]));
        assert!(nobody.contains("at_least 1 or more"), "{nobody}");
    }

    #[test]
    fn segment_conditions_are_bounded() {
        let one = |rest: Value| {
            let mut one = json!({"type": "view", "at_least": 1, "days": 7});
            for (name, value) in rest.as_object().unwrap() {
                one[name] = value.clone();
            }
            one
        };
        for (conditions, wrong) in [
            (json!([]), "1 to 3"),
            (json!(vec![one(json!({})); 4]), "1 to 3"),
            (json!([one(json!({"days": 0}))]), "conditions[0].days"),
            (
                json!([one(json!({})), one(json!({"days": 367}))]),
                "conditions[1].days",
            ),
            (json!([one(json!({"type": "View"}))]), "conditions[0].type"),
            (
                json!([one(json!({"at_least": 10_001}))]),
                "conditions[0].at_least",
            ),
            (json!([one(json!({"at_most": 0}))]), "conditions[0].at_most"),
            (
                json!([{"type": "view", "days": 7}]),
                "conditions[0].at_least",
            ),
        ] {
            let error = error_of(&conditions);
            assert!(error.contains(wrong), "{conditions}: {error}");
        }
    }

    #[test]
    fn segment_window_includes_only_its_end() {
        let condition = Condition {
            event_type: "view".to_owned(),
            at_least: Some(1),
            at_most: None,
            days: 1,
        };
        assert_eq!(condition.window(2 * DAY_MS), DAY_MS + 1..=2 * DAY_MS);
        assert_eq!(condition.window(5), 0..=5);
        assert_eq!(condition.range(), 1..=u64::MAX);
    }
}
