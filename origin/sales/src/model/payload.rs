//! What a buyer says with an order, such as a contact, an address or a variant: what a sale wants of it, by a JSON Schema.
//!
//! It is personal data. It stands in SQL and in what operators, the buyer and receivers of changes are told, and in no log.

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

/// The longest payload, in bytes of JSON.
pub const PAYLOAD_LEN_MAX: usize = 8 * 1024;

/// The longest schema, in bytes of JSON.
pub const SCHEMA_LEN_MAX: usize = 8 * 1024;

/// For how long a schema is taken for what SQL has. It changes only before the sale starts, when no orders come.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// The most sales whose schemas are kept in memory.
const KNOWN_MAX: usize = 1_024;

/// A payload that its sale takes, as JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(String);

impl Payload {
    /// One that SQL has.
    pub fn of_sql(json: String) -> Self {
        Self(json)
    }

    /// The JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What it says is nobody's business who reads a log.
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

/// Whether a schema may be a sale's, and if not, why.
///
/// # Errors
/// Says what is wrong.
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

/// What a sale wants of payloads.
#[derive(Clone, Debug)]
pub struct PayloadRules(Arc<Validator>);

impl PayloadRules {
    /// The payload that a body is.
    ///
    /// # Errors
    /// All that is wrong with it, by place, without what it says.
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

/// What SQL said last of a sale: when, and what it wants; `None`: nothing.
type CachedRules = (Instant, Option<PayloadRules>);

/// What sales want of payloads. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Payloads {
    store: SaleStore,
    known: Arc<Mutex<HashMap<SaleId, CachedRules>>>,
    /// Whose turn it is to ask SQL: when a sale starts, many want to know at once.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Payloads {
    pub(crate) fn new(store: SaleStore) -> Self {
        Self {
            store,
            known: Arc::default(),
            turn: Arc::default(),
        }
    }

    /// What a sale wants of payloads; `None`: there is no such sale, or it takes none.
    ///
    /// # Errors
    /// When SQL does not answer, or has what is no schema.
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
        let mut known = self.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(sale.clone(), (now, rules.clone()));
        Ok(rules)
    }

    /// What SQL said of a sale not long ago.
    fn cached_schema(&self, sale: &SaleId) -> Option<CachedRules> {
        let known = self.lock().get(sale).cloned();
        known.filter(|(at, _)| at.elapsed() < KNOWN_FOR)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SaleId, CachedRules>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_bounded_reads_nothing_from_elsewhere_and_is_one() {
        assert_eq!(check_schema(&json!({"type": "object"})), Ok(()));
        for (bad, said) in [
            (json!(true), "an object"),
            (json!({"type": "colour"}), "colour"),
            (json!({"pattern": "(a{1000}){1000}{1000}"}), ""),
            (json!({"$ref": "http://127.0.0.1:1/x"}), ""),
            (json!({"$ref": "file:///etc/passwd"}), ""),
            (json!({"title": "x".repeat(SCHEMA_LEN_MAX)}), "8192"),
        ] {
            let error = check_schema(&bad).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn payload_is_validated_by_schema_and_never_logged() {
        let schema = json!({
            "type": "object", "required": ["mail"], "additionalProperties": false,
            "properties": {"mail": {"type": "string", "pattern": "@"}, "size": {"enum": ["M", "L"]}},
        });
        let rules = PayloadRules(Arc::new(compile(&schema).unwrap()));
        let taken = rules.read(br#" {"size":"M", "mail":"a@b"} "#).unwrap();
        assert_eq!(taken.as_str(), r#"{"mail":"a@b","size":"M"}"#);
        assert_eq!(format!("{taken:?}"), "Payload(25 bytes)");
        assert_eq!(serde_json::to_string(&taken).unwrap(), taken.as_str());
        let validation_errors = rules
            .read(br#"{"mail":"Secret","size":"Huge","x":1}"#)
            .unwrap_err();
        let places: Vec<&str> = validation_errors
            .iter()
            .map(|fault| fault.pointer.as_str())
            .collect();
        assert_eq!(places.len(), 3, "{validation_errors:?}");
        assert!(places.contains(&"/mail") && places.contains(&"/size"));
        let told = format!("{validation_errors:?}");
        assert!(!told.contains("Secret") && !told.contains("Huge"), "{told}");
        assert_eq!(rules.read(b"").unwrap_err()[0].detail, "must be JSON");
        assert_eq!(rules.read(b"{").unwrap_err()[0].detail, "must be JSON");
    }
}
