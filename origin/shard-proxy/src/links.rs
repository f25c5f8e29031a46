//! Short links with a click limit. Their records are in edge objects; Redis stores a marker instead.
//!
//! Clicks are counted only where the link's record is. The marker is not a record: a gateway that reaches Redis without
//! the proxy cannot count clicks on it, and sends the request to the origin. Links without a click limit stay in Redis
//! unchanged.
//!
//! The proxy writes a change to the object before it writes to Redis, so the object exists when Redis points to it. If
//! the proxy crashes in between, it has acknowledged nothing, and the client repeats the command.

use weir_base::resp::{Value, decode, encode_command};
use weir_link::redis::keys::LinkKeys;

/// Marker in Redis for a record that an edge object stores.
pub(super) const IN_OBJECT: &[u8] = b"in-object";

const CLICKS: &[u8] = b":clicks";

/// How to execute a command on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send it to Redis; if the reply is the marker, send it to the object.
    Look,
    /// Send it to the object only.
    Object,
    /// Send it to the object, then send `count` commands to Redis. The first Redis reply counts.
    Both {
        commands: Vec<u8>,
        count: usize,
        joined: ReplyChoice,
    },
}

/// How to choose between the replies of the object and of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyChoice {
    /// Redis' reply.
    Redis,
    /// The object's reply, unless it is null; then Redis' reply.
    Object,
    /// Null if one of the two is null: the link already existed.
    New,
    /// The reply that reports a used click: the click was used in one of the two.
    Back,
}

/// Returns the link of a command, which is also the name of its object, and how to execute it. `None`: forward it to
/// Redis unchanged.
pub(super) fn on_link<'w>(prefix: &str, words: &[&'w [u8]]) -> Option<(&'w str, Step)> {
    let link = LinkKeys::of_command(prefix, words)?;
    let (name, key) = match words {
        [name @ (b"EVAL" | b"EVALSHA"), _, _, key, ..] => (*name, *key),
        [name, key, ..] => (*name, *key),
        _ => return None,
    };
    let as_it_is = |joined| {
        let mut commands = Vec::new();
        encode_command(&mut commands, words.iter().copied());
        Step::Both {
            commands,
            count: 1,
            joined,
        }
    };
    let step = match (key.strip_prefix(link.as_bytes())?, name) {
        (b"", b"GET" | b"EVAL" | b"EVALSHA") => Step::Look,
        (b"", b"SET") => written(link, words)?,
        (b"", b"UNLINK") | (CLICKS, b"UNLINK" | b"PEXPIRE" | b"PERSIST") => {
            as_it_is(ReplyChoice::Redis)
        }
        (CLICKS, b"EVAL" | b"EVALSHA") => as_it_is(ReplyChoice::Back),
        (CLICKS, b"GET") => as_it_is(ReplyChoice::Object),
        (CLICKS, b"SET") => Step::Object,
        _ => return None,
    };
    Some((link, step))
}

/// A written record. Objects get new records with a click limit, and every edit, because they may hold the earlier record.
fn written(link: &str, words: &[&[u8]]) -> Option<Step> {
    let (record, options) = words.get(2..)?.split_first()?;
    let is_limited = has_click_limit(record);
    if !is_limited && options.contains(&b"NX".as_slice()) {
        return None;
    }
    let (mut commands, mut count) = (Vec::new(), 1);
    let mut set = words.to_vec();
    if let Some(value) = set.get_mut(2).filter(|_| is_limited) {
        *value = IN_OBJECT;
    }
    encode_command(&mut commands, set);
    if is_limited {
        // Delete the old click count in Redis, in case the record later returns to Redis.
        let clicks = [link.as_bytes(), CLICKS].concat();
        encode_command(&mut commands, [b"UNLINK".as_slice(), &clicks]);
        count = 2;
    }
    Some(Step::Both {
        commands,
        count,
        joined: ReplyChoice::New,
    })
}

/// Whether a record, `<life_ms> <max_clicks> <json>`, has a click limit.
fn has_click_limit(record: &[u8]) -> bool {
    let limit = record.split(|byte| *byte == b' ').nth(1);
    limit.is_some_and(|digits| digits.iter().any(|digit| *digit != b'0'))
}

/// Whether Redis' reply is the marker of an edge object.
pub(super) fn leads_to_object(reply: &[u8]) -> bool {
    match decode(reply) {
        Ok((Value::Bulk(record), _)) => record == IN_OBJECT,
        Ok((Value::Array(values), _)) => {
            matches!(values.first(), Some(Value::Bulk(record)) if record == IN_OBJECT)
        }
        _ => false,
    }
}

/// Remaining life of a link, from the object's reply, in milliseconds. The marker in Redis gets the same expiry.
pub(super) fn lives_ms(reply: &[u8]) -> Option<u64> {
    let Ok((Value::Array(values), _)) = decode(reply) else {
        return None;
    };
    match values.get(1) {
        Some(Value::Integer(left_ms)) => u64::try_from(*left_ms).ok(),
        _ => None,
    }
}

/// Whether the reply is an error, which means that nothing ran.
pub(super) fn is_error(reply: &[u8]) -> bool {
    reply.first() == Some(&b'-')
}

impl ReplyChoice {
    /// Returns the chosen reply.
    pub(super) fn choose(self, object: Vec<u8>, redis: Vec<u8>) -> Vec<u8> {
        let is_nothing = matches!(decode(&object), Ok((Value::Null, _)));
        match self {
            _ if is_error(&redis) => redis,
            Self::Redis => redis,
            Self::Object if is_nothing => redis,
            Self::Object => object,
            Self::New if is_nothing => object,
            Self::New => redis,
            Self::Back if object == b":1\r\n" => object,
            Self::Back => redis,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &[u8] = b"weir:link:{s/abc}";
    const OF_LINK: &[u8] = b"weir:link:{s/abc}:clicks";

    fn step(words: &[&[u8]]) -> Option<Step> {
        let (link, step) = on_link("weir", words)?;
        assert_eq!(link.as_bytes(), LINK);
        Some(step)
    }

    #[test]
    fn limited_record_is_stored_in_object_and_marker_in_redis() {
        let new = step(&[b"SET", LINK, b"0 5 {}", b"PX", b"9", b"NX"]);
        let Some(Step::Both {
            commands, count, ..
        }) = new
        else {
            panic!("{new:?}");
        };
        let text = String::from_utf8(commands).unwrap();
        assert_eq!(count, 2);
        assert!(
            text.contains("in-object") && !text.contains("0 5 {}"),
            "{text}"
        );
        assert!(text.contains("PX") && text.contains("NX") && text.contains(":clicks"));
        // A new record without a click limit goes to Redis; an edit also goes to the object.
        assert_eq!(step(&[b"SET", LINK, b"0 0 {}", b"NX"]), None);
        let edit = step(&[b"SET", LINK, b"0 0 {}"]);
        let Some(Step::Both {
            commands, count, ..
        }) = edit
        else {
            panic!("{edit:?}");
        };
        assert_eq!(count, 1);
        assert!(String::from_utf8(commands).unwrap().contains("0 0 {}"));
    }

    #[test]
    fn reads_and_clicks_follow_the_record_to_its_object() {
        for words in [
            &[b"GET".as_slice(), LINK][..],
            &[b"EVALSHA", b"x", b"3", LINK],
        ] {
            assert_eq!(step(words), Some(Step::Look));
        }
        assert_eq!(step(&[b"SET", OF_LINK, b"3", b"NX"]), Some(Step::Object));
        for name in [b"PTTL".as_slice(), b"EXISTS"] {
            assert_eq!(step(&[name, LINK]), None);
        }
        assert_eq!(on_link("weir", &[b"GET", b"weir:link:domains"]), None);
    }

    #[test]
    fn object_and_redis_replies_are_merged_into_one() {
        let of = |joined: ReplyChoice, object: &[u8], redis: &[u8]| {
            String::from_utf8(joined.choose(object.to_vec(), redis.to_vec())).unwrap()
        };
        assert_eq!(of(ReplyChoice::New, b"$-1\r\n", b"+OK\r\n"), "$-1\r\n");
        assert_eq!(of(ReplyChoice::New, b"+OK\r\n", b"$-1\r\n"), "$-1\r\n");
        assert_eq!(of(ReplyChoice::New, b"+OK\r\n", b"+OK\r\n"), "+OK\r\n");
        assert_eq!(of(ReplyChoice::Back, b":1\r\n", b":0\r\n"), ":1\r\n");
        assert_eq!(of(ReplyChoice::Back, b":0\r\n", b":1\r\n"), ":1\r\n");
        assert_eq!(
            of(ReplyChoice::Back, b":1\r\n", b"-NOSCRIPT\r\n"),
            "-NOSCRIPT\r\n"
        );
        assert_eq!(
            of(ReplyChoice::Object, b"$-1\r\n", b"$1\r\n3\r\n"),
            "$1\r\n3\r\n"
        );
        assert!(leads_to_object(b"*3\r\n$9\r\nin-object\r\n:-1\r\n:-1\r\n"));
        assert!(leads_to_object(b"$9\r\nin-object\r\n"));
        assert!(!leads_to_object(b"$-1\r\n"));
        assert_eq!(lives_ms(b"*3\r\n$1\r\nx\r\n:77\r\n:2\r\n"), Some(77));
        assert_eq!(lives_ms(b"*3\r\n$1\r\nx\r\n:-1\r\n:2\r\n"), None);
    }
}
