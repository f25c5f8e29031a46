//! JSON Schemas from operators. They cannot read files or the network, and errors omit the invalid values.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::http::ValidationError;

/// Maximum bytes of a compiled pattern, which limits the cost of a schema.
const PATTERN_LEN_MAX: usize = 1 << 20;

/// Maximum length of a reported message or location, in characters.
const MESSAGE_LEN_MAX: usize = 300;

/// Maximum number of reported errors.
const ERRORS_MAX: usize = 20;

/// Compiles a schema. Patterns run in linear time, and references must be internal.
///
/// # Errors
/// Describes the error in the schema.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_LEN_MAX);
    let options = jsonschema::options().with_pattern_options(patterns);
    let compiled = options.offline().build(schema);
    compiled.map_err(|error| cut(&error.to_string()))
}

/// Errors of a value with their locations. The value itself is omitted, so that the result can be logged.
pub fn validation_errors(schema: &Validator, value: &Value) -> Vec<ValidationError> {
    let errors = schema.iter_errors(value).take(ERRORS_MAX);
    let fault = |error: jsonschema::ValidationError<'_>| ValidationError {
        pointer: cut(&error.instance_path().to_string()),
        detail: cut(&error.masked().to_string()),
    };
    errors.map(fault).collect()
}

/// Truncates a text to the reported length.
pub fn cut(text: &str) -> String {
    text.chars().take(MESSAGE_LEN_MAX).collect()
}
