//! A gateway's memory of sales without units, so that rejections for sold-out sales need no Redis.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::ledger::{ClaimReply, ShardProbe};
use crate::sale::Catalogue;
use weir_base::id::SaleId;

/// The sales for which a probe found no unit on any shard and no open transfer, each with its shards at that time.
///
/// A shard's epoch changes in the script that adds units, and in the one that takes the last unit. So a memory is right
/// while its epochs equal the shards' epochs, even if Redis has lost its last writes; it is dropped when any epoch
/// changes. Epochs exist per shard, not per sale, because a script can change them atomically only within one slot.
///
/// This requires that epochs never repeat, which depends on Redis' clock. To prevent a permanent error, a memory ends
/// after [`POLLS_MAX`] polls, and the next request probes again.
///
/// The catalogue bounds the memory: call [`SoldOutMemory::retain`] after each poll.
#[derive(Clone, Debug, Default)]
pub struct SoldOutMemory {
    empty: BTreeMap<SaleId, Memory>,
}

/// The number of polls after which a sale's shards are probed again: every 10 s at the default interval of 250 ms.
pub const POLLS_MAX: u32 = 40;

/// The memory of a sale.
#[derive(Clone, Debug)]
struct Memory {
    /// The number of the first shard.
    first_shard: u32,
    shards: Vec<EmptyShard>,
    polls_left: u32,
}

/// The last known state of a shard without units.
#[derive(Clone, Copy, Debug)]
struct EmptyShard {
    epoch: i64,
    /// Whether it has no open claims.
    is_quiet: bool,
}

impl Memory {
    fn index_of(&self, shard: u32) -> Option<usize> {
        shard.checked_sub(self.first_shard)?.try_into().ok()
    }

    fn shard_mut(&mut self, shard: u32) -> Option<&mut EmptyShard> {
        let index = self.index_of(shard)?;
        self.shards.get_mut(index)
    }
}

impl SoldOutMemory {
    /// Stores a probe of all shards of a sale, from `first_shard` on. Returns whether it found no unit and no open transfer.
    pub fn learn_probe(&mut self, sale: &SaleId, first_shard: u32, shards: &[ShardProbe]) -> bool {
        let is_empty =
            |shard: &ShardProbe| shard.stock.is_some_and(|s| s <= 0) && shard.moving == 0;
        if shards.is_empty() || !shards.iter().all(is_empty) {
            self.empty.remove(sale);
            return false;
        }
        let observed = |shard: &ShardProbe| EmptyShard {
            epoch: shard.epoch,
            is_quiet: shard.open_claims == 0,
        };
        let memory = Memory {
            first_shard,
            shards: shards.iter().map(observed).collect(),
            polls_left: POLLS_MAX,
        };
        self.empty.insert(sale.clone(), memory);
        true
    }

    /// Updates the memory from a shard's reply to a claim: whether the shard is unchanged, and whether it has open
    /// claims.
    pub fn learn(&mut self, sale: &SaleId, shard: u32, reply: &ClaimReply) {
        let ClaimReply::Empty { epoch, open_claims } = *reply else {
            return;
        };
        let memory = self.empty.get_mut(sale);
        let Some(observed) = memory.and_then(|memory| memory.shard_mut(shard)) else {
            return;
        };
        if observed.epoch == epoch {
            observed.is_quiet = open_claims == 0;
        } else {
            self.empty.remove(sale);
        }
    }

    /// The sales without units in Redis.
    pub fn sales(&self) -> impl Iterator<Item = &SaleId> {
        self.empty.keys()
    }

    /// Whether a probe has found no unit of `sale`, and no epoch has changed since.
    pub fn is_empty(&self, sale: &SaleId) -> bool {
        self.empty.contains_key(sale)
    }

    /// Whether the gateway may reject users of the home shard `shard` without Redis.
    ///
    /// It may not while the shard has open claims: a user with a claim whose answer was lost may retry, and the memory
    /// does not know users.
    pub fn is_empty_for(&self, sale: &SaleId, shard: u32) -> bool {
        self.empty_shard(sale, shard)
            .is_some_and(|observed| observed.is_quiet)
    }

    fn empty_shard(&self, sale: &SaleId, shard: u32) -> Option<&EmptyShard> {
        let memory = self.empty.get(sale)?;
        memory.shards.get(memory.index_of(shard)?)
    }

    /// Ages the memories after a poll.
    pub fn age(&mut self) {
        self.empty.retain(|_, memory| {
            memory.polls_left = memory.polls_left.saturating_sub(1);
            memory.polls_left > 0
        });
    }

    /// The shards whose epochs a poll must read.
    pub fn watched(&self) -> impl Iterator<Item = (&SaleId, u32)> {
        self.empty.iter().flat_map(|(sale, memory)| {
            let shards = (memory.first_shard..).zip(&memory.shards);
            shards.map(move |(shard, _)| (sale, shard))
        })
    }

    /// Compares a shard's current epoch with the stored one. A different epoch means that units were added, so the
    /// sale's memory is dropped.
    pub fn observe_epoch(&mut self, sale: &SaleId, shard: u32, epoch: i64) {
        let has_moved = self
            .empty_shard(sale, shard)
            .is_some_and(|observed| observed.epoch != epoch);
        if has_moved {
            self.empty.remove(sale);
        }
    }

    /// Removes sales that the catalogue does not contain or that have changed.
    pub fn retain(&mut self, catalogue: &Catalogue) {
        self.empty.retain(|id, memory| {
            let sale = catalogue.find(id.as_str().as_bytes());
            sale.is_some_and(|sale| {
                sale.shards as usize == memory.shards.len()
                    && sale.first_shard == memory.first_shard
            })
        });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sale::tests::sale;
    use alloc::vec;

    /// A shard without units and claims.
    pub(crate) const EMPTY: ShardProbe = ShardProbe {
        stock: Some(0),
        epoch: 7,
        open_claims: 0,
        moving: 0,
    };

    fn id() -> SaleId {
        SaleId::new("s").unwrap()
    }

    fn memory_of(shards: &[ShardProbe]) -> SoldOutMemory {
        let mut memory = SoldOutMemory::default();
        memory.learn_probe(&id(), 0, shards);
        memory
    }

    #[test]
    fn sold_out_entry_lasts_until_an_epoch_of_its_sale_changes() {
        let mut memory = memory_of(&[EMPTY; 3]);
        memory.observe_epoch(&id(), 1, 7);
        assert!((0..3).all(|shard| memory.is_empty_for(&id(), shard)));
        assert!(!memory.is_empty_for(&id(), 3));
        memory.observe_epoch(&id(), 1, 8);
        assert!((0..3).all(|shard| !memory.is_empty_for(&id(), shard)));
    }

    #[test]
    fn sold_out_entry_expires_regardless_of_epochs() {
        let mut memory = memory_of(&[EMPTY]);
        for _ in 1..POLLS_MAX {
            memory.age();
            memory.observe_epoch(&id(), 0, 7);
        }
        assert!(memory.is_empty_for(&id(), 0));
        memory.age();
        assert!(!memory.is_empty_for(&id(), 0) && !memory.is_empty(&id()));
    }

    #[test]
    fn units_left_or_moving_and_unloaded_shards_are_not_sold_out() {
        for other in [
            ShardProbe {
                stock: Some(1),
                ..EMPTY
            },
            ShardProbe { moving: 1, ..EMPTY },
            ShardProbe {
                stock: None,
                ..EMPTY
            },
        ] {
            let mut memory = memory_of(&[EMPTY; 2]);
            assert!(!memory.learn_probe(&id(), 0, &[EMPTY, other]));
            assert!(!memory.is_empty(&id()), "what was remembered is gone");
        }
        let owing = ShardProbe {
            stock: Some(-1),
            ..EMPTY
        };
        assert!(memory_of(&[owing]).is_empty_for(&id(), 0));
    }

    #[test]
    fn shard_is_not_sold_out_for_holders_of_open_claims() {
        let held = ShardProbe {
            open_claims: 1,
            ..EMPTY
        };
        let mut memory = memory_of(&[EMPTY, held]);
        assert!(memory.is_empty(&id()));
        assert!(memory.is_empty_for(&id(), 0) && !memory.is_empty_for(&id(), 1));
        let empty = |epoch, open_claims| ClaimReply::Empty { epoch, open_claims };
        memory.learn(&id(), 1, &empty(7, 0));
        assert!(memory.is_empty_for(&id(), 1));
        memory.learn(&id(), 1, &empty(8, 0));
        assert!(!memory.is_empty(&id()), "units have come and gone since");
        memory.learn(&id(), 1, &empty(8, 0));
        assert!(
            !memory.is_empty(&id()),
            "one shard alone says nothing of others"
        );
    }

    #[test]
    fn sold_out_entry_of_a_removed_or_changed_sale_is_dropped() {
        let mut memory = SoldOutMemory::default();
        for (name, shards) in [("kept", 4), ("gone", 4), ("changed", 3)] {
            let id = SaleId::new(name).unwrap();
            memory.learn_probe(&id, 0, &vec![EMPTY; shards]);
        }
        let catalogue = Catalogue {
            sales: vec![sale("kept"), sale("changed")],
            ..Catalogue::default()
        };
        memory.retain(&catalogue.checked().unwrap());
        let retained = SaleId::new("kept").unwrap();
        let watched: Vec<_> = memory.watched().collect();
        assert_eq!(
            watched,
            vec![
                (&retained, 0),
                (&retained, 1),
                (&retained, 2),
                (&retained, 3)
            ]
        );
    }
}
