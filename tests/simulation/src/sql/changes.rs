//! Changes of a running sale: see `origin/sales/src/store/changes.rs`.

use weir_sale::ledger::StockChange;

use super::Sql;

/// A change of the stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) number: u64,
    pub(crate) key: u32,
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
        changes.find(|change| change.key == key).cloned()
    }

    /// The change for which a shard has not replied.
    pub(crate) fn open_change(&self) -> Option<Change> {
        let mut changes = self.changes.iter();
        changes.find(|change| change.units.is_none()).cloned()
    }

    /// Stores a change, or returns the existing one with this key; `None` if it is refused.
    pub(crate) fn begin_change(
        &mut self,
        key: u32,
        expected: i64,
        shares: Vec<u64>,
        now_ms: u64,
    ) -> Option<Change> {
        if let Some(existing) = self.change(key) {
            return Some(existing);
        }
        let is_running = self.warmed_at_ms.is_some() && self.sale.ends_at_ms > now_ms;
        if !is_running || self.open_change().is_some() {
            return None;
        }
        let last = self.changes.last().map_or(0, |change| change.number);
        let change = Change {
            number: (last + 1).max(now_ms),
            key,
            requested: expected,
            shares,
            units: None,
        };
        if expected > 0 {
            self.add_units(expected);
        }
        self.changes.push(change.clone());
        Some(change)
    }

    /// Stores the result of a change; only the first one counts.
    pub(crate) fn end_change(&mut self, number: u64, units: i64) {
        let mut changes = self.changes.iter_mut();
        let change = changes.find(|change| change.number == number);
        let Some(change) = change.filter(|change| change.units.is_none()) else {
            return;
        };
        let used = units;
        let units = match change.requested > 0 {
            true => change.requested,
            false => used.clamp(-self.remaining.max(0), 0),
        };
        self.has_kept_units |= change.requested < 0 && units != used;
        change.units = Some(units);
        self.version += 1;
        if units < 0 {
            self.add_units(units);
        }
    }

    fn add_units(&mut self, units: i64) {
        self.remaining += units;
        self.total = self.total.saturating_add_signed(units);
    }

    pub(crate) fn units_added(&self) -> u64 {
        let units = self.changes.iter().filter_map(|change| change.units);
        units.map(|units| units.max(0).unsigned_abs()).sum()
    }

    pub(crate) fn units_withdrawn(&self) -> u64 {
        let units = self.changes.iter().filter_map(|change| change.units);
        units.map(|units| units.min(0).unsigned_abs()).sum()
    }

    /// Moves the end of the sale.
    pub(crate) fn move_end(&mut self, ends_at_ms: u64) {
        self.sale.ends_at_ms = ends_at_ms.max(self.sale.starts_at_ms + 1);
    }
}
