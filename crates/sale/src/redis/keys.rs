//! The keys of sales.

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

/// The key of what a solved challenge led to, by the name of its solutions.
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
        // A sale's id has no brace, so the tag is what stands between the first `{` and `}`,
        // unless the prefix has a brace: configuration refuses that.
        let tag = format!("{prefix}:{{{sale}:{shard}}}");
        Self { tag }
    }

    /// What all keys of a shard begin with, given a command that is about it; `None` if the command is about none. Only the first
    /// key is looked at: no command has keys of two shards unless its sender knows of one Redis for all.
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

    /// Hash: what is known of each user who holds a claim.
    pub fn claims(&self) -> Vec<u8> {
        self.key(CLAIMS)
    }

    /// Sorted set: users with an open claim, by its deadline.
    pub fn pending(&self) -> Vec<u8> {
        self.key(PENDING)
    }

    /// Integer: another one whenever units come, and whenever the last one goes.
    pub fn epoch(&self) -> Vec<u8> {
        self.key(EPOCH)
    }

    /// Integer: the last generation or transfer id given out.
    pub fn sequence(&self) -> Vec<u8> {
        self.key(SEQUENCE)
    }

    /// Text: the shard's version, and the sums of its claims and orders.
    pub fn sums(&self) -> Vec<u8> {
        self.key(SUMS)
    }

    /// What the keys of [`ShardKeys::bought_in`] start with.
    pub(crate) fn bought(&self) -> Vec<u8> {
        self.key(BOUGHT)
    }

    /// Hash: the orders of users of this home shard and this [bucket](crate::shard::bucket) who hold no claim.
    pub fn bought_in(&self, bucket: u32) -> Vec<u8> {
        self.key(&format!("{BOUGHT}:{bucket}"))
    }

    /// Text: who rebuilds the shard, as long as that is under way.
    pub(crate) fn rebuild(&self) -> Vec<u8> {
        self.key("rebuild")
    }

    /// Hash: what has left for other shards, by target.
    pub fn transfers(&self) -> Vec<u8> {
        self.key("transfers")
    }

    /// Hash: the id of the last transfer that came, by lender.
    pub fn deposits(&self) -> Vec<u8> {
        self.key("deposits")
    }

    /// Integer: how many changes of orders the shard was told of, after SQL had committed them.
    pub fn mark(&self) -> Vec<u8> {
        self.key(MARK)
    }

    /// Text: the last change of the sale's stock that came, and what came of it.
    pub fn change(&self) -> Vec<u8> {
        self.key("change")
    }

    /// All that the shard's ledger is made of: every key but those of reserved and blocked users,
    /// which are lists from SQL.
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

    /// What most scripts need of a shard and of one of its users: stock, claims, pending, epoch, sums, bought.
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

    /// The same, and the mark: what a script needs that has a shard follow an order.
    pub(crate) fn of_order(&self) -> [Vec<u8>; 7] {
        let [stock, claims, pending, epoch, sums, bought] = self.of_user();
        [stock, claims, pending, epoch, sums, bought, self.mark()]
    }

    /// Appends the keys of what a claim reads and writes: stock, epoch, sequence, sums, claims, pending, bought.
    pub(crate) fn push_ledger_of_claims(&self, keys: &mut Arguments) {
        for name in [STOCK, EPOCH, SEQUENCE, SUMS, CLAIMS, PENDING, BOUGHT] {
            self.push(name, keys);
        }
    }

    /// Appends what the keys of [`ShardKeys::reserved`] and [`ShardKeys::blocked`] start with, of those that are to be
    /// looked at.
    pub(crate) fn push_checked_sets(&self, checks: Checks, keys: &mut Arguments) {
        if checks.reserved {
            self.push(RESERVED, keys);
        }
        if checks.blocked {
            self.push(BLOCKED, keys);
        }
    }

    /// Appends what the keys of [`ShardKeys::attempt`] start with.
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

    /// Integer that expires: the generation of the claim that this attempt of this user was granted.
    pub fn attempt(&self, user: &UserId, tag: AttemptTag) -> Vec<u8> {
        self.key(&format!("{ATTEMPTS}:{user}:{tag}"))
    }

    /// Set: users of this home shard and this bucket who may not buy.
    pub fn blocked(&self, bucket: u32) -> Vec<u8> {
        self.key(&format!("{BLOCKED}:{bucket}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_about_a_shard_only_by_a_key_of_one() {
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
    }
}
