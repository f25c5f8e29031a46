//! Changes of a running sale: see `origin/sales/src/store/changes.rs`.

use weir_sale::ledger::StockChange;

use super::Sql;
use crate::mutation::Mutation;

/// A change of the stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) number: u64,
    /// The operator's key; `None` for units that move between sites.
    pub(crate) key: Option<u32>,
    /// The fence whose shards apply it.
    pub(crate) fence: u32,
    /// The fence to which withdrawn units go.
    pub(crate) to: Option<u32>,
    pub(crate) requested: i64,
    /// The units that each shard adds or gives up.
    pub(crate) shares: Vec<u64>,
    /// The resulting units; `None` while a shard has not replied.
    pub(crate) units: Option<i64>,
}

impl Change {
    /// The open change in the total.
    pub(crate) fn counted(&self) -> StockChange {
        StockChange {
            number: self.number,
            units: self.requested.max(0),
        }
    }
}

impl Sql {
    /// The change with this key.
    pub(crate) fn change(&self, key: u32) -> Option<Change> {
        let mut changes = self.changes.iter();
        changes.find(|change| change.key == Some(key)).cloned()
    }

    /// The oldest change of a fence for which a shard has not replied.
    pub(crate) fn open_change_at(&self, fence: u32) -> Option<Change> {
        self.open_changes_at(fence).next().cloned()
    }

    fn open_changes_at(&self, fence: u32) -> impl Iterator<Item = &Change> {
        let changes = self.changes.iter();
        changes.filter(move |change| change.fence == fence && change.units.is_none())
    }

    /// The allotment of a fence that its shards may have received: without additions that wait for another change.
    pub(crate) fn allotment_begun(&self, fence: u32) -> u64 {
        let waiting = self.open_changes_at(fence).skip(1);
        let waiting: i64 = waiting.map(|change| change.requested.max(0)).sum();
        u64::try_from(self.allotment(fence) - waiting).unwrap_or(0)
    }

    /// The number of the next change.
    pub(super) fn next_change(&self, now_ms: u64) -> u64 {
        let last = self.changes.iter().map(|change| change.number).max();
        (last.unwrap_or(0) + 1).max(now_ms)
    }

    /// Ends all open changes of a fence that is closed: nothing was withdrawn, and added units stay in its allotment.
    pub(super) fn close_changes(&mut self, fence: u32) {
        for change in &mut self.changes {
            if change.fence == fence && change.units.is_none() {
                change.units = Some(change.requested.max(0));
            }
        }
    }

    /// Stores a change, or returns the existing one with this key; `None` if it is refused.
    pub(crate) fn begin_change(
        &mut self,
        key: u32,
        fence: u32,
        expected: i64,
        shares: Vec<u64>,
        now_ms: u64,
    ) -> Option<Change> {
        if let Some(existing) = self.change(key) {
            return Some(existing);
        }
        let is_running = self.warmed_at_ms.is_some() && self.sale.ends_at_ms > now_ms;
        if !is_running || self.open_change_at(fence).is_some() || fence != self.heir() {
            return None;
        }
        let change = Change {
            number: self.next_change(now_ms),
            key: Some(key),
            fence,
            to: None,
            requested: expected,
            shares,
            units: None,
        };
        if expected > 0 {
            self.add_units(fence, expected);
        }
        self.changes.push(change.clone());
        Some(change)
    }

    /// Stores the result of a change; only the first one counts.
    pub(crate) fn end_change(&mut self, number: u64, units: i64) {
        let mut changes = self.changes.iter_mut();
        let Some(change) = changes.find(|change| change.number == number) else {
            return;
        };
        let counts = match self.mutation {
            _ if change.units.is_none() => true,
            Some(Mutation::LateOutcomeCounts) => change.units == Some(0),
            Some(Mutation::OutcomeCountsTwice) => true,
            _ => false,
        };
        if !counts {
            return;
        }
        if let (fence, Some(to)) = (change.fence, change.to) {
            change.units = Some(units);
            self.version += 1;
            return self.end_transfer(fence, to, -units);
        }
        if change.units.is_some() {
            return;
        }
        let (used, fence) = (units, change.fence);
        let units = match change.requested > 0 {
            true => change.requested,
            false => used.clamp(-self.remaining.max(0), 0),
        };
        self.has_kept_units |= change.requested < 0 && units != used;
        change.units = Some(units);
        self.version += 1;
        if units < 0 {
            self.add_units(fence, units);
        }
    }

    fn add_units(&mut self, fence: u32, units: i64) {
        self.allot(fence, units);
        self.remaining += units;
        self.total = self.total.saturating_add_signed(units);
    }

    pub(crate) fn units_added(&self) -> u64 {
        let changes = self.changes.iter().filter(|change| change.key.is_some());
        let units = changes.filter_map(|change| change.units);
        units.map(|units| units.max(0).unsigned_abs()).sum()
    }

    pub(crate) fn units_withdrawn(&self) -> u64 {
        let changes = self.changes.iter().filter(|change| change.key.is_some());
        let units = changes.filter_map(|change| change.units);
        units.map(|units| units.min(0).unsigned_abs()).sum()
    }

    /// Moves the end of the sale.
    pub(crate) fn move_end(&mut self, ends_at_ms: u64) {
        self.sale.ends_at_ms = ends_at_ms.max(self.sale.starts_at_ms + 1);
    }
}
