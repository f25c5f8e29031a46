//! What a change has set, for the audit trail.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// The changed members, from and to: `state: open to closed`. A handler adds it to its response as an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditDetail(pub String);

impl AuditDetail {
    /// The members that differ. A missing member is `none`.
    pub fn between(before: &impl Serialize, after: &impl Serialize) -> Self {
        let (before, after) = (members(before), members(after));
        let changed = after.iter().filter_map(|(name, value)| {
            let earlier = before.get(name).map_or("none", String::as_str);
            (earlier != value).then(|| format!("{name}: {earlier} to {value}"))
        });
        Self(changed.collect::<Vec<_>>().join(", "))
    }
}

/// The members of a value as text, with the path of those in other objects.
fn members(value: &impl Serialize) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if let Ok(Value::Object(object)) = serde_json::to_value(value) {
        collect(&mut found, "", object);
    }
    found
}

fn collect(
    found: &mut BTreeMap<String, String>,
    path: &str,
    object: serde_json::Map<String, Value>,
) {
    for (name, value) in object {
        let path = format!("{path}{name}");
        match value {
            Value::Object(inner) => collect(found, &format!("{path}."), inner),
            Value::Null => {
                found.insert(path, "none".to_owned());
            }
            Value::String(text) => {
                found.insert(path, text);
            }
            other => {
                found.insert(path, other.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn detail_names_only_changed_members() {
        let before =
            json!({ "state": "open", "degrade": { "a": false, "b": true }, "cap": 1, "sku": null });
        let after =
            json!({ "state": "closed", "degrade": { "a": true, "b": true }, "cap": 1, "sku": "S" });
        let detail = AuditDetail::between(&before, &after);
        let expected = "degrade.a: false to true, sku: none to S, state: open to closed";
        assert_eq!(detail.0, expected);
        assert_eq!(AuditDetail::between(&after, &after).0, "");
        assert_eq!(
            AuditDetail::between(&json!(null), &json!({ "mode": "paused" })).0,
            "mode: none to paused"
        );
    }
}
