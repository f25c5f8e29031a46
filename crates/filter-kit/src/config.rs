//! JSON configuration, refused with the path of the field that is wrong.

use proxy_wasm::hostcalls;
use proxy_wasm::types::BufferType;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use weir_base::breaker;

pub use weir_base::FieldError;

/// A secret's place. Secrets do not stand in the configuration itself, which is copied, shown and
/// logged.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretSource {
    /// The environment variable that holds it: one that the VM is given, by
    /// `vm_config.environment_variables.host_env_keys`.
    pub env: String,
}

impl SecretSource {
    /// Fetches the secret that the field at `path` names.
    ///
    /// # Errors
    /// When the VM has no such variable, or an empty one.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, FieldError> {
        let name = &self.env;
        crate::env::var(name).filter(|value| !value.is_empty()).ok_or_else(|| {
            let problem = format!(
                "the secret is missing: the VM has no environment variable {name}; set {name} for \
                 Envoy and list it in vm_config.environment_variables.host_env_keys"
            );
            FieldError::new(format!("{path}.env"), problem)
        })
    }
}

/// Reads the plugin's configuration. None at all counts as `{}`.
///
/// # Errors
/// When it is not JSON, has an unknown field, lacks one or has one of a wrong type; with the path.
pub fn read_plugin<T: DeserializeOwned>() -> Result<T, FieldError> {
    let bytes = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX)
        .map_err(|status| FieldError::new("", format!("the host does not give it: {status:?}")))?
        .unwrap_or_default();
    parse(if bytes.is_empty() { b"{}" } else { &bytes })
}

/// Reads a configuration.
///
/// # Errors
/// As [`read_plugin`].
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, FieldError> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| FieldError::new(error.path().to_string(), error.into_inner()))?;
    reader.end().map_err(|error| FieldError::new("", error))?;
    Ok(value)
}

/// Refuses a number that is out of its bounds.
///
/// # Errors
/// When it is.
pub fn within(path: &str, value: u64, min: u64, max: u64) -> Result<(), FieldError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let problem = format!("must be {min} to {max}, is {value}");
    Err(FieldError::new(path, problem))
}

/// The name of a header, in lower case.
///
/// # Errors
/// When it is no token (RFC 9110, 5.6.2).
pub fn header_name(path: &str, name: &str) -> Result<String, FieldError> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(FieldError::new(path, "must be the name of a header"));
    }
    Ok(name.to_ascii_lowercase())
}

/// Refuses a breaker whose numbers are out of their bounds.
///
/// # Errors
/// When one is.
pub fn check_breaker(path: &str, settings: &breaker::Settings) -> Result<(), FieldError> {
    let field = |name: &str, value: u64, max| within(&format!("{path}.{name}"), value, 1, max);
    field("window_ms", settings.window_ms, BREAKER_MS_MAX)?;
    field(
        "min_requests",
        settings.min_requests.into(),
        BREAKER_COUNT_MAX,
    )?;
    field("failure_percent", settings.failure_percent.into(), 100)?;
    field("open_ms", settings.open_ms, BREAKER_MS_MAX)?;
    field("probes", settings.probes.into(), BREAKER_COUNT_MAX)
}

/// The longest window and pause of a breaker: an hour.
const BREAKER_MS_MAX: u64 = 60 * 60 * 1_000;

/// The greatest counts of a breaker. Beyond them a slip of the pen would switch it off.
const BREAKER_COUNT_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[allow(dead_code)] // only its reading is looked at
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[allow(dead_code)] // only its reading is looked at
        size: u32,
    }

    #[test]
    fn a_refusal_names_the_field_by_its_path() {
        let refused = |json: &str| parse::<Outer>(json.as_bytes()).unwrap_err();
        let wrong_type = refused(r#"{"inner":[{"size":1},{"size":"2"}]}"#);
        assert_eq!(wrong_type.path, "inner[1].size");
        assert!(wrong_type.problem.contains("expected u32"), "{wrong_type}");
        let unknown = refused(r#"{"inner":[{"size":1,"color":2}]}"#);
        assert_eq!(unknown.path, "inner[0].color");
        assert!(
            unknown.problem.contains("unknown field `color`"),
            "{unknown}"
        );
        let missing = refused(r#"{"inner":[{}]}"#);
        assert_eq!(missing.path, "inner[0]");
        assert!(
            missing.problem.contains("missing field `size`"),
            "{missing}"
        );
        assert!(refused("{\"inner\":[]} x").to_string().contains("trailing"));
        assert!(refused("nonsense").to_string().starts_with("expected"));
    }

    #[test]
    fn a_missing_secret_says_where_it_should_have_been() {
        let source = SecretSource {
            env: "WEIR_NO_SUCH_VARIABLE".into(),
        };
        let error = source.read("claim.secret").unwrap_err();
        assert_eq!(error.path, "claim.secret.env");
        assert!(
            error.to_string().contains("WEIR_NO_SUCH_VARIABLE"),
            "{error}"
        );
    }
}
