//! Decision counts that gateways report for a sale: see [`weir_scripts::tally`].

use std::collections::BTreeMap;

use redis::from_redis_value;
use serde::Serialize;
use utoipa::ToSchema;
use weir_base::id::SaleId;
use weir_sale::verdict::Verdict;
use weir_scripts::keys;
use weir_scripts::tally::{Subject, name};

use weir_origin_core::clock::now_ms;
use weir_origin_core::redis::{CallError, Redis};

/// Number of reported minutes.
const MINUTES: u64 = 5;

/// Verdict counts of a sale in the last minutes.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = SaleVerdicts)]
pub struct Verdicts {
    /// Number of minutes, including the current one.
    #[schema(minimum = 1)]
    minutes: u64,
    /// Counts by verdict.
    decided: BTreeMap<&'static str, u64>,
    /// Dry-run counts (`shadow`).
    shadow: BTreeMap<&'static str, u64>,
}

impl Verdicts {
    /// Reads the counts of the last minutes, including the current one.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(super) async fn read(redis: &Redis, sale: &SaleId) -> Result<Self, CallError> {
        let of = |how: &str, verdict: Verdict| name(&[how, verdict.label(), sale.as_str()]);
        let names = Verdict::ALL.map(|verdict| [of("decided", verdict), of("shadow", verdict)]);
        let keys = keys::tallies(redis.prefix(), Subject::Sales, now_ms(), MINUTES);
        let commands = keys.map(|key| {
            let mut command = redis::cmd("HMGET");
            command.arg(key).arg(names.as_flattened());
            command
        });
        let mut verdicts = Self {
            minutes: MINUTES,
            ..Self::default()
        };
        for reply in redis.send_all(commands.collect()).await? {
            let counts: Vec<Option<u64>> = from_redis_value(reply)
                .map_err(|error| CallError::unexpected("HMGET", error.to_string()))?;
            verdicts.add(&counts);
        }
        Ok(verdicts)
    }

    /// Adds the counts of one minute, two per verdict.
    fn add(&mut self, counts: &[Option<u64>]) {
        let (pairs, _) = counts.as_chunks::<2>();
        for (verdict, [decided, shadow]) in Verdict::ALL.iter().zip(pairs) {
            for (map, count) in [(&mut self.decided, decided), (&mut self.shadow, shadow)] {
                if let Some(count) = count {
                    *map.entry(verdict.label()).or_default() += count;
                }
            }
        }
    }
}
