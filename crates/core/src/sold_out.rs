//! What a gateway remembers of empty shards, so that sold out costs nothing.

use alloc::collections::BTreeMap;

use crate::id::SaleId;
use crate::ledger::ClaimReply;
use crate::sale::Catalogue;

/// The shards known to be empty, each with the epoch at which it was seen empty.
///
/// A shard's epoch is raised in the same script that gives units back to it, so a memory whose
/// epoch is still the shard's epoch is right, and one whose epoch is not is dropped. Holding the
/// epoch per shard, not per sale, is what makes raising it atomic: a script touches one slot.
///
/// Memory is bounded by what the catalogue holds: [`SoldOutMemory::retain`] after each poll.
#[derive(Clone, Debug, Default)]
pub struct SoldOutMemory {
    empty_at: BTreeMap<SaleId, BTreeMap<u32, i64>>,
}

impl SoldOutMemory {
    /// Learns from a shard's reply whether the shard is empty for everyone.
    ///
    /// It is not while claims on it are open: a user who holds one and lost the answer comes back for
    /// it, and must not hear `sold_out` from a memory that knows nothing of users.
    pub fn learn(&mut self, sale: &SaleId, shard: u32, reply: &ClaimReply) {
        if let ClaimReply::Empty {
            epoch,
            open_claims: 0,
        } = *reply
        {
            self.remember(sale, shard, epoch);
        }
    }

    /// Remembers that `shard` of `sale` was empty at `epoch`.
    pub(crate) fn remember(&mut self, sale: &SaleId, shard: u32, epoch: i64) {
        if let Some(shards) = self.empty_at.get_mut(sale) {
            shards.insert(shard, epoch);
            return;
        }
        let shards = BTreeMap::from([(shard, epoch)]);
        self.empty_at.insert(sale.clone(), shards);
    }

    /// Whether `shard` of `sale` is remembered as empty.
    pub fn is_sold_out(&self, sale: &SaleId, shard: u32) -> bool {
        self.empty_at
            .get(sale)
            .is_some_and(|shards| shards.contains_key(&shard))
    }

    /// The shards whose epochs a poll must look at: those remembered as empty.
    pub fn watched(&self) -> impl Iterator<Item = (&SaleId, u32)> {
        self.empty_at
            .iter()
            .flat_map(|(sale, shards)| shards.keys().map(move |&shard| (sale, shard)))
    }

    /// Takes note of a shard's present epoch: another than the remembered one means that units
    /// came back since, so the memory goes.
    pub fn observe_epoch(&mut self, sale: &SaleId, shard: u32, epoch: i64) {
        if let Some(shards) = self.empty_at.get_mut(sale)
            && shards.get(&shard).is_some_and(|&seen| seen != epoch)
        {
            shards.remove(&shard);
        }
    }

    /// Forgets all that the catalogue does not hold.
    pub fn retain(&mut self, catalogue: &Catalogue) {
        self.empty_at.retain(|id, shards| {
            let Some(sale) = catalogue.find(id.as_str().as_bytes()) else {
                return false;
            };
            shards.retain(|&shard, _| shard < sale.shards);
            !shards.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::tests::{catalogue, sale};
    use alloc::{vec, vec::Vec};

    #[test]
    fn a_memory_lasts_until_the_epoch_of_its_own_shard_moves() {
        let mut memory = SoldOutMemory::default();
        let id = SaleId::new("s").unwrap();
        memory.remember(&id, 1, 7);
        memory.remember(&id, 2, 7);
        memory.observe_epoch(&id, 1, 7);
        assert!(memory.is_sold_out(&id, 1));
        memory.observe_epoch(&id, 1, 8);
        assert!(!memory.is_sold_out(&id, 1));
        assert!(memory.is_sold_out(&id, 2));
        assert!(!memory.is_sold_out(&id, 3));
    }

    #[test]
    fn a_shard_with_open_claims_is_not_sold_out_to_those_who_hold_them() {
        let mut memory = SoldOutMemory::default();
        let id = SaleId::new("s").unwrap();
        let empty = |open_claims| ClaimReply::Empty {
            epoch: 7,
            open_claims,
        };
        memory.learn(&id, 0, &ClaimReply::Cold);
        memory.learn(&id, 0, &empty(1));
        assert!(!memory.is_sold_out(&id, 0));
        memory.learn(&id, 0, &empty(0));
        assert!(memory.is_sold_out(&id, 0));
    }

    /// A reply that was overtaken by a poll brings an old epoch: the next poll must undo it.
    #[test]
    fn an_overtaken_reply_is_undone_by_the_next_poll() {
        let mut memory = SoldOutMemory::default();
        let id = SaleId::new("s").unwrap();
        memory.observe_epoch(&id, 0, 9);
        memory.remember(&id, 0, 8);
        memory.observe_epoch(&id, 0, 9);
        assert!(!memory.is_sold_out(&id, 0));
    }

    #[test]
    fn what_left_the_catalogue_is_forgotten() {
        let mut memory = SoldOutMemory::default();
        let (kept, gone) = (SaleId::new("kept").unwrap(), SaleId::new("gone").unwrap());
        memory.remember(&kept, 1, 0);
        memory.remember(&kept, 60, 0);
        memory.remember(&gone, 0, 0);
        let catalogue = catalogue(vec![sale("kept")]);
        memory.retain(&catalogue.checked().unwrap());
        assert_eq!(memory.watched().collect::<Vec<_>>(), vec![(&kept, 1)]);
    }
}
