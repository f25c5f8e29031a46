//! The registry of event types: stored in SQL, compiled in memory. If SQL is unavailable, the last loaded types
//! validate events.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::error;
use weir_base::FieldError;
use weir_event::name::EventType;

use super::Clock;
use super::store::{EventStore, StoredType};
use crate::model::types::{RegisteredType, TYPES_MAX, TypeSpec, Types};
use weir_origin_core::background::Interval;
use weir_origin_core::sql::SqlError;

/// Interval of reloads, to apply changes of other origins.
const PERIOD: Duration = Duration::from_secs(1);

/// Maximum number of attempts when others change the same type concurrently.
const ATTEMPTS_MAX: usize = 5;

/// Why a change of a type failed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The definition is invalid.
    #[error("{0}")]
    Invalid(#[from] FieldError),
    /// The type does not exist.
    #[error("type not found")]
    Unknown,
    /// The type's version differs from the expected one.
    #[error("the type has a different version: read it again")]
    Version,
    /// The maximum number of types is reached.
    #[error("the maximum of {TYPES_MAX} types is reached")]
    TooMany,
    /// Others change the type at the same time.
    #[error("concurrent change: try again")]
    Busy,
    /// A SQL call failed.
    #[error(transparent)]
    Store(#[from] SqlError),
}

/// The types of events.
pub struct Registry {
    store: EventStore,
    types: RwLock<Arc<Types>>,
    clock: Clock,
}

impl Registry {
    /// Opens the registry and loads the types.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn open(store: EventStore, clock: Clock) -> Result<Self, SqlError> {
        let registry = Self {
            store,
            types: RwLock::default(),
            clock,
        };
        registry.refresh().await?;
        Ok(registry)
    }

    /// A snapshot of the current types.
    pub fn types(&self) -> Arc<Types> {
        // A change is one assignment.
        let types = self.types.read().unwrap_or_else(PoisonError::into_inner);
        types.clone()
    }

    /// Reloads the types at intervals until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "reading the event types", stop).delayed();
        while interval.next().await {
            let refreshed = self.refresh().await;
            interval.ended(&refreshed);
        }
    }

    /// Reloads the types from SQL.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn refresh(&self) -> Result<(), SqlError> {
        let stored = self.store.registry().types().await?;
        let existing = self.types();
        let is_known = |stored: &StoredType, existing: &RegisteredType| {
            (stored.version, stored.changed_at_ms) == (existing.version, existing.changed_at_ms)
        };
        let mut types = Vec::with_capacity(stored.len());
        for stored in &stored {
            match existing.get(&stored.name) {
                Some(existing) if is_known(stored, existing) => types.push(existing.clone()),
                before => match RegisteredType::of(stored) {
                    Ok(read) => types.push(Arc::new(read)),
                    Err(error) => {
                        // Probably written by a later version. The previous definition stays in use.
                        error!(%error, name = stored.name, "cannot read an event type");
                        types.extend(before.cloned());
                    }
                },
            }
        }
        let mut existing = self.types.write().unwrap_or_else(PoisonError::into_inner);
        *existing = Arc::new(Types::new(types));
        Ok(())
    }

    /// Creates or changes a type if its version is `expected`; `None` matches any version.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn put(
        &self,
        name: EventType,
        spec: TypeSpec,
        expected: Option<u64>,
    ) -> Result<Arc<RegisteredType>, ChangeError> {
        // Validate here first: every origin loads what SQL contains.
        RegisteredType::new(name.clone(), 1, 0, spec.clone())?;
        let document = serde_json::to_string(&spec);
        let document = document.map_err(|error| FieldError::new("", error))?;
        for _ in 0..ATTEMPTS_MAX {
            self.refresh().await?;
            let types = self.types();
            let before = types.get(name.as_str()).map(|existing| existing.version);
            if expected.is_some() && before != expected {
                return Err(ChangeError::Version);
            }
            if before.is_none() && types.len() >= TYPES_MAX {
                return Err(ChangeError::TooMany);
            }
            let (store, now_ms) = (&self.store, (self.clock)());
            let put = store
                .registry()
                .put_type(name.as_str(), &document, before, now_ms);
            if put.await? {
                self.refresh().await?;
                let types = self.types();
                // Another origin may have removed it immediately.
                return types.get(name.as_str()).cloned().ok_or(ChangeError::Busy);
            }
        }
        Err(ChangeError::Busy)
    }

    /// Removes a type if its version is `expected`; `None` matches any version. Stored events stay.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn delete(&self, name: &str, expected: Option<u64>) -> Result<(), ChangeError> {
        for _ in 0..ATTEMPTS_MAX {
            self.refresh().await?;
            let types = self.types();
            let existing = types.get(name).ok_or(ChangeError::Unknown)?;
            if expected.is_some_and(|expected| expected != existing.version) {
                return Err(ChangeError::Version);
            }
            if self
                .store
                .registry()
                .delete_type(name, existing.version)
                .await?
            {
                self.refresh().await?;
                return Ok(());
            }
        }
        Err(ChangeError::Busy)
    }
}
