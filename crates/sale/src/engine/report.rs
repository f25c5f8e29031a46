//! Counts decisions per sale for operators.

use alloc::collections::BTreeMap;

use crate::sale::Sale;
use crate::verdict::Verdict;
use weir_base::hash::seeded_hash;
use weir_engine::tally::Tally;
use weir_engine::{BatchId, Effects};
use weir_scripts::tally::{self, Subject};

/// A compact sale id; `None`: unknown sale, or no reports.
pub(crate) type SaleMark = Option<u64>;

/// The key of a count: a verdict on requests for a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct VerdictKey {
    sale: u64,
    is_shadow: bool,
    verdict: Verdict,
}

/// Counts decisions for operators.
#[derive(Debug)]
pub(crate) struct Report {
    tally: Tally<VerdictKey>,
}

impl Report {
    pub(crate) fn new(key_prefix: &str) -> Self {
        Self {
            tally: Tally::new(key_prefix, Subject::Sales),
        }
    }

    /// The mark of a sale id.
    pub(crate) fn mark(sale: &[u8]) -> u64 {
        seeded_hash(0, sale)
    }

    /// Counts a verdict for a sale. `is_shadow`: the request continued in any case.
    pub(crate) fn count(&mut self, sale: u64, is_shadow: bool, verdict: Verdict) {
        self.tally.count(VerdictKey {
            sale,
            is_shadow,
            verdict,
        });
    }

    /// Sends the counts if they are due, except those of sales that left the catalogue.
    pub(crate) fn flush<'a>(
        &mut self,
        sales: impl Iterator<Item = &'a Sale>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if !self.tally.is_due(now_ms) {
            return;
        }
        let by_mark = sales.map(|sale| (Self::mark(sale.id.as_str().as_bytes()), &sale.id));
        let by_mark: BTreeMap<u64, _> = by_mark.collect();
        self.tally.flush(now_ms, effects, |decided| {
            let sale = by_mark.get(&decided.sale)?;
            let how = if decided.is_shadow {
                "shadow"
            } else {
                "decided"
            };
            Some(tally::name(&[how, decided.verdict.label(), sale.as_str()]))
        });
    }

    /// Whether the ended call `batch` was its call.
    pub(crate) fn completed(&mut self, batch: BatchId) -> bool {
        self.tally.completed(batch)
    }
}
