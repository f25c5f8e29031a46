//! Canonical JSON: without spaces, with members ordered by name.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// Every decimal number of up to this many characters is represented exactly.
const EXACT_LEN: usize = 15;

/// The parsed attributes.
pub type Attributes = Map<String, Value>;

/// The canonical text of an object, independent of the order of members and of spaces.
pub(crate) fn canonical(object: &Attributes) -> String {
    let mut text = String::new();
    write_object(&mut text, object);
    text
}

/// The nesting depth of a value's arrays and objects. The recursion is as deep; parsers stop at 128.
pub(crate) fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(nesting).max().unwrap_or(0),
        Value::Object(members) => nesting_of(members),
        _ => 0,
    }
}

/// Like [`nesting`], for an object.
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

/// The path of the first number that would lose digits, such as `attributes.items[0].price`.
///
/// `json` must be valid JSON.
pub(crate) fn inexact_number(json: &str) -> Option<String> {
    // Most events have no such long number and need no second parse.
    if !has_long_number(json) {
        return None;
    }
    let mut path = String::new();
    is_inexact(json, &mut path).then_some(path)
}

/// Whether a number has more than [`EXACT_LEN`] characters or an exponent.
fn has_long_number(json: &str) -> bool {
    let (mut length, mut is_in_text) = (0, false);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_in_text = !is_in_text,
            // An escaped quote does not end the string.
            b'\\' => drop(bytes.next()),
            _ if is_in_text => {}
            b'0'..=b'9' | b'.' => length += 1,
            b'e' | b'E' if length > 0 => return true,
            _ => length = 0,
        }
        if length > EXACT_LEN {
            return true;
        }
    }
    false
}

/// Whether such a number exists; `path` then leads to it. The recursion is as deep as the nesting; parsers stop at 128
/// levels.
fn is_inexact(json: &str, path: &mut String) -> bool {
    let begin = path.len();
    match json.trim_ascii_start().as_bytes().first() {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = read(json);
            for (name, value) in &members {
                let dot = if begin == 0 { "" } else { "." };
                let _ = write!(path, "{dot}{name}");
                if is_inexact(value.get(), path) {
                    return true;
                }
                path.truncate(begin);
            }
            false
        }
        Some(b'[') => {
            let values: Vec<&RawValue> = read(json);
            for (index, value) in values.iter().enumerate() {
                let _ = write!(path, "[{index}]");
                if is_inexact(value.get(), path) {
                    return true;
                }
                path.truncate(begin);
            }
            false
        }
        Some(b'-' | b'0'..=b'9') => {
            let number: Result<Number, _> = serde_json::from_str(json);
            number.is_ok_and(|number| decimal(&number.to_string()) != decimal(json.trim_ascii()))
        }
        _ => false,
    }
}

fn read<'j, T: serde::Deserialize<'j> + Default>(json: &'j str) -> T {
    serde_json::from_str(json).unwrap_or_default()
}

/// A JSON number as a sign, digits without leading and trailing zeros, and the power of ten of the last digit.
fn decimal(text: &str) -> (bool, String, i64) {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let significant = digits.trim_end_matches('0');
    // Parsing has failed for an exponent outside `i64`, unless the number is 0.
    let exponent: i64 = exponent.parse().unwrap_or(i64::from(i32::MIN));
    let moved = (digits.len() - significant.len()) as i64 - fraction.len() as i64;
    match significant.trim_start_matches('0') {
        "" => (false, String::new(), 0),
        digits => (
            is_negative,
            digits.to_string(),
            exponent.saturating_add(moved),
        ),
    }
}

fn write_object(text: &mut String, object: &Attributes) {
    // Any other crate may enable the serde_json feature that keeps members in insertion order.
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
    // Strings, numbers and keywords always serialize.
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
    fn member_order_and_whitespace_are_ignored() {
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
    fn inexact_numbers_are_found_with_their_path() {
        for exact in [
            r#"{"a":[0,-1,18446744073709551615,-9223372036854775808,1.10,1e3,1E+22,-0,0.30000000000000004]}"#,
            r#"{"a":9007199254740993,"b":1.7976931348623157e308,"c":5e-324,"d":"12345678901234567890123"}"#,
            r#"{"a":100000000000000000000000,"b":0e999999999999999999999,"c":[]}"#,
        ] {
            assert_eq!(inexact_number(exact), None, "{exact}");
        }
        for (json, path) in [
            (
                r#"{"attributes":{"n":12345678901234567890123}}"#,
                "attributes.n",
            ),
            (
                r#"{"attributes":{"items":[{"price":1},{"price":3.14159265358979323846}]}}"#,
                "attributes.items[1].price",
            ),
            (r#" { "a" : [ 1 , [ 18446744073709551616 ] ] } "#, "a[1][0]"),
            (r#"{"a":-9223372036854775809}"#, "a"),
            (r#"{"a":1e-400}"#, "a"),
            (r#"{"\"":"\\","a":18446744073709551616}"#, "a"),
            (r#"{"a":1.0000000000000001}"#, "a"),
        ] {
            assert_eq!(inexact_number(json).as_deref(), Some(path), "{json}");
        }
    }

    #[test]
    fn nesting_levels_are_counted() {
        let of = |text: &str| nesting(&serde_json::from_str(text).unwrap());
        assert_eq!((of("1"), of("[]"), of("{}")), (0, 1, 1));
        assert_eq!(of(r#"[1,{"a":[{}],"b":2},[]]"#), 4);
    }

    proptest! {
        #[test]
        fn canonical_json_has_only_exact_numbers(object in attributes()) {
            prop_assert_eq!(inexact_number(&canonical(&object)), None);
        }

        #[test]
        fn canonical_json_round_trips(object in attributes()) {
            let text = canonical(&object);
            let read: Attributes = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(canonical(&read), text);
        }
    }
}
