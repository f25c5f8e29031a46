//! Fences and allotments of sites: see `origin/sales/src/store/sites.rs` and [`weir_sale::site`].

use weir_sale::sale::{Band, Sale};
use weir_sale::site::{FenceState, FenceStock, fence_of, first_shard, heir, inherited};

use super::changes::Change;
use super::{ClaimName, Sql};
use crate::mutation::Mutation;

/// A fence, with its part of the sale.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    /// The site that sells under it.
    pub(crate) site: usize,
    pub(crate) fence: u32,
    pub(crate) state: FenceState,
    /// The allotment, once the sale is warm.
    pub(crate) units: i64,
    pub(crate) wanted: u64,
}

/// A step of an operator, for the witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteStep {
    Failed(u32),
    Drained(u32),
    Joined(u32),
}

impl Sql {
    /// The fences of a sale at `sites` sites that have joined before it.
    pub(super) fn first_fences(sites: u32) -> Vec<Fence> {
        let fence = |number: u32| Fence {
            site: number as usize,
            fence: number,
            state: FenceState::Live,
            units: 0,
            wanted: 0,
        };
        (0..sites.max(1)).map(fence).collect()
    }

    /// The last fence of a site.
    pub(crate) fn fence_at(&self, site: usize) -> &Fence {
        let fences = self.fences.iter().rev();
        let mut fences = fences.filter(|fence| fence.site == site);
        fences.next().expect("every site has joined")
    }

    fn fence_mut(&mut self, number: u32) -> &mut Fence {
        let mut fences = self.fences.iter_mut();
        let found = fences.find(|fence| fence.fence == number);
        found.expect("fences stay")
    }

    fn state_of(&self, number: u32) -> Option<FenceState> {
        let mut fences = self.fences.iter();
        let found = fences.find(|fence| fence.fence == number);
        found.map(|fence| fence.state)
    }

    /// Whether no claim of the shard becomes an order.
    pub(crate) fn is_closed(&self, shard: u32) -> bool {
        self.state_of(fence_of(shard)) == Some(FenceState::Closed)
    }

    /// The sale as gateways of a site see it.
    pub(crate) fn sale_at(&self, site: usize) -> Sale {
        let fence = self.fence_at(site);
        Sale {
            first_shard: first_shard(fence.fence),
            ..self.sale.clone()
        }
    }

    /// Whether a site may sell.
    pub(crate) fn is_open_at(&self, site: usize) -> bool {
        self.fence_at(site).state != FenceState::Closed
    }

    /// The level that gateways of a site see. Units of other sites count: they may come.
    pub(crate) fn band_at(&self, site: usize) -> Band {
        let fence = self.fence_at(site).fence;
        if self.mutation == Some(Mutation::SoldOutOfOneSite) {
            let unsold = self.allotment(fence) - self.ordered_at(fence);
            return Band::from_remaining(u64::try_from(unsold).unwrap_or(0), self.total);
        }
        self.band()
    }

    /// The fence that gets changes of the total.
    pub(crate) fn heir(&self) -> u32 {
        heir(&self.stocks()).unwrap_or(0)
    }

    /// The allotment of a fence.
    pub(crate) fn allotment(&self, number: u32) -> i64 {
        match self.warmed_at_ms {
            None if self.filler() == Some(number) => self.total as i64,
            None => 0,
            Some(_) => {
                let mut fences = self.fences.iter();
                let found = fences.find(|fence| fence.fence == number);
                found.map_or(0, |fence| fence.units)
            }
        }
    }

    /// Units in orders of a fence that have left the stock.
    pub(crate) fn ordered_at(&self, number: u32) -> i64 {
        let shards = first_shard(number)..first_shard(number + 1);
        let units = shards.map(|shard| self.sums_of(shard).0 as i64);
        units.sum()
    }

    pub(crate) fn stocks(&self) -> Vec<FenceStock> {
        let stock = |fence: &Fence| FenceStock {
            fence: fence.fence,
            state: fence.state,
            units: fence.units,
            ordered: self.ordered_at(fence.fence),
            wanted: fence.wanted,
        };
        self.fences.iter().map(stock).collect()
    }

    /// The allotments of all fences, once the sale is warm.
    pub(crate) fn units_allotted(&self) -> Option<i64> {
        self.warmed_at_ms?;
        Some(self.fences.iter().map(|fence| fence.units).sum())
    }

    /// The fence that fills its shards with all units.
    fn filler(&self) -> Option<u32> {
        match self.mutation {
            Some(Mutation::FillerNotRecorded) => Some(self.heir()),
            _ => self.filler,
        }
    }

    /// Records that a fence fills its shards with all units of the sale. `false` if another fence does that, or the sale
    /// is warm.
    ///
    /// Without this record, two sites would both fill their shards if the heir changes in between.
    pub(crate) fn begin_warm(&mut self, fence: u32) -> bool {
        if self.warmed_at_ms.is_some() {
            return false;
        }
        let is_open = |number: &u32| self.state_of(*number) != Some(FenceState::Closed);
        let filler = self.filler().filter(is_open).unwrap_or(self.heir());
        if filler == fence {
            self.filler = Some(fence);
        }
        filler == fence
    }

    /// The sale is warm: the fence that has filled its shards gets all units. `false` if another fence has to fill its
    /// shards.
    pub(crate) fn mark_warm(&mut self, fence: u32, now_ms: u64) -> bool {
        if self.warmed_at_ms.is_some() {
            return true;
        }
        let is_recorded = self.mutation != Some(Mutation::FillerNotRecorded);
        let is_filler = !is_recorded || self.filler == Some(fence);
        if !is_filler || self.state_of(fence) == Some(FenceState::Closed) {
            return false;
        }
        let total = self.total as i64;
        self.fence_mut(fence).units = total;
        self.warmed_at_ms = Some(now_ms);
        true
    }

    /// Adds units to a fence's allotment.
    pub(super) fn allot(&mut self, fence: u32, units: i64) {
        self.fence_mut(fence).units += units;
    }

    // --- operators

    /// Closes the fence of a site, unless no other site sells.
    pub(crate) fn fail_site(&mut self, site: usize) {
        let fence = self.fence_at(site).fence;
        let is_live = |other: &Fence| other.fence != fence && other.state == FenceState::Live;
        let is_last = !self.fences.iter().any(is_live);
        if is_last || self.state_of(fence) == Some(FenceState::Closed) {
            return;
        }
        self.site_steps.push(SiteStep::Failed(fence));
        self.close_fence(fence);
    }

    fn close_fence(&mut self, fence: u32) {
        if self.mutation == Some(Mutation::FenceNotRaised) {
            // It moves the units, but the fence stays.
            let unsold = self.allotment(fence) - self.ordered_at(fence);
            let heir = self.fences.iter().find(|other| other.fence != fence);
            let heir = heir.map_or(fence, |heir| heir.fence);
            if self.warmed_at_ms.is_some() && unsold > 0 {
                self.allot(fence, -unsold);
                self.add_to(heir, unsold);
            }
            return;
        }
        self.fence_mut(fence).state = FenceState::Closed;
        self.fence_mut(fence).wanted = 0;
        if self.mutation != Some(Mutation::RebuiltBeforeTransfersEnd) {
            self.close_changes(fence);
        }
        let names: Vec<ClaimName> = self.unfollowed.iter().copied().collect();
        for name in names {
            if fence_of(name.0) == fence {
                self.unfollowed.remove(&name);
            }
        }
        self.version += 1;
    }

    /// A site gives its units to others, and sells no more.
    pub(crate) fn drain_site(&mut self, site: usize) {
        let fence = self.fence_at(site).fence;
        let is_live = |other: &Fence| other.state == FenceState::Live;
        let has_other = self
            .fences
            .iter()
            .any(|other| other.fence != fence && is_live(other));
        if !has_other || self.state_of(fence) != Some(FenceState::Live) {
            return;
        }
        self.site_steps.push(SiteStep::Drained(fence));
        self.fence_mut(fence).state = FenceState::Draining;
        if self.mutation == Some(Mutation::DrainRefusesHolders) {
            self.close_fence(fence);
        }
    }

    /// Closes a draining fence whose shards are empty.
    pub(crate) fn end_drain(&mut self, fence: u32) {
        let is_draining = self.state_of(fence) == Some(FenceState::Draining);
        let is_empty = self.allotment(fence) == self.ordered_at(fence);
        if is_draining && is_empty && self.open_change_at(fence).is_none() {
            self.close_fence(fence);
        }
    }

    /// A site without a fence that sells gets a new one.
    pub(crate) fn join_site(&mut self, site: usize) {
        let existing = self.fence_at(site).clone();
        if existing.state != FenceState::Closed {
            return;
        }
        if self.mutation == Some(Mutation::FenceReused) {
            self.fence_mut(existing.fence).state = FenceState::Live;
            return;
        }
        let fence = self.fences.len() as u32;
        self.site_steps.push(SiteStep::Joined(fence));
        self.fences.push(Fence {
            site,
            fence,
            state: FenceState::Live,
            units: 0,
            wanted: 0,
        });
    }

    // --- units between sites

    /// Gives the units of closed fences to the heir.
    pub(crate) fn inherit(&mut self) {
        if self.warmed_at_ms.is_none() {
            return;
        }
        let stocks = self.stocks();
        for closed in &stocks {
            if let Some((heir, units)) = inherited(closed, &stocks) {
                let units = units as i64;
                self.allot(closed.fence, -units);
                self.add_to(heir, units);
                self.units_inherited += units as u64;
            }
        }
    }

    /// Records the request of a site for units.
    pub(crate) fn set_wanted(&mut self, fence: u32, units: u64) {
        self.fence_mut(fence).wanted = units;
    }

    /// Records a transfer, unless the source has another change.
    pub(crate) fn begin_transfer(&mut self, from: u32, to: u32, shares: Vec<u64>, now_ms: u64) {
        let is_closed = self.state_of(from) == Some(FenceState::Closed);
        if is_closed || self.open_change_at(from).is_some() {
            return;
        }
        self.fence_mut(to).wanted = 0;
        let units: u64 = shares.iter().sum();
        let number = self.next_change(now_ms);
        self.changes.push(Change {
            number,
            key: None,
            fence: from,
            to: Some(to),
            requested: -(units as i64),
            shares,
            units: None,
        });
    }

    /// The outcome of a transfer: `units` have left the source. Only those move that SQL has not sold there. Redis has
    /// given up more if it had lost data; the reconciler adds these to the source again.
    pub(super) fn end_transfer(&mut self, from: u32, to: u32, units: i64) {
        let unsold = (self.allotment(from) - self.ordered_at(from)).max(0);
        let given = units;
        let units = given.min(unsold);
        self.has_kept_units |= units != given;
        if units == 0 {
            return;
        }
        self.units_transferred += units as u64;
        if self.mutation != Some(Mutation::AllotmentNotMoved) {
            self.allot(from, -units);
        }
        match self.state_of(to) {
            Some(FenceState::Closed) => self.allot(to, units),
            _ => self.add_to(to, units),
        }
    }

    /// Adds units to a fence's allotment, and records the addition to its shards.
    fn add_to(&mut self, fence: u32, units: i64) {
        self.allot(fence, units);
        let number = self.next_change(0);
        self.changes.push(Change {
            number,
            key: None,
            fence,
            to: None,
            requested: units,
            shares: weir_sale::shard::spread_stock(units as u64, self.sale.shards),
            units: None,
        });
    }
}
