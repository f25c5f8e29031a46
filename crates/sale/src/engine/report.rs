//! What operators are told of decisions, sale by sale.

use alloc::collections::BTreeMap;

use crate::sale::Sale;
use crate::verdict::Verdict;
use weir_base::hash::seeded_hash;
use weir_engine::tally::Tally;
use weir_engine::{BatchId, Effects};
use weir_scripts::tally::{self, Subject};

/// A sale in few bytes; `None`: it is not known, or nobody is told of it.
pub(crate) type SaleMark = Option<u64>;

/// What is counted: a verdict on requests for a sale.
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

    /// The mark of the sale of this id.
    pub(crate) fn mark(sale: &[u8]) -> u64 {
        seeded_hash(0, sale)
    }

    /// A request for a sale was decided so. `is_shadow`: it went on all the same.
    pub(crate) fn count(&mut self, sale: u64, is_shadow: bool, verdict: Verdict) {
        self.tally.count(VerdictKey {
            sale,
            is_shadow,
            verdict,
        });
    }

    /// Sends what was counted, if that is due. Of a sale that is no longer in the catalogue nobody is told.
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

    /// Whether `batch`, which has ended, was its call.
    pub(crate) fn completed(&mut self, batch: BatchId) -> bool {
        self.tally.completed(batch)
    }
}
