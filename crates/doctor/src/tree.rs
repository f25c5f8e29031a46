//! Access to a JSON tree. Envoy accepts two spellings of each field, and so do these functions.

use serde_json::Value;

/// The field `name` of `value`, in either spelling: `route_config` or `routeConfig`.
pub(crate) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let found = value.get(name).or_else(|| value.get(camel(name)));
    found.filter(|value| !value.is_null())
}

/// The value at `path`, with steps separated by dots.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, field)
}

/// The text at `path`.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    at(value, path)?.as_str()
}

/// The list at `path`; empty if there is none.
pub(crate) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    let found = at(value, path).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// The number at `path`. Envoy prints large ones as strings.
pub(crate) fn number(value: &Value, path: &str) -> Option<u64> {
    let value = at(value, path)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Whether the flag at `path` is set.
pub(crate) fn is_set(value: &Value, path: &str) -> bool {
    at(value, path).and_then(Value::as_bool) == Some(true)
}

/// The duration at `path`, such as `0.25s`, in milliseconds.
pub(crate) fn duration_ms(value: &Value, path: &str) -> Option<u64> {
    let seconds: f64 = text(value, path)?.strip_suffix('s')?.parse().ok()?;
    // A negative or absurd number is clamped to a bound, which every check reports.
    Some((seconds * 1_000.0).round() as u64)
}

/// The type in `typed_config`, without the part up to the last `/`.
pub(crate) fn type_of(value: &Value) -> &str {
    let name = text(value, "typed_config.@type").unwrap_or_default();
    name.rsplit('/').next().unwrap_or_default()
}

/// The name of a listener, filter, cluster or route.
pub(crate) fn name(value: &Value) -> &str {
    text(value, "name").unwrap_or("without a name")
}

fn camel(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut is_next_upper = false;
    for letter in name.chars() {
        match letter {
            '_' => is_next_upper = true,
            letter if is_next_upper => {
                camel.push(letter.to_ascii_uppercase());
                is_next_upper = false;
            }
            letter => camel.push(letter),
        }
    }
    camel
}
