//! Product changes for fitment and history, from the system that owns the products.
//!
//! ```json
//! {"sku": "S1", "version": 17, "spu": "P2"}
//! ```
//!
//! The version increases with each change of a SKU. A change is ignored unless its version is newer than the applied
//! one. Changes may therefore arrive twice, late, and by a collector and the webhook at once.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::metrics::{Group, Metrics};
use crate::origin::Origin;
use crate::sql::SqlError;

/// A product change. Missing fields keep their values.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProductChange {
    /// The SKU.
    #[schema(min_length = 1, max_length = 64)]
    pub(crate) sku: String,
    /// A number that increases with each change of the SKU, such as milliseconds since the Unix epoch.
    #[schema(minimum = 1)]
    pub(crate) version: u64,
    /// The product (SPU) of this variant; for own goods, the main SKU.
    #[schema(min_length = 1, max_length = 64)]
    pub(crate) spu: String,
    /// The type of product, which selects its Redis for fitment.
    #[serde(rename = "type")]
    #[schema(nullable = false)]
    pub(crate) product_type: Option<String>,
    /// The merchant.
    #[schema(nullable = false)]
    pub(crate) merchant: Option<String>,
    /// Title in browse histories.
    #[schema(nullable = false, max_length = 512)]
    pub(crate) title: Option<String>,
    /// URL of its picture.
    #[schema(nullable = false, max_length = 2048)]
    pub(crate) picture: Option<String>,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ProductChangeOutcome)]
pub(crate) enum ChangeOutcome {
    /// Applied in SQL.
    Applied,
    /// This version or a later one was already applied.
    Stale,
    /// Fitment does not know the SKU, and the type or merchant is missing.
    Unknown,
}

impl ChangeOutcome {
    const fn label(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
        }
    }
}

/// Outcome label of an unreadable record.
const INVALID: &str = "invalid";

/// Maximum number of changes per transaction: fitment needs six statements for each.
const PIECE_LEN: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Counts product changes by outcome.
#[derive(Clone, Debug)]
pub(crate) struct ProductMetrics(Family<OutcomeLabel, Counter>);

impl ProductMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let metrics = metrics.group(Self::add_to);
        for outcome in ["applied", "stale", "unknown", INVALID] {
            let _ = metrics.0.get_or_create(&OutcomeLabel { outcome });
        }
        metrics
    }

    fn add_to(group: &mut Group<'_>) -> Self {
        let help = "Product changes, by outcome";
        Self(group.add("product_changes", help))
    }

    fn count(&self, outcome: &'static str) {
        self.0.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}

/// Applies product changes to the enabled domains. Cloning it is cheap.
#[derive(Clone, Debug)]
pub(crate) struct ProductChanges {
    #[cfg(feature = "fitment")]
    fitment: Option<crate::fitment::Fitment>,
    #[cfg(feature = "history")]
    history: Option<crate::history::History>,
    metrics: ProductMetrics,
}

/// A change in the domains' types.
#[derive(Debug)]
pub(crate) struct CheckedChange {
    #[cfg(feature = "fitment")]
    fitment: crate::fitment::store::ProductChange,
    #[cfg(feature = "history")]
    history: crate::history::model::products::ProductChange,
}

impl ProductChanges {
    /// Product changes for this origin's domains; `None` if neither is enabled.
    pub(crate) fn of(origin: &Origin) -> Option<Self> {
        let changes = Self {
            #[cfg(feature = "fitment")]
            fitment: origin.fitment().cloned(),
            #[cfg(feature = "history")]
            history: origin.history().cloned(),
            metrics: origin.products.metrics.clone(),
        };
        let mut is_on = false;
        #[cfg(feature = "fitment")]
        {
            is_on |= changes.fitment.is_some();
        }
        #[cfg(feature = "history")]
        {
            is_on |= changes.history.is_some();
        }
        is_on.then_some(changes)
    }

    /// Validates a change.
    ///
    /// # Errors
    /// Names the invalid member.
    pub(crate) fn check(&self, change: ProductChange) -> Result<CheckedChange, String> {
        if !(1..=i64::MAX as u64).contains(&change.version) {
            return Err("version: must be 1 to 9223372036854775807".to_owned());
        }
        Ok(CheckedChange {
            #[cfg(feature = "fitment")]
            fitment: for_fitment(&change)?,
            #[cfg(feature = "history")]
            history: for_history(&change)?,
        })
    }

    /// Applies changes in order.
    ///
    /// # Errors
    /// When SQL does not answer. Apply the same changes again; those already applied are then stale.
    pub(crate) async fn apply(
        &self,
        changes: &[CheckedChange],
    ) -> Result<Vec<ChangeOutcome>, SqlError> {
        let mut outcomes = Vec::with_capacity(changes.len());
        // One transaction per piece. After a request timeout, the committed pieces remain and are stale at the next
        // try.
        for chunk in changes.chunks(PIECE_LEN) {
            outcomes.extend(self.apply_piece(chunk).await?);
        }
        Ok(outcomes)
    }

    async fn apply_piece(&self, changes: &[CheckedChange]) -> Result<Vec<ChangeOutcome>, SqlError> {
        let mut outcomes = vec![ChangeOutcome::Unknown; changes.len()];
        #[cfg(feature = "fitment")]
        if let Some(fitment) = &self.fitment {
            use crate::fitment::store::ChangeOutcome as InFitment;
            let of: Vec<_> = changes
                .iter()
                .map(|change| change.fitment.clone())
                .collect();
            for (outcome, applied) in outcomes.iter_mut().zip(fitment.change_products(&of).await?) {
                *outcome = match applied {
                    InFitment::Done => ChangeOutcome::Applied,
                    InFitment::Stale => ChangeOutcome::Stale,
                    InFitment::Unknown => ChangeOutcome::Unknown,
                };
            }
        }
        #[cfg(feature = "history")]
        if let Some(history) = &self.history {
            let of: Vec<_> = changes
                .iter()
                .map(|change| change.history.clone())
                .collect();
            for (outcome, is_new) in outcomes.iter_mut().zip(history.change_products(&of).await?) {
                *outcome = match (*outcome, is_new) {
                    (_, true) => ChangeOutcome::Applied,
                    (ChangeOutcome::Unknown, false) => ChangeOutcome::Stale,
                    (existing, false) => existing,
                };
            }
        }
        for outcome in &outcomes {
            self.metrics.count(outcome.label());
        }
        Ok(outcomes)
    }

    /// Applies the records of a collector. A record that is not a change is logged, counted and skipped.
    #[cfg(feature = "events")]
    async fn apply_records(&self, list: &[u8]) -> Result<(), String> {
        let records: Vec<&serde_json::value::RawValue> =
            serde_json::from_slice(list).map_err(|error| error.to_string())?;
        let mut changes = Vec::with_capacity(records.len());
        for record in records {
            let read = serde_json::from_str(record.get()).map_err(|error| error.to_string());
            match read.and_then(|change| self.check(change)) {
                Ok(change) => changes.push(change),
                Err(error) => {
                    let record: String = record.get().chars().take(256).collect();
                    tracing::warn!(%error, %record, "skipped an invalid product change: send a valid record");
                    self.metrics.count(INVALID);
                }
            }
        }
        self.apply(&changes)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    }
}

#[cfg(feature = "fitment")]
fn for_fitment(change: &ProductChange) -> Result<crate::fitment::store::ProductChange, String> {
    use weir_fitment::{Merchant, ProductType, Sku, Spu};
    fn wrong(name: &str) -> impl Fn(weir_base::id::IdError) -> String {
        move |error| format!("{name}: {error}")
    }
    let product_type = change.product_type.clone().map(ProductType::new);
    let merchant = change.merchant.clone().map(Merchant::new);
    Ok(crate::fitment::store::ProductChange {
        sku: Sku::new(&change.sku).map_err(wrong("sku"))?,
        version: change.version,
        spu: Spu::new(&change.spu).map_err(wrong("spu"))?,
        product_type: product_type.transpose().map_err(wrong("type"))?,
        merchant: merchant.transpose().map_err(wrong("merchant"))?,
    })
}

#[cfg(feature = "history")]
fn for_history(
    change: &ProductChange,
) -> Result<crate::history::model::products::ProductChange, String> {
    let sku = weir_history::Sku::new(&change.sku).map_err(|error| format!("sku: {error}"))?;
    let product = crate::history::model::products::Product {
        spu: Some(change.spu.clone()),
        title: change.title.clone(),
        picture: change.picture.clone(),
    };
    product.check()?;
    Ok(crate::history::model::products::ProductChange {
        sku,
        version: change.version,
        product,
    })
}

/// Name of this sink in collectors: `"into": "products"`.
#[cfg(feature = "events")]
const SINK: &str = "products";

#[cfg(feature = "events")]
impl crate::events::pull::Sink for ProductChanges {
    fn take<'a>(&'a self, list: &'a [u8]) -> crate::events::pull::SinkFuture<'a> {
        Box::pin(self.apply_records(list))
    }
}

/// Resolves the sink names of collectors.
///
/// # Errors
/// When a collector names a sink that this origin does not provide.
#[cfg(feature = "events")]
pub(crate) fn connect(
    origin: &Origin,
    pulls: &mut [crate::events::pull::Pull],
) -> anyhow::Result<()> {
    use crate::events::pull::Destination;
    for pull in pulls {
        let Destination::Named(name) = &pull.destination else {
            continue;
        };
        let changes = ProductChanges::of(origin).filter(|_| name == SINK);
        let Some(changes) = changes else {
            anyhow::bail!(
                "--events-pulls: collector {} has the unknown sink {name:?}: use {SINK:?}, with --fitment or --history",
                pull.name
            );
        };
        pull.destination = Destination::Sink(std::sync::Arc::new(changes));
    }
    Ok(())
}
