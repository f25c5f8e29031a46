//! Redis keys of sales.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::challenge::NAME_LEN;
use crate::idempotency::AttemptTag;
use crate::ledger::Checks;
use crate::shard::BUCKETS;
use weir_base::id::{SaleId, UserId};
use weir_base::resp::Arguments;

/// The key of the catalogue of sales.
pub fn catalogue(prefix: &str) -> Vec<u8> {
    format!("{prefix}:catalogue").into_bytes()
}

/// The key of the random name of this Redis, by which origins know that they use the same one.
pub fn identity(prefix: &str) -> Vec<u8> {
    format!("{prefix}:identity").into_bytes()
}

/// The key of a solved challenge, by the name of its solutions.
pub fn challenge(prefix: &str, name: &[u8; NAME_LEN]) -> Vec<u8> {
    format!("{prefix}:challenge:{:032x}", u128::from_be_bytes(*name)).into_bytes()
}

const STOCK: &str = "stock";
const CLAIMS: &str = "claims";
const PENDING: &str = "pending";
const EPOCH: &str = "epoch";
const SEQUENCE: &str = "sequence";
const SUMS: &str = "sums";
const BOUGHT: &str = "bought";
const MARK: &str = "mark";
const RESERVED: &str = "reserved";
const BLOCKED: &str = "blocked";
const ATTEMPTS: &str = "attempt";

/// The keys of one shard of a sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardKeys {
    tag: String,
}

impl ShardKeys {
    /// The keys of shard `shard` of `sale`.
    pub fn new(prefix: &str, sale: &SaleId, shard: u32) -> Self {
        // A sale's id has no brace, so the hash tag is the text between the first `{` and `}`. The configuration
        // rejects a prefix with a brace.
        let tag = format!("{prefix}:{{{sale}:{shard}}}");
        Self { tag }
    }

    /// The key prefix of the shard that a command refers to; `None` without one. Only the first key is read: no command
    /// has keys of two shards, unless its sender uses one Redis for all.
    pub fn of_command<'w>(prefix: &str, words: &[&'w [u8]]) -> Option<&'w str> {
        let key = match words {
            [b"EVAL" | b"EVALSHA", _, _, key, ..] => key,
            [_, key, ..] => key,
            _ => return None,
        };
        let end = key.iter().position(|byte| *byte == b'}')?;
        let tag = core::str::from_utf8(key.get(..=end)?).ok()?;
        let of_sale = tag.strip_prefix(prefix)?.strip_prefix(":{")?;
        let (sale, shard) = of_sale.strip_suffix('}')?.rsplit_once(':')?;
        let is_shard = SaleId::new(sale).is_ok() && shard.parse::<u32>().is_ok();
        is_shard.then_some(tag)
    }

    fn key(&self, name: &str) -> Vec<u8> {
        [self.tag.as_bytes(), b":", name.as_bytes()].concat()
    }

    /// Integer: units left.
    pub fn stock(&self) -> Vec<u8> {
        self.key(STOCK)
    }

    /// Hash: the record of each user with a claim.
    pub fn claims(&self) -> Vec<u8> {
        self.key(CLAIMS)
    }

    /// Sorted set: users with an open claim, by its deadline.
    pub fn pending(&self) -> Vec<u8> {
        self.key(PENDING)
    }

    /// Integer: changes whenever units arrive, and whenever the last one leaves.
    pub fn epoch(&self) -> Vec<u8> {
        self.key(EPOCH)
    }

    /// Integer: the last issued generation or transfer id.
    pub fn sequence(&self) -> Vec<u8> {
        self.key(SEQUENCE)
    }

    /// Text: the shard's version, and the sums of its claims and orders.
    pub fn sums(&self) -> Vec<u8> {
        self.key(SUMS)
    }

    /// The prefix of the keys of [`ShardKeys::bought_in`].
    pub(crate) fn bought(&self) -> Vec<u8> {
        self.key(BOUGHT)
    }

    /// Hash: the orders of users without a claim, of this home shard and this [bucket](crate::shard::bucket).
    pub fn bought_in(&self, bucket: u32) -> Vec<u8> {
        self.key(&format!("{BOUGHT}:{bucket}"))
    }

    /// Text: the token of the running rebuild.
    pub(crate) fn rebuild(&self) -> Vec<u8> {
        self.key("rebuild")
    }

    /// Hash: the open transfers from this shard, by target.
    pub fn transfers(&self) -> Vec<u8> {
        self.key("transfers")
    }

    /// Hash: the id of the last received transfer, by source shard.
    pub fn deposits(&self) -> Vec<u8> {
        self.key("deposits")
    }

    /// Integer: the number of order changes that the shard has applied after their commit in SQL.
    pub fn mark(&self) -> Vec<u8> {
        self.key(MARK)
    }

    /// Text: the last change of the sale's stock, and its result.
    pub fn change(&self) -> Vec<u8> {
        self.key("change")
    }

    /// All keys of the shard's ledger: all except those of reserved and blocked users, which are lists from SQL.
    pub fn ledger(&self) -> Vec<Vec<u8>> {
        let mut keys = Vec::from([
            self.stock(),
            self.claims(),
            self.pending(),
            self.epoch(),
            self.sequence(),
            self.sums(),
            self.transfers(),
            self.deposits(),
            self.rebuild(),
            self.change(),
            self.mark(),
        ]);
        keys.extend((0..BUCKETS).map(|bucket| self.bought_in(bucket)));
        keys
    }

    /// The keys that most scripts need for a shard and one of its users: stock, claims, pending, epoch, sums, bought.
    pub(crate) fn of_user(&self) -> [Vec<u8>; 6] {
        [
            self.stock(),
            self.claims(),
            self.pending(),
            self.epoch(),
            self.sums(),
            self.bought(),
        ]
    }

    /// The same and the mark: the keys of scripts that apply an order change.
    pub(crate) fn of_order(&self) -> [Vec<u8>; 7] {
        let [stock, claims, pending, epoch, sums, bought] = self.of_user();
        [stock, claims, pending, epoch, sums, bought, self.mark()]
    }

    /// Appends the keys that a claim reads and writes: stock, epoch, sequence, sums, claims, pending, bought.
    pub(crate) fn push_ledger_of_claims(&self, keys: &mut Arguments) {
        for name in [STOCK, EPOCH, SEQUENCE, SUMS, CLAIMS, PENDING, BOUGHT] {
            self.push(name, keys);
        }
    }

    /// Appends the prefixes of the keys [`ShardKeys::reserved`] and [`ShardKeys::blocked`], if they must be checked.
    pub(crate) fn push_checked_sets(&self, checks: Checks, keys: &mut Arguments) {
        if checks.reserved {
            self.push(RESERVED, keys);
        }
        if checks.blocked {
            self.push(BLOCKED, keys);
        }
    }

    /// Appends the prefix of the keys [`ShardKeys::attempt`].
    pub(crate) fn push_attempts(&self, keys: &mut Arguments) {
        self.push(ATTEMPTS, keys);
    }

    fn push(&self, name: &str, keys: &mut Arguments) {
        keys.push_joined(&[self.tag.as_bytes(), b":", name.as_bytes()]);
    }

    /// Set: users of this home shard and this [bucket](crate::shard::bucket) with a reservation.
    pub fn reserved(&self, bucket: u32) -> Vec<u8> {
        self.key(&format!("{RESERVED}:{bucket}"))
    }

    /// Integer with expiry: the generation of the claim that this attempt of this user was granted.
    pub fn attempt(&self, user: &UserId, tag: AttemptTag) -> Vec<u8> {
        self.key(&format!("{ATTEMPTS}:{user}:{tag}"))
    }

    /// Set: users of this home shard and this bucket who are blocked.
    pub fn blocked(&self, bucket: u32) -> Vec<u8> {
        self.key(&format!("{BLOCKED}:{bucket}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_targets_a_shard_only_by_a_shard_key() {
        let of = |words: &[&'static str]| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            ShardKeys::of_command("weir", &words).map(String::from)
        };
        let shard = Some(String::from("weir:{s-1:3}"));
        assert_eq!(of(&["GET", "weir:{s-1:3}:epoch"]), shard);
        assert_eq!(
            of(&["EVALSHA", "abc", "1", "weir:{s-1:3}:stock", "x"]),
            shard
        );
        assert_eq!(
            of(&["UNLINK", "weir:{s-1:3}:stock", "weir:{s-1:3}:sums"]),
            shard
        );
        for other in [
            "weir:catalogue",
            "other:{s-1:3}:stock",
            "weir:{s-1}:stock",
            "weir:{s-1:x}:stock",
            "weir:{S!:3}:stock",
            "weir:link:{d/a:3}",
            "weir:limit:{r:3}",
            "weir:{s-1:3",
        ] {
            assert_eq!(of(&["GET", other]), None, "{other}");
        }
        assert_eq!(of(&["TIME"]), None);
        assert_eq!(of(&["EVAL", "return 1", "0"]), None);
    }

    #[test]
    fn all_keys_of_a_shard_carry_one_hash_tag() {
        let keys = ShardKeys::new("weir", &SaleId::new("s-1").unwrap(), 3);
        assert!(
            keys.ledger()
                .iter()
                .all(|key| key.starts_with(b"weir:{s-1:3}:"))
        );
        for (key, name) in [
            (keys.stock(), "stock"),
            (keys.claims(), "claims"),
            (keys.pending(), "pending"),
            (keys.epoch(), "epoch"),
            (keys.sequence(), "sequence"),
            (keys.sums(), "sums"),
            (keys.bought_in(7), "bought:7"),
            (keys.rebuild(), "rebuild"),
            (keys.transfers(), "transfers"),
            (keys.deposits(), "deposits"),
            (keys.change(), "change"),
            (keys.mark(), "mark"),
            (keys.reserved(255), "reserved:255"),
            (keys.blocked(0), "blocked:0"),
        ] {
            assert_eq!(key, format!("weir:{{s-1:3}}:{name}").into_bytes());
        }
        assert_eq!(catalogue("weir"), b"weir:catalogue");
        assert_eq!(identity("weir"), b"weir:identity");
    }
}
