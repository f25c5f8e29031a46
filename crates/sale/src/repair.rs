//! Checks a sale's stock balance and computes repairs.
//!
//! Only a loss of data causes a drift. SQL is authoritative: all units that it has not sold must be in Redis, as stock,
//! in transfers or in open claims.

use alloc::vec::Vec;

use crate::ledger::{Audit, StockChange};
use crate::shard::spread_stock;

/// The terms of `Σ stock + transfers + claims + orders = total`, summed over all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Stock on shards.
    pub stock: i64,
    /// Units in transfers between shards.
    pub moving: u64,
    /// Units in open claims.
    pub held: u64,
    /// Units that SQL has deducted for orders.
    pub ordered: u64,
    /// The total in Redis: see [`total_in_redis`].
    pub total: u64,
}

/// The expected total in Redis, by SQL's `total` and an `open` stock change that not all shards have applied. Its
/// `units` are those that SQL's total already includes: all of an addition, none of a withdrawal.
pub fn total_in_redis(total: u64, open: Option<StockChange>, shards: &[Audit]) -> u64 {
    let Some(open) = open else { return total };
    let has_heard = |shard: &&Audit| shard.change.number == open.number;
    let received = shards.iter().filter(has_heard);
    let units: i64 = received.map(|shard| shard.change.units).sum();
    total.saturating_add_signed(units - open.units)
}

/// Each shard's part of a withdrawal: in proportion to its free units, so that no shard runs empty before the others.
/// Fewer than `requested` if fewer are free.
pub fn withdrawal(shards: &[Audit], requested: u64) -> Vec<u64> {
    let free: Vec<u64> = shards.iter().map(free_units).collect();
    let all: u64 = free.iter().sum();
    // If orders are deducted at payment, one shard's stock may be negative while another has units.
    let owed = shards.iter().filter_map(|shard| shard.stock);
    let owed: u64 = owed.map(|stock| stock.min(0).unsigned_abs()).sum();
    let requested = requested.min(all.saturating_sub(owed));
    // Both are at most a billion, so the product fits.
    let share = |free: &u64| (free * requested).checked_div(all).unwrap_or(0);
    let mut shares: Vec<u64> = free.iter().map(share).collect();
    let mut missing = requested - shares.iter().sum::<u64>();
    for (share, free) in shares.iter_mut().zip(free) {
        let more = missing.min(free - *share);
        *share += more;
        missing -= more;
    }
    shares
}

fn free_units(shard: &Audit) -> u64 {
    let stock = shard.stock.and_then(|stock| u64::try_from(stock).ok());
    stock.unwrap_or(0)
}

impl Terms {
    /// The terms of a sale, if SQL has sold `ordered` of `total` units. `None` while a shard is cold, because its
    /// contents are unknown.
    pub fn new(shards: &[Audit], ordered: u64, total: u64) -> Option<Self> {
        let stock = shards
            .iter()
            .map(|shard| shard.stock)
            .sum::<Option<i64>>()?;
        let moving = (0..)
            .zip(shards)
            .map(|(n, shard)| shard.units_moving(n, shards))
            .sum();
        Some(Self {
            stock,
            moving,
            held: shards.iter().map(|shard| shard.held).sum(),
            ordered,
            total,
        })
    }

    /// The excess of the left side over the right. Negative: missing units.
    pub fn drift(&self) -> i64 {
        let signed = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        let used = signed(self.moving + self.held + self.ordered);
        self.stock + used - signed(self.total)
    }
}

/// The change of each shard's stock that removes a drift: missing units are distributed evenly; excess units are taken
/// from the largest stocks. Unchanged shards are omitted.
pub fn repairs(shards: &[Audit], drift: i64) -> Vec<(u32, i64)> {
    let changes = match u64::try_from(drift) {
        Ok(too_many) => take(shards, too_many),
        Err(_) => give(shards, drift.unsigned_abs()),
    };
    (0..)
        .zip(changes)
        .filter(|&(_, units)| units != 0)
        .collect()
}

fn give(shards: &[Audit], missing: u64) -> Vec<i64> {
    let count = u32::try_from(shards.len()).unwrap_or(u32::MAX);
    let signed = |units| i64::try_from(units).unwrap_or(i64::MAX);
    spread_stock(missing, count)
        .into_iter()
        .map(signed)
        .collect()
}

fn take(shards: &[Audit], too_many: u64) -> Vec<i64> {
    let mut remaining: Vec<(usize, u64)> = shards.iter().map(free_units).enumerate().collect();
    remaining.sort_by_key(|&(_, units)| core::cmp::Reverse(units));
    let mut changes = alloc::vec![0; shards.len()];
    let mut too_many = too_many;
    for (shard, units) in remaining {
        let used = units.min(too_many);
        too_many -= used;
        if let Some(change) = changes.get_mut(shard) {
            *change = -i64::try_from(used).unwrap_or(i64::MAX);
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{OpenTransfer, Transfer};
    use alloc::vec;
    use proptest::prelude::*;

    fn shard(stock: i64, held: u64) -> Audit {
        Audit {
            stock: Some(stock),
            held,
            ..Audit::default()
        }
    }

    #[test]
    fn units_are_counted_once_in_every_location() {
        let transfer = Transfer { id: 5, units: 2 };
        let mut lender = shard(3, 1);
        lender.transfers.push(OpenTransfer {
            to_shard: 1,
            transfer,
            at_ms: 0,
        });
        let mut target = shard(0, 0);
        let terms = |shards: &[Audit]| Terms::new(shards, 4, 10).unwrap();
        let on_its_way = terms(&[lender.clone(), target.clone()]);
        assert_eq!((on_its_way.moving, on_its_way.drift()), (2, 0));
        target.stock = Some(2);
        target.deposits.push((0, 5));
        let arrived = terms(&[lender.clone(), target.clone()]);
        assert_eq!((arrived.moving, arrived.drift()), (0, 0));
        target.stock = None;
        assert_eq!(Terms::new(&[lender, target], 4, 10), None);
    }

    #[test]
    fn drift_is_positive_for_surplus_and_negative_for_missing_units() {
        let drift = |ordered, total| {
            let shards = [shard(3, 1), shard(-2, 4)];
            Terms::new(&shards, ordered, total).unwrap().drift()
        };
        assert_eq!(drift(4, 10), 0);
        assert_eq!(drift(9, 10), 5);
        assert_eq!(drift(4, 17), -7);
    }

    #[test]
    fn missing_units_are_spread_and_surplus_is_removed_in_place() {
        let shards = [shard(1, 0), shard(5, 0), shard(-2, 0)];
        assert_eq!(repairs(&shards, 0), vec![]);
        assert_eq!(repairs(&shards, -4), vec![(0, 2), (1, 1), (2, 1)]);
        assert_eq!(repairs(&shards, 5), vec![(1, -5)]);
        assert_eq!(repairs(&shards, 9), vec![(0, -1), (1, -5)]);
    }

    #[test]
    fn stock_change_counts_only_as_far_as_shards_applied_it() {
        let received = |number, units| Audit {
            change: StockChange { number, units },
            ..shard(0, 0)
        };
        let shards = [received(7, 3), received(6, 9), received(7, 2)];
        let open = |units| Some(StockChange { number: 7, units });
        assert_eq!(total_in_redis(20, None, &shards), 20);
        // A top-up of 10, of which 5 have arrived.
        assert_eq!(total_in_redis(20, open(10), &shards), 15);
        // A withdrawal, of which 4 units are taken.
        let shards = [received(7, -4), received(0, 0)];
        assert_eq!(total_in_redis(20, open(0), &shards), 16);
    }

    proptest! {
        #[test]
        fn withdrawal_takes_only_free_units(
            stock in prop::collection::vec(-3..1_000_000_000_i64, 1..6), expected in 0..1_000_000_000_u64,
        ) {
            let shards: Vec<Audit> = stock.iter().map(|&stock| shard(stock / 6, 1)).collect();
            let shares = withdrawal(&shards, expected);
            let free: Vec<u64> = shards.iter().map(free_units).collect();
            prop_assert_eq!(shares.iter().sum::<u64>(), expected.min(free.iter().sum()));
            prop_assert!(shares.iter().zip(&free).all(|(share, free)| share <= free));
        }

        #[test]
        fn repairs_remove_drift_where_enough_units_are_available(
            stock in prop::collection::vec(-3..9_i64, 1..6), ordered in 0..20_u64, total in 0..30_u64,
        ) {
            let mut shards: Vec<Audit> = stock.iter().map(|&stock| shard(stock, 1)).collect();
            let drift = |shards: &[Audit]| Terms::new(shards, ordered, total).unwrap().drift();
            let before = drift(&shards);
            for (n, units) in repairs(&shards, before) {
                let stock = shards[n as usize].stock.as_mut().unwrap();
                *stock += units;
                prop_assert!(units > 0 || *stock >= 0);
            }
            let takeable: i64 = stock.iter().map(|&stock| stock.max(0)).sum();
            prop_assert_eq!(drift(&shards), (before - takeable).max(0));
        }
    }
}
