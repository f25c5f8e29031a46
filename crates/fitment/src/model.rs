//! A Rust model of the scripts in Redis.
//!
//! Tests run the same steps on the model and on a real Redis, and compare every reply. Simulations use the model alone.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::check::StoredAnswer;
use crate::shape::bit;
use crate::{Offset, Placement, SEGMENT_LEN, SPARSE_MAX, Shape, Sku, VehicleId};

/// The data of one product in Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Product {
    directory: BTreeMap<Sku, Entry>,
    /// Sets, without the sentinel. A set may exist without an entry.
    sets: BTreeMap<Sku, BTreeSet<Offset>>,
    /// Bitmaps, as their set bits. A bitmap may exist without an entry.
    bitmaps: BTreeMap<(Sku, u32), BTreeSet<Offset>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    version: u64,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    None,
    Set,
    Bitmaps(BTreeSet<u32>),
    Dropped,
}

/// The outcome of a change, as `fit_add.lua` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The change is applied.
    Done,
    /// The SKU must be written as a whole.
    NeedsWhole,
    /// Redis has this version or a newer one.
    Known,
}

/// The stored state of a SKU, as `fit_verify.lua` returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkuAudit {
    /// No entry.
    Nothing,
    /// A tombstone of this version.
    Dropped(u64),
    /// The version, and the offsets, or `None` if a key is lost.
    Relations(u64, Option<Vec<Offset>>),
}

/// A key that Redis may lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostKey {
    /// The whole directory.
    Directory,
    /// One SKU's set.
    Set(Sku),
    /// One bitmap.
    Bitmap(Sku, u32),
}

impl Product {
    /// `fit_put.lua`. Returns whether it was written.
    pub fn put(&mut self, sku: &Sku, version: u64, is_forced: bool, shape: &Shape) -> bool {
        let old = self.directory.get(sku);
        if old.is_some_and(|old| old.version > version && !is_forced) {
            return false;
        }
        self.remove_named(sku);
        let kind = match shape {
            Shape::None => Kind::None,
            Shape::Set(offsets) => {
                self.sets
                    .insert(sku.clone(), offsets.iter().copied().collect());
                Kind::Set
            }
            Shape::Bitmaps(bitmaps) => {
                for (segment, bytes) in bitmaps {
                    self.bitmaps
                        .insert((sku.clone(), *segment), offsets(*segment, bytes));
                }
                Kind::Bitmaps(bitmaps.iter().map(|(segment, _)| *segment).collect())
            }
        };
        self.directory.insert(sku.clone(), Entry { version, kind });
        true
    }

    /// `fit_add.lua`.
    pub fn add(
        &mut self,
        sku: &Sku,
        [from, to]: [u64; 2],
        added: &[Offset],
        removed: &[Offset],
    ) -> ChangeOutcome {
        let Some(entry) = self.directory.get(sku).cloned() else {
            return ChangeOutcome::NeedsWhole;
        };
        if entry.version >= to {
            return ChangeOutcome::Known;
        }
        if entry.version != from {
            return ChangeOutcome::NeedsWhole;
        }
        let kind = match entry.kind {
            Kind::Set => self.add_to_set(sku, added, removed).then_some(Kind::Set),
            Kind::Bitmaps(named) => {
                let named = self.add_to_bitmaps(sku, named, added, removed);
                named.map(Kind::Bitmaps)
            }
            Kind::None | Kind::Dropped => None,
        };
        let Some(kind) = kind else {
            return ChangeOutcome::NeedsWhole;
        };
        self.directory
            .insert(sku.clone(), Entry { version: to, kind });
        ChangeOutcome::Done
    }

    fn add_to_set(&mut self, sku: &Sku, added: &[Offset], removed: &[Offset]) -> bool {
        let set = self.sets.get_mut(sku);
        let Some(set) = set.filter(|set| set.len() + added.len() <= SPARSE_MAX) else {
            return false;
        };
        set.extend(added);
        set.retain(|offset| !removed.contains(offset));
        true
    }

    fn add_to_bitmaps(
        &mut self,
        sku: &Sku,
        mut named: BTreeSet<u32>,
        added: &[Offset],
        removed: &[Offset],
    ) -> Option<BTreeSet<u32>> {
        let all = added.iter().chain(removed);
        let is_lost = |offset: &Offset| {
            let segment = offset.segment();
            named.contains(&segment) && !self.bitmaps.contains_key(&(sku.clone(), segment))
        };
        if all.into_iter().any(is_lost) {
            return None;
        }
        for offset in added {
            let is_new = named.insert(offset.segment());
            let bitmap = self.bitmaps.entry((sku.clone(), offset.segment()));
            let bitmap = bitmap.or_default();
            if is_new {
                bitmap.clear();
            }
            bitmap.insert(*offset);
        }
        for offset in removed
            .iter()
            .filter(|offset| named.contains(&offset.segment()))
        {
            if let Some(bitmap) = self.bitmaps.get_mut(&(sku.clone(), offset.segment())) {
                bitmap.remove(offset);
            }
        }
        Some(named)
    }

    /// `fit_drop.lua`. Returns how many were dropped.
    pub fn drop(&mut self, segments: u32, skus: &[(Sku, u64)]) -> usize {
        let mut dropped = 0;
        for (sku, version) in skus {
            if self
                .directory
                .get(sku)
                .is_some_and(|old| old.version > *version)
            {
                continue;
            }
            self.remove_named(sku);
            for segment in 0..segments {
                self.bitmaps.remove(&(sku.clone(), segment));
            }
            let (version, kind) = (*version, Kind::Dropped);
            self.directory.insert(sku.clone(), Entry { version, kind });
            dropped += 1;
        }
        dropped
    }

    /// `fit_drop.lua`. Returns how many tombstones were removed.
    pub fn forget(&mut self, skus: &[(Sku, u64)]) -> usize {
        let before = self.directory.len();
        for (sku, version) in skus {
            let entry = self.directory.get(sku);
            if entry.is_some_and(|old| old.kind == Kind::Dropped && old.version <= *version) {
                self.directory.remove(sku);
            }
        }
        before - self.directory.len()
    }

    fn remove_named(&mut self, sku: &Sku) {
        self.sets.remove(sku);
        if let Some(Kind::Bitmaps(named)) = self.directory.get(sku).map(|entry| &entry.kind) {
            for segment in named {
                self.bitmaps.remove(&(sku.clone(), *segment));
            }
        }
    }

    /// `fit_query.lua` for one SKU.
    pub fn query(&self, vehicles: &[Offset], sku: &Sku) -> StoredAnswer {
        let Some(entry) = self.directory.get(sku) else {
            return StoredAnswer::Absent;
        };
        let mut fits = 0;
        for (index, vehicle) in vehicles.iter().enumerate() {
            let is_fit = match &entry.kind {
                Kind::Dropped => return StoredAnswer::Absent,
                Kind::None => Some(false),
                Kind::Set => self.sets.get(sku).map(|set| set.contains(vehicle)),
                Kind::Bitmaps(named) if !named.contains(&vehicle.segment()) => Some(false),
                Kind::Bitmaps(_) => self.in_bitmap(sku, *vehicle),
            };
            match is_fit {
                Some(is_fit) => fits |= u8::from(is_fit) << index,
                None => return StoredAnswer::Lost,
            }
        }
        StoredAnswer::Known(fits)
    }

    /// `fit_query_bitmaps.lua` for one SKU and all vehicles.
    pub fn query_bitmaps(&self, vehicles: &[Offset], sku: &Sku) -> StoredAnswer {
        let mut fits = 0;
        for (index, vehicle) in vehicles.iter().enumerate() {
            match self.in_bitmap(sku, *vehicle) {
                Some(is_fit) => fits |= u8::from(is_fit) << index,
                None => return StoredAnswer::Absent,
            }
        }
        StoredAnswer::Known(fits)
    }

    fn in_bitmap(&self, sku: &Sku, vehicle: Offset) -> Option<bool> {
        let bitmap = self.bitmaps.get(&(sku.clone(), vehicle.segment()))?;
        Some(bitmap.contains(&vehicle))
    }

    /// `fit_verify.lua` for one SKU.
    pub fn audit_sku(&self, sku: &Sku) -> SkuAudit {
        let Some(Entry { version, kind }) = self.directory.get(sku) else {
            return SkuAudit::Nothing;
        };
        let offsets = match kind {
            Kind::Dropped => return SkuAudit::Dropped(*version),
            Kind::None => Some(Vec::new()),
            Kind::Set => self.sets.get(sku).map(|set| set.iter().copied().collect()),
            Kind::Bitmaps(named) => {
                let bitmap = |segment: &u32| self.bitmaps.get(&(sku.clone(), *segment));
                let all = named.iter().map(bitmap).collect::<Option<Vec<_>>>();
                all.map(|all| all.into_iter().flatten().copied().collect())
            }
        };
        SkuAudit::Relations(*version, offsets)
    }

    /// Loses a key.
    pub fn lose(&mut self, lost: &LostKey) {
        match lost {
            LostKey::Directory => self.directory.clear(),
            LostKey::Set(sku) => drop(self.sets.remove(sku)),
            LostKey::Bitmap(sku, segment) => drop(self.bitmaps.remove(&(sku.clone(), *segment))),
        }
    }
}

fn offsets(segment: u32, bytes: &[u8]) -> BTreeSet<Offset> {
    let bits = (1..=SEGMENT_LEN).filter(|number| bit(bytes, *number));
    let offset = |bit| Offset::new(segment * SEGMENT_LEN + bit);
    bits.filter_map(offset).collect()
}

/// The routes: `fit_route.lua` and `fit_route_put.lua`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes(BTreeMap<Sku, (u64, Option<Placement>)>);

impl Routes {
    /// Returns whether it was written.
    pub fn put(
        &mut self,
        sku: &Sku,
        version: u64,
        is_forced: bool,
        place: Option<Placement>,
    ) -> bool {
        let is_newer = self.0.get(sku).is_some_and(|(old, _)| *old > version);
        if is_newer && !is_forced {
            return false;
        }
        self.0.insert(sku.clone(), (version, place));
        true
    }

    /// Removes a route, unless it is newer than `version`. Returns whether there was one.
    pub fn forget(&mut self, sku: &Sku, version: u64) -> bool {
        let is_newer = self.0.get(sku).is_some_and(|(old, _)| *old > version);
        !is_newer && self.0.remove(sku).is_some()
    }

    /// Version and location; `None`: no route.
    pub fn get(&self, sku: &Sku) -> Option<&(u64, Option<Placement>)> {
        self.0.get(sku)
    }
}

/// Generation, count, stamp.
pub type MapHead = (u64, u32, u64);

/// The vehicle map: `fit_vehicles.lua` and `fit_vehicles_put.lua`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    head: Option<MapHead>,
    blocks: BTreeMap<(u64, u32), Vec<Option<VehicleId>>>,
}

/// The outcome of writing a piece of the map, as `fit_vehicles_put.lua` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapPutOutcome {
    /// The piece is written.
    Done,
    /// Redis has a newer generation.
    Superseded,
    /// The preceding part is lost.
    Hole,
}

impl Map {
    /// `fit_vehicles_put.lua`; `head` is count and stamp.
    pub fn put(
        &mut self,
        generation: u64,
        before: u32,
        vehicles: &[Option<VehicleId>],
        head: Option<(u32, u64)>,
    ) -> MapPutOutcome {
        if self
            .head
            .is_some_and(|(existing, ..)| existing > generation)
        {
            return MapPutOutcome::Superseded;
        }
        let place = (generation, before / SEGMENT_LEN);
        let begin = (before % SEGMENT_LEN) as usize;
        if self.blocks.get(&place).map_or(0, Vec::len) < begin {
            return MapPutOutcome::Hole;
        }
        if !vehicles.is_empty() {
            let block = self.blocks.entry(place).or_default();
            let behind = block.split_off((begin + vehicles.len()).min(block.len()));
            block.truncate(begin);
            block.extend(vehicles.iter().copied().chain(behind));
        }
        if let Some((count, stamp)) = head {
            self.flip(generation, count, stamp);
        }
        MapPutOutcome::Done
    }

    fn flip(&mut self, generation: u64, mut count: u32, mut stamp: u64) {
        if let Some((old, old_count, old_stamp)) = self.head {
            stamp = stamp.max(old_stamp);
            if old == generation {
                count = count.max(old_count);
            } else {
                let blocks = old_count.saturating_sub(1) / SEGMENT_LEN;
                self.blocks
                    .retain(|(of, block), _| *of != old || *block > blocks);
            }
        }
        self.head = Some((generation, count, stamp));
    }

    /// `fit_vehicles.lua`: generation, count, stamp, and the vehicles after the known ones.
    pub fn get(
        &self,
        generation: u64,
        count: u32,
        max: u32,
    ) -> Option<(MapHead, Vec<Option<VehicleId>>)> {
        let head = self.head?;
        let block = self.blocks.get(&(generation, count / SEGMENT_LEN));
        let block = block.filter(|_| head.0 == generation);
        let behind = block
            .into_iter()
            .flatten()
            .skip((count % SEGMENT_LEN) as usize);
        Some((head, behind.take(max as usize).copied().collect()))
    }

    /// Loses a block or the head.
    pub fn lose(&mut self, block: Option<(u64, u32)>) {
        match block {
            None => self.head = None,
            Some(block) => drop(self.blocks.remove(&block)),
        }
    }
}
