//! JSON Schemas that operators give: compiled so that they read no files and no network, and say what is wrong without the
//! values that are wrong.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::http::ValidationError;

/// The most bytes of a compiled pattern: what one schema may cost.
const PATTERN_LEN_MAX: usize = 1 << 20;

/// The longest message and the longest place that is told, in characters.
const MESSAGE_LEN_MAX: usize = 300;

/// The most mistakes that are told at once.
const ERRORS_MAX: usize = 20;

/// Patterns run in linear time, and references lead nowhere but into the schema itself.
///
/// # Errors
/// Says what is wrong with the schema.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_LEN_MAX);
    let options = jsonschema::options().with_pattern_options(patterns);
    let compiled = options.offline().build(schema);
    compiled.map_err(|error| cut(&error.to_string()))
}

/// What is wrong with a value, and where, but not what it is: the answer may be logged.
pub fn validation_errors(schema: &Validator, value: &Value) -> Vec<ValidationError> {
    let errors = schema.iter_errors(value).take(ERRORS_MAX);
    let fault = |error: jsonschema::ValidationError<'_>| ValidationError {
        pointer: cut(&error.instance_path().to_string()),
        detail: cut(&error.masked().to_string()),
    };
    errors.map(fault).collect()
}

/// At most so much of a text as is told.
pub fn cut(text: &str) -> String {
    text.chars().take(MESSAGE_LEN_MAX).collect()
}
