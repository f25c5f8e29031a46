//! The layout of a SKU's offsets in Redis.

use alloc::vec;
use alloc::vec::Vec;

use crate::{Offset, SPARSE_MAX};

/// The layout of relations in Redis. Both give the same answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plan {
    /// A directory contains the layout of each SKU: few offsets as a set, many as bitmaps of the non-empty segments.
    #[default]
    Directory,
    /// Bitmaps of all segments, including empty ones, and one call per vehicle. It takes about sixty times the memory.
    Bitmaps,
}

/// A SKU's offsets as stored in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// It is known to fit no vehicle.
    None,
    /// A set of integers, ascending. Redis additionally contains the sentinel 0.
    Set(Vec<Offset>),
    /// Bitmaps by segment, ascending. Bit 0 of each is the sentinel; trailing zeros are omitted.
    Bitmaps(Vec<(u32, Vec<u8>)>),
}

impl Shape {
    /// The layout of `offsets`, which ascend. `segments`: the number of segments of the vehicle map, for
    /// [`Plan::Bitmaps`], which writes all of them.
    pub fn from_offsets(plan: Plan, offsets: &[Offset], segments: u32) -> Self {
        match plan {
            Plan::Directory if offsets.is_empty() => Self::None,
            Plan::Directory if offsets.len() <= SPARSE_MAX => Self::Set(offsets.to_vec()),
            Plan::Directory => Self::Bitmaps(bitmaps(offsets)),
            Plan::Bitmaps => Self::Bitmaps(all_bitmaps(offsets, segments.max(1))),
        }
    }

    /// The layout of existing bitmaps: see [`bitmap`].
    pub fn of_bitmaps(bitmaps: Vec<(u32, Vec<u8>)>) -> Self {
        Self::Bitmaps(bitmaps)
    }

    /// The number of offsets.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Set(offsets) => offsets.len(),
            Self::Bitmaps(bitmaps) => bitmaps.iter().map(|(_, bytes)| ones(bytes) - 1).sum(),
        }
    }

    /// Whether it has no offsets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn ones(bytes: &[u8]) -> usize {
    bytes.iter().map(|byte| byte.count_ones() as usize).sum()
}

fn bitmaps(offsets: &[Offset]) -> Vec<(u32, Vec<u8>)> {
    let segments = offsets.chunk_by(|a, b| a.segment() == b.segment());
    let of = |some: &[Offset]| Some((some.first()?.segment(), bitmap(some)));
    segments.filter_map(of).collect()
}

fn all_bitmaps(offsets: &[Offset], segments: u32) -> Vec<(u32, Vec<u8>)> {
    let last = offsets.last().map_or(0, |offset| offset.segment() + 1);
    let mut all: Vec<_> = (0..segments.max(last))
        .map(|segment| (segment, bitmap(&[])))
        .collect();
    for (segment, bytes) in bitmaps(offsets) {
        if let Some(place) = all.get_mut(segment as usize) {
            place.1 = bytes;
        }
    }
    all
}

/// The bitmap of ascending offsets of one segment, with the sentinel. Bit 0 is the most significant bit of the first
/// byte, as in Redis.
pub fn bitmap(offsets: &[Offset]) -> Vec<u8> {
    let last_bit = offsets.last().map_or(0, |offset| offset.bit());
    let mut bytes = vec![0; last_bit as usize / 8 + 1];
    let bits = core::iter::once(0).chain(offsets.iter().map(|offset| offset.bit()));
    for bit in bits {
        if let Some(byte) = bytes.get_mut(bit as usize / 8) {
            *byte |= 0x80 >> (bit % 8);
        }
    }
    bytes
}

/// Whether bit `bit` of a bitmap is 1. A bit after the end is 0.
pub fn bit(bytes: &[u8], bit: u32) -> bool {
    let byte = bytes.get(bit as usize / 8).copied().unwrap_or(0);
    byte & (0x80 >> (bit % 8)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SEGMENT_LEN;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn offsets(numbers: impl IntoIterator<Item = u32>) -> Vec<Offset> {
        numbers.into_iter().filter_map(Offset::new).collect()
    }

    #[test]
    fn few_offsets_are_a_set_and_many_are_bitmaps() {
        let of = |count| Shape::from_offsets(Plan::Directory, &offsets(1..=count), 1);
        assert_eq!(of(0), Shape::None);
        assert!(matches!(of(511), Shape::Set(_)));
        let Shape::Bitmaps(bitmaps) = of(512) else {
            panic!("a set");
        };
        assert_eq!((bitmaps.len(), bitmaps[0].1.len()), (1, 65));
    }

    #[test]
    fn full_segment_has_one_bit_per_offset_and_the_sentinel() {
        let bytes = bitmap(&offsets(1..=SEGMENT_LEN));
        assert_eq!((bytes.len(), ones(&bytes)), (6_251, 50_001));
        assert_eq!(bitmap(&[]), [0x80]);
    }

    #[test]
    fn bitmaps_plan_writes_every_segment() {
        let shape = Shape::from_offsets(Plan::Bitmaps, &offsets([50_001]), 3);
        let expected = [vec![0x80], vec![0xc0], vec![0x80]];
        let Shape::Bitmaps(bitmaps) = shape else {
            panic!("no bitmaps");
        };
        assert!(bitmaps.into_iter().map(|(_, bytes)| bytes).eq(expected));
    }

    proptest! {
        #[test]
        fn shape_contains_exactly_its_offsets(
            numbers in prop::collection::btree_set(1..200_000_u32, 0..900),
            other in 1..200_000_u32,
        ) {
            let all = offsets(numbers.iter().copied());
            for plan in [Plan::Directory, Plan::Bitmaps] {
                let shape = Shape::from_offsets(plan, &all, 4);
                prop_assert_eq!(shape.len(), numbers.len());
                if let Shape::Bitmaps(bitmaps) = shape {
                    let has = |number| {
                        let offset = Offset::new(number).unwrap();
                        let bytes = bitmaps.iter().find(|(segment, _)| *segment == offset.segment());
                        bytes.is_some_and(|(_, bytes)| bit(bytes, offset.bit()))
                    };
                    prop_assert!(numbers.iter().all(|number| has(*number)));
                    let numbers: &BTreeSet<u32> = &numbers;
                    prop_assert_eq!(has(other), numbers.contains(&other));
                }
            }
        }
    }
}
