//! The keys of sales.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::id::{SaleId, UserId};
use weir_resp::Arguments;
use weir_sale::idempotency::AttemptTag;
use weir_sale::ledger::Checks;

/// The key of the catalogue of sales.
pub fn catalogue(prefix: &str) -> Vec<u8> {
    format!("{prefix}:catalogue").into_bytes()
}

const STOCK: &str = "stock";
const CLAIMS: &str = "claims";
const PENDING: &str = "pending";
const EPOCH: &str = "epoch";
const SEQUENCE: &str = "sequence";
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

    fn key(&self, name: &str) -> Vec<u8> {
        [self.tag.as_bytes(), b":", name.as_bytes()].concat()
    }

    /// Integer: units left.
    pub fn stock(&self) -> Vec<u8> {
        self.key(STOCK)
    }

    /// Hash: what is known of each user who holds or has bought units.
    pub fn claims(&self) -> Vec<u8> {
        self.key(CLAIMS)
    }

    /// Sorted set: users with an open claim, by its deadline.
    pub fn pending(&self) -> Vec<u8> {
        self.key(PENDING)
    }

    /// Integer: raised whenever units come back.
    pub fn epoch(&self) -> Vec<u8> {
        self.key(EPOCH)
    }

    /// Integer: the last generation or transfer id given out.
    pub fn sequence(&self) -> Vec<u8> {
        self.key(SEQUENCE)
    }

    /// Hash: what has left for other shards, by target.
    pub fn transfers(&self) -> Vec<u8> {
        self.key("transfers")
    }

    /// Hash: the id of the last transfer that came, by lender.
    pub fn deposits(&self) -> Vec<u8> {
        self.key("deposits")
    }

    /// All that the shard's ledger is made of: every key but those of reserved and blocked users,
    /// which are lists from SQL.
    pub fn ledger(&self) -> [Vec<u8>; 7] {
        [
            self.stock(),
            self.claims(),
            self.pending(),
            self.epoch(),
            self.sequence(),
            self.transfers(),
            self.deposits(),
        ]
    }

    /// Appends the keys of what a claim reads and writes: stock, claims, pending, epoch, sequence.
    pub(crate) fn push_ledger_of_claims(&self, keys: &mut Arguments) {
        for name in [STOCK, CLAIMS, PENDING, EPOCH, SEQUENCE] {
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

    /// Set: users of this home shard and this [bucket](weir_sale::shard::bucket) with a reservation.
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
    fn all_keys_of_a_shard_carry_one_hash_tag() {
        let keys = ShardKeys::new("weir", &SaleId::new("s-1").unwrap(), 3);
        let [stock, claims, pending, epoch, sequence, transfers, deposits] = keys.ledger();
        for (key, name) in [
            (stock, "stock"),
            (claims, "claims"),
            (pending, "pending"),
            (epoch, "epoch"),
            (sequence, "sequence"),
            (transfers, "transfers"),
            (deposits, "deposits"),
            (keys.reserved(255), "reserved:255"),
            (keys.blocked(0), "blocked:0"),
        ] {
            assert_eq!(key, format!("weir:{{s-1:3}}:{name}").into_bytes());
        }
        assert_eq!(catalogue("weir"), b"weir:catalogue");
    }
}
