//! The keys of Weir in Redis.
//!
//! ```text
//! <prefix>:catalogue              JSON: the sales that gateways poll for
//! <prefix>:challenge:<name>       integer: when the token for this solved challenge was minted
//! <prefix>:{<sale>:<shard>}:…     one shard of a sale; the hash tag puts all its keys in one slot
//! <prefix>:limit:rules            JSON: the rate limits that gateways poll for
//! <prefix>:limit:{<rule>:<hash>}  the usage of one key of a rate limit
//! <prefix>:link:{<domain>/<code>} the record of a short link; with the suffix `:clicks`, clicks used
//! <prefix>:link:domains           JSON: the domains that gateways poll for
//! <prefix>:link:changes           stream: edited links, `l` = `<domain>/<code>`
//! <prefix>:link:segment:<length>  integer: the reserved numbers of that length
//! <prefix>:link:wrap:<length>     lock for starting the next round through them
//! <prefix>:link:idem:{<hash>}     the stored response to an Idempotency-Key
//! <prefix>:link:clicks            stream: batches of clicks, `b` = id, `d` = payload
//! <prefix>:link:uv:{<link>}:…     HyperLogLogs: visitors and addresses of a link, by hour and day
//! <prefix>:link:uv:key:<day>      the secret that hashes visitors and addresses of a day
//! <prefix>:link:clicks:refused    stream: batches that could not be read, for a day
//! <prefix>:h:{<owner>}:v          sorted set: products that a user or a guest has viewed, by time; `:d` deleted ones by
//!                                 time, `:c` time of clearing and loaded parts, `:n` count
//! <prefix>:h:active:<day>:{<tag>} set: owners of one slot whose lists changed on a day
//! <prefix>:fit:{<spu>}            hash: SKUs of a product to version and kind; with the suffix `:s:<sku>` a set of
//!                                 offsets, with `:<segment>:<sku>` a bitmap of them
//! <prefix>:fit:route:{<tag>}:<n>  hash: SKU to version, cluster and SPU
//! <prefix>:fit:vehicles:{all}     text: generation, count and stamp of the vehicle map; with the suffix
//!                                 `:<generation>:<segment>` the ids of a segment, four bytes each
//! <prefix>:fit:by:{<vehicle>}     hash: pages of the SKUs that fit a vehicle
//! <prefix>:room:{<room>}:…        one waiting room: `state`, `setting`, `inside`, `waits`; hashes `p:<bucket>` with
//!                                 visitors' positions, `a:<bucket>` with positions per address
//! <prefix>:gateways:<min>         hash: what the engines of gateways run, as JSON, by reporter
//! <prefix>:tally:<subject>:<min>  hash: decision counts of gateways for limits or sales in a minute, by name
//! <prefix>:write-check            text, for some seconds: a test write
//! ```
//!
//! The prefix (default [`DEFAULT_PREFIX`]) separates several Weirs, or tests, on one Redis.

mod gateways;
mod tally;

pub use gateways::gateways;
pub use tally::{tallies, tally};

/// The default key prefix.
pub const DEFAULT_PREFIX: &str = "weir";

/// Whether `prefix` is allowed before Weir's keys: 1 to 64 of `a-z A-Z 0-9 - _ . :`. A brace would replace the hash
/// tag.
pub fn is_prefix(prefix: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
    (1..=64).contains(&prefix.len()) && prefix.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_prefix_cannot_override_the_hash_tag() {
        assert!(is_prefix("test.run_1:weir"));
        for bad in ["", "a{b", "a}", "a b", &"x".repeat(65)] {
            assert!(!is_prefix(bad), "{bad}");
        }
    }
}
