//! A buyer's data in an order, such as a contact, an address or a variant, validated by the sale's JSON Schema.
//!
//! It is personal data. It is stored in SQL and sent to operators, the buyer and receivers of order changes. It is
//! never logged.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jsonschema::Validator;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use weir_base::id::SaleId;

use crate::store::SaleStore;
use weir_origin_core::http::ValidationError;
use weir_origin_core::json_schema::{compile, validation_errors};
use weir_origin_core::sql::SqlError;

/// Maximum length of a payload, in bytes of JSON.
pub const PAYLOAD_LEN_MAX: usize = 8 * 1024;

/// Maximum length of a schema, in bytes of JSON.
pub const SCHEMA_LEN_MAX: usize = 8 * 1024;

/// How long a schema is cached. It changes only before the sale starts, when there are no orders.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// Maximum number of sales whose schemas are cached.
const KNOWN_MAX: usize = 1_024;

/// A payload that matches its sale's schema, as JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(String);

impl Payload {
    /// Wraps a payload from SQL.
    pub fn of_sql(json: String) -> Self {
        Self(json)
    }

    /// The JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Omits the content, which must not appear in logs.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        json.serialize(serializer)
    }
}

/// Checks whether a value is a valid schema for a sale.
///
/// # Errors
/// Describes the problem.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    let length = schema.to_string().len();
    if length > SCHEMA_LEN_MAX {
        return Err(format!("must have at most {SCHEMA_LEN_MAX} bytes of JSON"));
    }
    if !schema.is_object() {
        return Err("must be a JSON Schema: an object".to_owned());
    }
    compile(schema).map(drop)
}

/// The compiled payload schema of a sale.
#[derive(Clone, Debug)]
pub struct PayloadRules(Arc<Validator>);

impl PayloadRules {
    /// Parses and validates a body.
    ///
    /// # Errors
    /// All validation errors with their locations, without the values.
    pub fn read(&self, body: &[u8]) -> Result<Payload, Vec<ValidationError>> {
        let value: Value = serde_json::from_slice(body).map_err(|_| {
            let detail = "must be JSON".to_owned();
            let pointer = String::new();
            vec![ValidationError { pointer, detail }]
        })?;
        let validation_errors = validation_errors(&self.0, &value);
        match validation_errors.is_empty() {
            true => Ok(Payload(value.to_string())),
            false => Err(validation_errors),
        }
    }
}

/// A cached schema with the time of its query; `None`: the sale has none.
type CachedRules = (Instant, Option<PayloadRules>);

/// The payload schemas of sales. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Payloads {
    store: SaleStore,
    cached: Arc<Mutex<HashMap<SaleId, CachedRules>>>,
    /// Serializes queries to SQL, because many orders need the schema when a sale starts.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Payloads {
    pub(crate) fn new(store: SaleStore) -> Self {
        Self {
            store,
            cached: Arc::default(),
            turn: Arc::default(),
        }
    }

    /// Returns the payload rules of a sale; `None`: the sale does not exist or has no schema.
    ///
    /// # Errors
    /// When SQL does not answer, or contains an invalid schema.
    pub async fn of(&self, sale: &SaleId) -> Result<Option<PayloadRules>, SqlError> {
        if let Some((_, rules)) = self.cached_schema(sale) {
            return Ok(rules);
        }
        let _turn = self.turn.lock().await;
        if let Some((_, rules)) = self.cached_schema(sale) {
            return Ok(rules);
        }
        let now = Instant::now();
        let schema = self.store.payloads().payload_schema(sale).await?;
        let rules = schema.as_ref().map(compile).transpose();
        let rules =
            rules.map_err(|error| weir_origin_core::sql::damaged("payload_schemas", error))?;
        let rules = rules.map(|validator| PayloadRules(Arc::new(validator)));
        let mut existing = self.lock();
        if existing.len() >= KNOWN_MAX {
            existing.clear();
        }
        existing.insert(sale.clone(), (now, rules.clone()));
        Ok(rules)
    }

    /// Returns a cached schema that is still fresh.
    fn cached_schema(&self, sale: &SaleId) -> Option<CachedRules> {
        let existing = self.lock().get(sale).cloned();
        existing.filter(|(at, _)| at.elapsed() < KNOWN_FOR)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SaleId, CachedRules>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn payload_schema_is_valid_bounded_and_self_contained() {
        assert_eq!(check_schema(&json!({"type": "object"})), Ok(()));
        for (bad, response) in [
            (json!(true), "an object"),
            (json!({"type": "colour"}), "colour"),
            (json!({"pattern": "(a{1000}){1000}{1000}"}), ""),
            (json!({"$ref": "http://127.0.0.1:1/x"}), ""),
            (json!({"$ref": "file:///etc/passwd"}), ""),
            (json!({"title": "x".repeat(SCHEMA_LEN_MAX)}), "8192"),
        ] {
            let error = check_schema(&bad).unwrap_err();
            assert!(error.contains(response), "{error}");
        }
    }

    #[test]
    fn payload_is_validated_by_schema_and_never_logged() {
        let schema = json!({
            "type": "object", "required": ["mail"], "additionalProperties": false,
            "properties": {"mail": {"type": "string", "pattern": "@"}, "size": {"enum": ["M", "L"]}},
        });
        let rules = PayloadRules(Arc::new(compile(&schema).unwrap()));
        let accepted = rules.read(br#" {"size":"M", "mail":"a@b"} "#).unwrap();
        assert_eq!(accepted.as_str(), r#"{"mail":"a@b","size":"M"}"#);
        assert_eq!(format!("{accepted:?}"), "Payload(25 bytes)");
        assert_eq!(serde_json::to_string(&accepted).unwrap(), accepted.as_str());
        let validation_errors = rules
            .read(br#"{"mail":"Secret","size":"Huge","x":1}"#)
            .unwrap_err();
        let places: Vec<&str> = validation_errors
            .iter()
            .map(|fault| fault.pointer.as_str())
            .collect();
        assert_eq!(places.len(), 3, "{validation_errors:?}");
        assert!(places.contains(&"/mail") && places.contains(&"/size"));
        let message = format!("{validation_errors:?}");
        assert!(
            !message.contains("Secret") && !message.contains("Huge"),
            "{message}"
        );
        assert_eq!(rules.read(b"").unwrap_err()[0].detail, "must be JSON");
        assert_eq!(rules.read(b"{").unwrap_err()[0].detail, "must be JSON");
    }
}
