//! The keys of short links.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::click::ClickId;
use crate::code::{Length, LinkId};
use weir_base::resp::Arguments;

const CLICKS: &str = ":clicks";

/// Bytes that a link's key takes on the wire besides the link: a suffix, usually a click ID, and framing.
const KEY_LEN_MORE: usize = 40;

/// The keys of one short link, in one slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKeys(String);

impl LinkKeys {
    /// The keys of `link`. Names of links contain no braces.
    pub fn new(prefix: &str, link: &LinkId) -> Self {
        let (domain, code) = (link.domain.as_str(), link.code.as_str());
        Self([prefix, ":link:{", domain, "/", code, "}"].concat())
    }

    /// The common prefix of a link's keys, from the first key of a command. That prefix is also the key of its record.
    /// `None` if the command is not about a link.
    pub fn of_command<'w>(prefix: &str, words: &[&'w [u8]]) -> Option<&'w str> {
        let key = match words {
            [b"EVAL" | b"EVALSHA", _, _, key, ..] => key,
            [_, key, ..] => key,
            _ => return None,
        };
        let end = key.iter().position(|byte| *byte == b'}')?;
        let record = core::str::from_utf8(key.get(..=end)?).ok()?;
        let link = record.strip_prefix(prefix)?.strip_prefix(":link:{")?;
        let link = link.strip_suffix('}')?.parse::<LinkId>();
        link.is_ok().then_some(record)
    }

    /// String: the [record](crate::record). It expires at the end of the link's lifetime.
    pub fn record(&self) -> Vec<u8> {
        self.0.as_bytes().to_vec()
    }

    /// Integer: the number of clicks used, for links with a click limit. It expires with the record.
    pub fn clicks(&self) -> Vec<u8> {
        [&self.0, CLICKS].concat().into_bytes()
    }

    /// The marker of one click on a link with a click limit: see `link_read.lua`. It expires.
    pub fn mark(&self, click: ClickId) -> Vec<u8> {
        format!("{}:click:{click}", self.0).into_bytes()
    }

    /// The keys of `link_read.lua`, built in one pass for speed.
    pub(crate) fn of_read(&self, click: Option<ClickId>) -> Arguments {
        let mut keys = Arguments::with_capacity(3 * (self.0.len() + KEY_LEN_MORE));
        keys.push(self.0.as_bytes());
        keys.push_joined(&[self.0.as_bytes(), CLICKS.as_bytes()]);
        if let Some(click) = click {
            let mut counter = [0; 16];
            // The counter has eight bytes, which are sixteen hexadecimal digits.
            let _ = hex::encode_to_slice(click.counter.to_be_bytes(), &mut counter);
            let mut sequence = itoa::Buffer::new();
            let sequence = sequence.format(click.sequence).as_bytes();
            keys.push_joined(&[self.0.as_bytes(), b":click:", &counter, b"-", sequence]);
        }
        keys
    }
}

/// The key of the document with the domains of short links: see [`crate::domain`].
pub fn link_domains(prefix: &str) -> Vec<u8> {
    format!("{prefix}:link:domains").into_bytes()
}

/// Text: the time up to which Redis has all edits of links, in milliseconds since the Unix epoch. A cluster has one per
/// node, distinguished by `number`.
pub fn link_mark(prefix: &str, number: u16) -> Vec<u8> {
    format!("{prefix}:link:mark:{{{number}}}").into_bytes()
}

/// The stream of edited links: see [`streams::link_changes`](crate::redis::link_changes).
pub fn link_changes(prefix: &str) -> Vec<u8> {
    format!("{prefix}:link:changes").into_bytes()
}

/// The stream of [batches of clicks](crate::click): fields [`BATCH_ID`] and [`BATCH_ROWS`].
pub fn link_clicks(prefix: &str) -> Vec<u8> {
    format!("{prefix}:link:clicks").into_bytes()
}

/// The field of [`link_clicks`] with the batch's id.
pub const BATCH_ID: &[u8] = b"b";

/// The field of [`link_clicks`] with the batch's payload.
pub const BATCH_ROWS: &[u8] = b"d";

/// Approximate maximum number of batches that the stream keeps if the statistics do not read them.
pub const BATCHES_LEN: u64 = 100_000;

/// The stream of batches that could not be read.
pub fn link_clicks_refused(prefix: &str) -> Vec<u8> {
    format!("{prefix}:link:clicks:refused").into_bytes()
}

/// The secret that hashes visitors and addresses on one UTC day, counted from the epoch.
pub fn link_uniques_secret(prefix: &str, day: u64) -> Vec<u8> {
    format!("{prefix}:link:uv:key:{day}").into_bytes()
}

/// The HyperLogLogs of one link for an hour and its day, in one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniquesKeys {
    tag: String,
    hour: u64,
    day: u64,
}

impl UniquesKeys {
    /// The keys for the given hour since the epoch.
    pub fn new(prefix: &str, link: &LinkId, hour: u64) -> Self {
        // Neither domain nor code contains a brace.
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

/// The counter of numbers of short links of one length: see [`crate::segment`].
pub fn link_segments(prefix: &str, length: Length) -> Vec<u8> {
    format!("{prefix}:link:segment:{length}").into_bytes()
}

/// The lock for starting the next round of numbers of one length.
pub fn link_wrap(prefix: &str, length: Length) -> Vec<u8> {
    format!("{prefix}:link:wrap:{length}").into_bytes()
}

/// The stored response to an `Idempotency-Key`, by its hash: Redis never contains the client's value.
pub fn link_idempotency(prefix: &str, hash: [u8; 16]) -> Vec<u8> {
    let hash = hex::encode(hash);
    format!("{prefix}:link:idem:{{{hash}}}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_link_share_one_hash_tag() {
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
    fn link_is_identified_from_a_redis_command() {
        let of = |words: &[&[u8]]| LinkKeys::of_command("weir", words).map(String::from);
        let link = Some("weir:link:{s/abc}".into());
        assert_eq!(of(&[b"GET", b"weir:link:{s/abc}"]), link);
        assert_eq!(
            of(&[b"EVAL", b"x", b"2", b"weir:link:{s/abc}:clicks"]),
            link
        );
        let others: [&[u8]; 5] = [
            b"weir:link:domains",
            b"weir:link:uv:{s/abc}:h1:v",
            b"weir:link:{sabc}",
            b"other:link:{s/abc}",
            b"weir:{s:0}:stock",
        ];
        for key in others {
            assert_eq!(of(&[b"GET", key]), None);
        }
        assert_eq!(of(&[b"PING"]), None);
    }

    #[test]
    fn read_command_contains_the_keys_of_its_link_and_click() {
        let keys = LinkKeys::new("weir", &"s/abc".parse().unwrap());
        let click = ClickId {
            counter: 0xab,
            sequence: u64::MAX,
        };
        let written = |click| Vec::from_iter(keys.of_read(click).iter().map(Vec::from));
        assert_eq!(written(None), [keys.record(), keys.clicks()]);
        let all = [keys.record(), keys.clicks(), keys.mark(click)];
        assert_eq!(written(Some(click)), all);
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
}
