//! Switches that operators change at run time.

use serde::Deserialize;
use utoipa::ToSchema;

/// History switches. A null or missing field uses the origin's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HistorySwitches)]
pub struct SwitchSettings {
    /// Whether to complete lists from the cold store.
    pub cold_reads: Option<bool>,
    /// Whether to cache counts in Redis until a list changes.
    pub count_cache: Option<bool>,
    /// Products per request to the product service.
    #[schema(minimum = 1, maximum = 10000)]
    pub products_batch: Option<usize>,
}
