//! The keys of limits.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use percent_encoding::percent_decode;
use sha2::{Digest, Sha256};

use super::matching::{check_token, segments, without_query};
use super::{KeyPart, Request};
use weir_base::FieldError;
use weir_base::address::AddressGroup;

/// The maximum number of parts of a key.
pub const KEY_PARTS_MAX: usize = 8;

/// The maximum number of trusted proxies.
pub const HOPS_MAX: usize = 16;

/// The maximum number of inspected path segments.
const SEGMENTS_MAX: usize = 64;

/// The validated parts of a rule's key.
#[derive(Clone, Debug)]
pub(super) struct Parts(Vec<KeyPart>);

impl Parts {
    pub(super) fn new(mut parts: Vec<KeyPart>, at: &str) -> Result<Self, FieldError> {
        if parts.len() > KEY_PARTS_MAX {
            let problem = format!("must have at most {KEY_PARTS_MAX} parts");
            return Err(FieldError {
                path: at.into(),
                problem,
            });
        }
        for (index, part) in parts.iter_mut().enumerate() {
            check_part(part, &format!("{at}[{index}]"))?;
        }
        Ok(Self(parts))
    }

    /// The key of a request: equal only if all parts are equal.
    pub(super) fn for_request(&self, request: &impl Request) -> Vec<u8> {
        // Enough capacity for most keys, to avoid reallocation.
        let mut key = Vec::with_capacity(self.0.len() * 32);
        for part in &self.0 {
            append(&mut key, value(part, request).as_deref());
        }
        key
    }

    /// A key for operators: one text per part. Values that may identify a client or contain secrets appear only as a
    /// hash.
    pub(super) fn describe_key(&self, key: &[u8]) -> String {
        let mut rest = key;
        let mut texts = Vec::new();
        for part in &self.0 {
            let Some((value, behind)) = take(rest) else {
                break;
            };
            texts.push(value.map_or_else(|| "\u{2013}".into(), |value| describe_key(part, value)));
            rest = behind;
        }
        texts.join(", ")
    }

    pub(super) fn have_user(&self) -> bool {
        self.0.iter().any(|part| matches!(part, KeyPart::User))
    }

    /// The key of requests whose parts have these values.
    pub(super) fn named(&self, values: &[String], at: &str) -> Result<Vec<u8>, FieldError> {
        if self.0.is_empty() || values.len() != self.0.len() {
            let problem = match self.0.len() {
                0 => "the rule has no `key`, so it cannot list keys".into(),
                parts => format!("must have {parts} values, one per part of the rule's key"),
            };
            return Err(FieldError {
                path: at.into(),
                problem,
            });
        }
        let mut key = Vec::new();
        for (index, (part, text)) in self.0.iter().zip(values).enumerate() {
            let value = named_value(part, text).ok_or_else(|| FieldError {
                path: format!("{at}[{index}]"),
                problem: "must be an address, such as 192.0.2.1 or 2001:db8::1".into(),
            })?;
            append(&mut key, Some(&value));
        }
        Ok(key)
    }
}

fn check_part(part: &mut KeyPart, at: &str) -> Result<(), FieldError> {
    let refuse = |field: &str, problem: String| {
        Err(FieldError {
            path: format!("{at}.{field}"),
            problem,
        })
    };
    match part {
        KeyPart::Header(name) => {
            check_token(name, &format!("{at}.header"))?;
            name.make_ascii_lowercase();
            Ok(())
        }
        KeyPart::Cookie(name) => check_token(name, &format!("{at}.cookie")),
        KeyPart::Query(name) if name.is_empty() => {
            refuse("query", "must be a parameter name".into())
        }
        KeyPart::Segment(index) if *index >= SEGMENTS_MAX => {
            refuse("segment", format!("must be 0 to {}", SEGMENTS_MAX - 1))
        }
        KeyPart::Forwarded(config) if !(1..=HOPS_MAX).contains(&config.trusted_hops) => {
            refuse("forwarded.trusted_hops", format!("must be 1 to {HOPS_MAX}"))
        }
        _ => Ok(()),
    }
}

/// Appends length and bytes, so that different lists of values never have the same key. A missing value has a reserved
/// length.
fn append(key: &mut Vec<u8>, value: Option<&[u8]>) {
    let len = value.map_or(u32::MAX, |value| {
        u32::try_from(value.len()).unwrap_or(u32::MAX - 1)
    });
    key.extend_from_slice(&len.to_le_bytes());
    key.extend_from_slice(value.unwrap_or_default());
}

/// Splits a key from [`append`] into its first value and the rest.
fn take(key: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (len, rest) = key.split_first_chunk()?;
    match u32::from_le_bytes(*len) {
        u32::MAX => Some((None, rest)),
        len => {
            let (value, rest) = rest.split_at_checked(len as usize)?;
            Some((Some(value), rest))
        }
    }
}

/// The maximum number of shown characters per value.
const SHOWN_MAX: usize = 64;

fn describe_key(part: &KeyPart, value: &[u8]) -> String {
    let text = || {
        // A character has at most four bytes, and a client's value may be long.
        let beginning = value.get(..4 * SHOWN_MAX).unwrap_or(value);
        let text = String::from_utf8_lossy(beginning);
        text.chars().take(SHOWN_MAX).collect()
    };
    // A header, a cookie or a parameter may contain a password.
    let hash = |subject: &str, name: &str| {
        let digest: [u8; 32] = Sha256::digest(value).into();
        let [a, b, c, d, ..] = digest;
        format!("{subject} {name} #{:08x}", u32::from_be_bytes([a, b, c, d]))
    };
    match part {
        KeyPart::Address | KeyPart::Forwarded(_) => AddressGroup::of_key(value)
            .map_or_else(|| "no address".into(), |address| address.to_string()),
        KeyPart::User | KeyPart::Method | KeyPart::Segment(_) => text(),
        KeyPart::Header(name) => hash("header", name),
        KeyPart::Cookie(name) => hash("cookie", name),
        KeyPart::Query(name) => hash("query", name),
    }
}

fn value(part: &KeyPart, request: &impl Request) -> Option<Vec<u8>> {
    match part {
        KeyPart::Address => Some(AddressGroup::read(&request.address()).key().into()),
        KeyPart::Forwarded(config) => Some(forwarded(request, config.trusted_hops).key().into()),
        KeyPart::User => request.user().filter(|user| !user.is_empty()),
        KeyPart::Method => Some(request.method().into()),
        KeyPart::Header(name) => request.header(name),
        KeyPart::Cookie(name) => {
            cookie(&request.header("cookie")?, name.as_bytes()).map(Into::into)
        }
        KeyPart::Query(name) => query(request.path(), name.as_bytes()),
        KeyPart::Segment(index) => {
            let segment = segments(without_query(request.path())).nth(*index)?;
            Some(decoded(segment).into())
        }
    }
}

/// The value of a part from the configuration.
fn named_value(part: &KeyPart, text: &str) -> Option<Vec<u8>> {
    match part {
        KeyPart::Address | KeyPart::Forwarded(_) => match AddressGroup::read(text.as_bytes()) {
            AddressGroup::Other => None,
            group => Some(group.key().into()),
        },
        _ => Some(text.as_bytes().into()),
    }
}

/// The address that the outermost trusted proxy saw; the last address in the chain is the peer, which Envoy appends. A
/// chain that is too short or has no address there did not pass these proxies: then the peer's address counts.
pub fn forwarded(request: &impl Request, trusted_hops: usize) -> AddressGroup {
    let chain = request.header("x-forwarded-for").unwrap_or_default();
    let mut from_the_end = chain.rsplit(|byte| *byte == b',');
    let named = from_the_end.nth(trusted_hops);
    match named.map(|address| AddressGroup::read(address.trim_ascii())) {
        None | Some(AddressGroup::Other) => AddressGroup::read(&request.address()),
        Some(group) => group,
    }
}

/// The first cookie with this name in the header `cookie`.
pub fn cookie<'a>(header: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    // Several headers of one name are joined with commas.
    let mut pairs = header.split(|byte| matches!(byte, b';' | b','));
    pairs.find_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
}

fn query(path: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let start = path.iter().position(|byte| *byte == b'?')? + 1;
    let mut pairs = path.get(start..)?.split(|byte| *byte == b'&');
    pairs.find_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=');
        let (key, value) = pair.split_at(at.unwrap_or(pair.len()));
        let is_it = *decoded(key) == *name;
        is_it.then(|| decoded(value.strip_prefix(b"=").unwrap_or_default()).into())
    })
}

/// Decodes `%61` to `a`: otherwise each spelling would have a separate limit.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(text).into()
}
