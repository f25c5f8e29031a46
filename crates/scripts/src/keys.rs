//! Every key that Weir has in Redis.
//!
//! ```text
//! <prefix>:catalogue              JSON: the sales that gateways poll for
//! <prefix>:{<sale>:<shard>}:…     one shard of a sale; the hash tag puts all its keys in one slot
//! <prefix>:limit:rules            JSON: the rate limits that gateways poll for
//! <prefix>:limit:{<rule>:<hash>}  what one key of a rate limit has used
//! <prefix>:link:{<domain>/<code>} the record of a short link; with `:clicks` behind it, clicks used
//! <prefix>:link:domains           JSON: the domains that gateways poll for
//! <prefix>:link:changes           stream: the links that were edited, `l` = `<domain>/<code>`
//! <prefix>:link:segment:<length>  integer: numbers of that length that are reserved
//! <prefix>:link:wrap:<length>     held by who opens the next round through them
//! <prefix>:link:idem:{<hash>}     what was answered to an Idempotency-Key
//! <prefix>:link:clicks            stream: batches of clicks, `b` = id, `d` = payload
//! <prefix>:link:uv:{<link>}:…     HyperLogLogs: visitors and addresses of a link, by hour and day
//! <prefix>:link:uv:key:<day>      what visitors and addresses of a day are hashed with
//! <prefix>:link:clicks:refused    stream: batches that could not be read, for a day
//! ```
//!
//! The prefix (default [`DEFAULT_PREFIX`]) keeps several Weirs, or tests, on one Redis apart.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::id::SaleId;
use weir_link::code::{Length, LinkId};
use weir_resp::Arguments;
use weir_sale::ledger::Checks;

/// The key prefix unless one is configured.
pub const DEFAULT_PREFIX: &str = "weir";

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

    fn push(&self, name: &str, keys: &mut Arguments) {
        keys.push_joined(&[self.tag.as_bytes(), b":", name.as_bytes()]);
    }

    /// Set: users of this home shard and this [bucket](weir_sale::shard::bucket) with a reservation.
    pub fn reserved(&self, bucket: u32) -> Vec<u8> {
        self.key(&format!("{RESERVED}:{bucket}"))
    }

    /// Set: users of this home shard and this bucket who may not buy.
    pub fn blocked(&self, bucket: u32) -> Vec<u8> {
        self.key(&format!("{BLOCKED}:{bucket}"))
    }
}

/// The key of the document with the rate limits.
pub fn limit_rules(prefix: &str) -> Vec<u8> {
    format!("{prefix}:limit:rules").into_bytes()
}

/// The key of what one key of a rate limit has used: a string, see `limit_state.lua`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitKey(Vec<u8>);

impl LimitKey {
    /// The key of `rule`, which has no brace, and of a hash of what the rule tells clients apart by: Redis
    /// never holds what a client sent.
    pub fn new(prefix: &str, rule: &str, hash: [u8; 16]) -> Self {
        let hash = hex::encode(hash);
        Self(format!("{prefix}:limit:{{{rule}:{hash}}}").into_bytes())
    }

    /// The key as Redis takes it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The keys of one short link, in one slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKeys(String);

impl LinkKeys {
    /// The keys of `link`, in whose name there is no brace.
    pub fn new(prefix: &str, link: &LinkId) -> Self {
        Self(format!("{prefix}:link:{{{link}}}"))
    }

    /// String: the [record](weir_link::record). It expires when the link's life ends.
    pub fn record(&self) -> Vec<u8> {
        self.0.as_bytes().to_vec()
    }

    /// Integer: how many clicks were used, of a link that has only so many. Expires with the record.
    pub fn clicks(&self) -> Vec<u8> {
        format!("{}:clicks", self.0).into_bytes()
    }
}

/// The key of the document with the domains of short links: see [`weir_link::domain`].
pub fn link_domains(prefix: &str) -> Vec<u8> {
    format!("{prefix}:link:domains").into_bytes()
}

/// The stream of links that were edited: see [`streams::link_changes`](crate::streams::link_changes).
pub fn link_changes(prefix: &str) -> Vec<u8> {
    format!("{prefix}:link:changes").into_bytes()
}

/// The stream of [batches of clicks](weir_link::click): fields [`BATCH_ID`] and [`BATCH_ROWS`].
pub fn link_clicks(prefix: &str) -> Vec<u8> {
    format!("{prefix}:link:clicks").into_bytes()
}

/// The field of [`link_clicks`] with the batch's id.
pub const BATCH_ID: &[u8] = b"b";

/// The field of [`link_clicks`] with the batch's payload.
pub const BATCH_ROWS: &[u8] = b"d";

/// About so many batches are kept for statistics that do not read them.
pub const BATCHES_LEN: u64 = 100_000;

/// The stream of batches that could not be read.
pub fn link_clicks_refused(prefix: &str) -> Vec<u8> {
    format!("{prefix}:link:clicks:refused").into_bytes()
}

/// The key of what visitors and addresses are hashed with on one day of UTC, counted from the epoch.
pub fn link_uniques_secret(prefix: &str, day: u64) -> Vec<u8> {
    format!("{prefix}:link:uv:key:{day}").into_bytes()
}

/// The HyperLogLogs of one link for an hour and its day, all of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniquesKeys {
    tag: String,
    hour: u64,
    day: u64,
}

impl UniquesKeys {
    /// Those for the hour that is `hour` hours after the epoch.
    pub fn new(prefix: &str, link: &LinkId, hour: u64) -> Self {
        // Neither domain nor code has a brace.
        let tag = format!("{prefix}:link:uv:{{{link}}}");
        let day = hour / 24;
        Self { tag, hour, day }
    }

    /// The hour's visitors and addresses, then the day's.
    pub fn all(&self) -> [Vec<u8>; 4] {
        let Self { tag, hour, day } = self;
        [
            format!("{tag}:h{hour}:v").into_bytes(),
            format!("{tag}:h{hour}:a").into_bytes(),
            format!("{tag}:d{day}:v").into_bytes(),
            format!("{tag}:d{day}:a").into_bytes(),
        ]
    }
}

/// The counter of numbers of short links of one length: see [`weir_link::segment`].
pub fn link_segments(prefix: &str, length: Length) -> Vec<u8> {
    format!("{prefix}:link:segment:{length}").into_bytes()
}

/// Who holds this key opens the next round through the numbers of one length.
pub fn link_wrap(prefix: &str, length: Length) -> Vec<u8> {
    format!("{prefix}:link:wrap:{length}").into_bytes()
}

/// What was answered to an `Idempotency-Key`, by a hash of it: Redis never holds what a client sent.
pub fn link_idempotency(prefix: &str, hash: [u8; 16]) -> Vec<u8> {
    let hash = hex::encode(hash);
    format!("{prefix}:link:idem:{{{hash}}}").into_bytes()
}

/// Whether `prefix` may stand before Weir's keys: 1 to 64 of `a-z A-Z 0-9 - _ . :`. A brace would
/// take over the hash tag.
pub fn is_prefix(prefix: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
    (1..=64).contains(&prefix.len()) && prefix.bytes().all(allowed)
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

    #[test]
    fn a_limits_key_is_its_rule_and_a_hash() {
        let key = LimitKey::new(
            "weir",
            "per-user",
            *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff",
        );
        assert_eq!(
            key.as_bytes(),
            b"weir:limit:{per-user:000102030405060708090a0b0c0d0eff}"
        );
        assert_eq!(limit_rules("weir"), b"weir:limit:rules");
    }

    #[test]
    fn the_keys_of_a_link_carry_one_hash_tag() {
        let keys = LinkKeys::new("weir", &"s/aZ3k9Qx".parse().unwrap());
        assert_eq!(keys.record(), b"weir:link:{s/aZ3k9Qx}");
        assert_eq!(keys.clicks(), b"weir:link:{s/aZ3k9Qx}:clicks");
        assert_eq!(link_segments("weir", Length::MIN), b"weir:link:segment:5");
        assert_eq!(link_wrap("weir", Length::MAX), b"weir:link:wrap:8");
        let hash = "00000000000000000000000000000007";
        let idempotency = format!("weir:link:idem:{{{hash}}}");
        let key = link_idempotency("weir", 7_u128.to_be_bytes());
        assert_eq!(key, idempotency.into_bytes());
        assert_eq!(link_domains("weir"), b"weir:link:domains");
        assert_eq!(link_changes("weir"), b"weir:link:changes");
        assert_eq!(link_clicks("weir"), b"weir:link:clicks");
    }

    #[test]
    fn counts_of_one_link_share_a_slot() {
        let link = "s/aZ3-k_Q".parse().unwrap();
        let keys = UniquesKeys::new("weir", &link, 49).all();
        let names = ["h49:v", "h49:a", "d2:v", "d2:a"];
        for (key, name) in keys.into_iter().zip(names) {
            assert_eq!(
                key,
                format!("weir:link:uv:{{s/aZ3-k_Q}}:{name}").into_bytes()
            );
        }
    }

    #[test]
    fn a_prefix_cannot_take_over_the_hash_tag() {
        assert!(is_prefix("test.run_1:weir"));
        for bad in ["", "a{b", "a}", "a b", &"x".repeat(65)] {
            assert!(!is_prefix(bad), "{bad}");
        }
    }
}
