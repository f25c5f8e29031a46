//! What operators switch while origins run.

use serde::Deserialize;
use utoipa::ToSchema;

/// What is switched. A member that is null or missing is as the origin's flags have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HistorySwitches)]
pub struct SwitchSettings {
    /// Whether lists with room are filled from the cold store.
    pub cold_reads: Option<bool>,
    /// Whether counts are kept in Redis until a list changes.
    pub count_cache: Option<bool>,
    /// How many products are asked for at once.
    #[schema(minimum = 1, maximum = 10000)]
    pub products_batch: Option<usize>,
}
