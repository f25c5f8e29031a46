//! The random order of visitors who arrive before the opening.
//!
//! Until a room opens, positions are pre-queue numbers in the order of arrival. At the opening, a keyed permutation of
//! all of them gives the order. Gateways compute it themselves; Redis only stores the drawn range and the seed. The
//! seed exists before anyone can know how many visitors will come. Its digest ([`Seed::commitment`]) can be published
//! before the opening, so that anyone can later verify the draw.

use alloc::format;
use alloc::string::String;

use sha2::{Digest, Sha256};
use weir_base::key::{KeyRing, Purpose, SigningKey, TAG_LEN};
use weir_base::permutation::Permutation;

use crate::RoomName;

/// The key of the permutation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed([u8; TAG_LEN]);

/// Redacted: the seed must not appear in logs before it is published.
impl core::fmt::Debug for Seed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Seed").finish_non_exhaustive()
    }
}

impl Seed {
    /// The seed that a gateway proposes for an opening. Gateways with the same first key propose the same seed.
    pub fn offer(ring: &KeyRing, room: &RoomName, opens_at_ms: u64) -> Self {
        let message = format!("seed\n{room}\n{opens_at_ms}");
        Self(ring.signer().tag(Purpose::RoomDraw, message.as_bytes()))
    }

    /// The seed from these bytes.
    pub const fn from_bytes(bytes: [u8; TAG_LEN]) -> Self {
        Self(bytes)
    }

    /// The seed in hexadecimal.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// Parses the output of [`Seed::to_hex`].
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; TAG_LEN];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The SHA-256 of the seed's hexadecimal text, in hexadecimal: `printf %s <seed> | sha256sum`.
    pub fn commitment(self) -> String {
        hex::encode(Sha256::digest(self.to_hex()))
    }
}

/// A draw of the positions `base + 1` to `drawn`.
#[derive(Clone, Debug)]
pub struct Draw {
    base: u64,
    drawn: u64,
    permutation: Permutation,
}

impl Draw {
    /// The draw with this seed; `None` if the range is empty.
    pub fn new(base: u64, drawn: u64, seed: Seed) -> Option<Self> {
        // A key with the length of the hash is always accepted.
        let key = SigningKey::new("draw", &seed.0).ok()?;
        (base < drawn).then(|| Self {
            base,
            drawn,
            permutation: Permutation::new(key, Purpose::RoomDraw),
        })
    }

    /// The visitor's position after the draw, on the scale of [`crate::RoomState::head`].
    pub fn order(&self, place: u64) -> u64 {
        let index = place.checked_sub(self.base + 1);
        let order = index.and_then(|index| self.permutation.forward(self.drawn - self.base, index));
        order.map_or(place, |order| self.base + 1 + order)
    }

    /// The original position for `order`: the inverse of [`Draw::order`].
    pub fn place(&self, order: u64) -> u64 {
        let index = order.checked_sub(self.base + 1);
        let place = index.and_then(|index| self.permutation.back(self.drawn - self.base, index));
        place.map_or(order, |place| self.base + 1 + place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn draw(base: u64, drawn: u64, byte: u8) -> Draw {
        Draw::new(base, drawn, Seed([byte; TAG_LEN])).unwrap()
    }

    fn ring(byte: u8) -> KeyRing {
        SigningKey::new("k1", &[byte; 32]).unwrap().into()
    }

    #[test]
    fn early_visitors_are_shuffled_and_others_keep_positions() {
        let draw = draw(10, 60, 1);
        let mut orders: Vec<u64> = (11..=60).map(|place| draw.order(place)).collect();
        assert_ne!(orders, (11..=60).collect::<Vec<_>>());
        orders.sort_unstable();
        assert_eq!(orders, (11..=60).collect::<Vec<_>>());
        for place in [0, 1, 10, 61, 1_000] {
            assert_eq!(draw.order(place), place);
        }
        assert!(Draw::new(10, 10, Seed([1; TAG_LEN])).is_none());
    }

    #[test]
    fn early_lobby_arrival_gives_no_advantage_in_the_draw() {
        // Over 400 draws, the first of a hundred lands in the first half as often as in the second.
        let first_half = (0..200_u8).map(|byte| draw(0, 100, byte).order(1));
        let count = first_half.filter(|order| *order <= 50).count();
        assert!((70..=130).contains(&count), "{count}");
    }

    #[test]
    fn seed_depends_on_key_room_and_opening_and_has_a_commitment() {
        let room = |name| RoomName::new(name).unwrap();
        let seed = Seed::offer(&ring(1), &room("a"), 5);
        assert_eq!(seed, Seed::offer(&ring(1), &room("a"), 5));
        for other in [
            Seed::offer(&ring(2), &room("a"), 5),
            Seed::offer(&ring(1), &room("b"), 5),
            Seed::offer(&ring(1), &room("a"), 6),
        ] {
            assert_ne!(seed, other);
        }
        assert_eq!(Seed::from_hex(seed.to_hex().as_bytes()), Some(seed));
        // printf %s 0000…0000 (64 zeros) | sha256sum
        assert_eq!(
            Seed([0; TAG_LEN]).commitment(),
            "60e05bd1b195af2f94112fa7197a5c88289058840ce7c6df9693756bc6250f55"
        );
    }

    proptest! {
        #[test]
        fn draw_order_maps_back_to_every_position(base in 0..1_000_000_u64, count in 1..2_000_000_u64, at: u64, byte: u8) {
            let draw = draw(base, base + count, byte);
            let place = base + 1 + at % count;
            let order = draw.order(place);
            prop_assert!((base + 1..=base + count).contains(&order));
            prop_assert_eq!(draw.place(order), place);
        }
    }
}
