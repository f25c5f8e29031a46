//! JSON as it is compared and kept: without spaces, members in the order of their names.

use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Value};

/// Attributes, as JSON reads them.
pub type Attributes = Map<String, Value>;

/// The one text of an object that says the same, however its members were ordered and spaced.
pub(crate) fn canonical(object: &Attributes) -> String {
    let mut text = String::new();
    write_object(&mut text, object);
    text
}

/// How deep a value's arrays and objects stand in one another. It calls itself as often: readers stop at 128.
pub(crate) fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(nesting).max().unwrap_or(0),
        Value::Object(members) => nesting_of(members),
        _ => 0,
    }
}

/// As [`nesting`], of an object.
pub(crate) fn nesting_of(object: &Attributes) -> usize {
    1 + object.values().map(nesting).max().unwrap_or(0)
}

fn write(text: &mut String, value: &Value) {
    match value {
        Value::Array(values) => {
            text.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(text, value);
            }
            text.push(']');
        }
        Value::Object(members) => write_object(text, members),
        plain => push_json(text, plain),
    }
}

fn write_object(text: &mut String, object: &Attributes) {
    // Whether a map keeps its members in order hangs on a feature that any other crate may switch on.
    let mut members: Vec<_> = object.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    text.push('{');
    for (index, (name, value)) in members.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        push_json(text, name);
        text.push(':');
        write(text, value);
    }
    text.push('}');
}

fn push_json(text: &mut String, value: &impl serde::Serialize) {
    // Texts, numbers and words: there is nothing in it that JSON cannot say.
    text.push_str(&serde_json::to_string(value).unwrap_or_default());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any JSON, a few levels deep.
    pub(crate) fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("JSON has no infinity", |number| number.is_finite())
                .prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Any attributes.
    pub(crate) fn attributes() -> impl Strategy<Value = Attributes> {
        prop::collection::btree_map(".{0,6}", values(), 0..5)
            .prop_map(|members| members.into_iter().collect())
    }

    #[test]
    fn order_and_spaces_do_not_count() {
        let read = |text: &str| canonical(&serde_json::from_str(text).unwrap());
        let expected = r#"{"a":[1,2.5,{"x":null,"y":"\n"}],"b":true}"#;
        assert_eq!(
            read(r#" {"b": true, "a": [ 1, 2.5, {"y":"\u000a", "x": null}]} "#),
            expected
        );
        assert_eq!(read(expected), expected);
        assert_ne!(read(r#"{"a":[1,2]}"#), read(r#"{"a":[2,1]}"#));
    }

    #[test]
    fn levels_are_counted() {
        let of = |text: &str| nesting(&serde_json::from_str(text).unwrap());
        assert_eq!((of("1"), of("[]"), of("{}")), (0, 1, 1));
        assert_eq!(of(r#"[1,{"a":[{}],"b":2},[]]"#), 4);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(object in attributes()) {
            let text = canonical(&object);
            let read: Attributes = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(canonical(&read), text);
        }
    }
}
