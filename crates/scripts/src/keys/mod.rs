//! Every key that Weir has in Redis.
//!
//! ```text
//! <prefix>:catalogue              JSON: the sales that gateways poll for
//! <prefix>:challenge:<name>       integer: when the token was minted that this solved challenge led to
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
//! <prefix>:h:{<owner>}:v          sorted set: products that a user or a guest has seen, by time; `:d` deleted ones by
//!                                 time, `:c` cleared up to then and what is loaded, `:n` count
//! <prefix>:h:active:<day>:{<tag>} set: owners of one slot whose lists changed on a day
//! <prefix>:fit:{<spu>}            hash: SKUs of a product to version and kind; with `:s:<sku>` behind it a set of offsets, with
//!                                 `:<segment>:<sku>` a bitmap of them
//! <prefix>:fit:route:{<tag>}:<n>  hash: SKU to version, cluster and SPU
//! <prefix>:fit:vehicles:{all}     text: generation, count and stamp of the map of vehicles; with `:<generation>:<segment>`
//!                                 behind it the ids of a segment, four bytes each
//! <prefix>:fit:by:{<vehicle>}     hash: pages of the SKUs that fit a vehicle
//! <prefix>:room:{<room>}:…        one waiting room: `state`, `setting`, `inside`, `waits`; in hashes `p:<bucket>` who has
//!                                 which place, `a:<bucket>` how many places addresses took
//! <prefix>:tally:<subject>:<min>  hash: what gateways have decided about limits or sales in a minute, name to count
//! <prefix>:write-check            text, for some seconds: Redis takes writes
//! ```
//!
//! The prefix (default [`DEFAULT_PREFIX`]) keeps several Weirs, or tests, on one Redis apart.

mod tally;

pub use tally::{tallies, tally};

/// The key prefix unless one is configured.
pub const DEFAULT_PREFIX: &str = "weir";

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
    fn a_prefix_cannot_take_over_the_hash_tag() {
        assert!(is_prefix("test.run_1:weir"));
        for bad in ["", "a{b", "a}", "a b", &"x".repeat(65)] {
            assert!(!is_prefix(bad), "{bad}");
        }
    }
}
