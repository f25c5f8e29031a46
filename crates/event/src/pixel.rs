//! The tracking pixel: one event as an image's query, for pages without scripts and for mails.
//!
//! ```text
//! GET /events.gif?key=…&type=view&visitor=v1&id=5f0c&at_ms=1700000000000&a.sku=a1&a.from=mail
//! ```
//!
//! Attributes are strings.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use percent_encoding::percent_decode;
use serde_json::Value;
use weir_base::id::IdError;

use crate::answer::{Reason, Rejection};
use crate::event::{Attributes, Event, check_length, invalid};
use crate::limits::{QUERY_ATTRIBUTES_MAX, QUERY_LEN_MAX};
use crate::name::{EventId, EventType, VisitorId};

/// The image: one transparent pixel.
pub const GIF: [u8; 43] = [
    b'G', b'I', b'F', b'8', b'9', b'a', 1, 0, 1, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x21, 0xf9, 4, 1,
    0, 0, 0, 0, 0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 1, 0, 0x3b,
];

/// Its `content-type`.
pub const CONTENT_TYPE: &str = "image/gif";

/// The query parameter of the write key.
pub const KEY: &[u8] = b"key";

/// The query parameter of the consent.
pub const CONSENT: &[u8] = b"consent";

/// The query parameter of the visitor, for sampling; in a pixel's query, also the event's visitor.
pub const VISITOR: &[u8] = b"visitor";

/// Parameters that are not part of the event. `_` prevents caching.
const OTHERS: [&[u8]; 3] = [KEY, CONSENT, b"_"];

/// The prefix of attribute names.
const ATTRIBUTE: &[u8] = b"a.";

/// The first value of `name` in a query, decoded.
pub fn parameter<'q>(query: &'q [u8], name: &[u8]) -> Option<Cow<'q, [u8]>> {
    pairs(query)
        .find(|(existing, _)| decoded(existing) == name)
        .map(|(_, value)| decoded(value))
}

/// A query without its parameters `name`.
pub fn without(query: &[u8], name: &[u8]) -> Vec<u8> {
    let others = query.split(|byte| *byte == b'&').filter(|pair| {
        let (existing, _) = split(pair);
        decoded(existing) != name
    });
    others.collect::<Vec<_>>().join(&b'&')
}

/// Parses the event of a query, the text after the `?`.
///
/// # Errors
/// If the event is invalid, with the location.
pub fn read(query: &[u8]) -> Result<Event, Rejection> {
    if query.len() > QUERY_LEN_MAX {
        let message = format!(
            "the query: has {} bytes, the maximum is {QUERY_LEN_MAX}",
            query.len()
        );
        return Err(Rejection::new(Reason::TooLarge, message));
    }
    let mut fields = Fields::default();
    for (name, value) in pairs(query) {
        let name = decoded(name);
        if !OTHERS.contains(&name.as_ref()) {
            fields.put(&text(&name, &name)?, text(&name, &decoded(value))?)?;
        }
    }
    fields.read()
}

/// The members found in a query.
#[derive(Default)]
struct Fields {
    id: Option<String>,
    event_type: Option<String>,
    visitor: Option<String>,
    at_ms: Option<String>,
    attributes: Attributes,
}

impl Fields {
    fn put(&mut self, name: &str, value: String) -> Result<(), Rejection> {
        if let Some(attribute) = name.as_bytes().strip_prefix(ATTRIBUTE) {
            // It was valid UTF-8 before the ASCII prefix was removed.
            let attribute = String::from_utf8_lossy(attribute).into_owned();
            return self.put_attribute(name, attribute, value);
        }
        let field = match name {
            "id" => &mut self.id,
            "type" => &mut self.event_type,
            "visitor" => &mut self.visitor,
            "at_ms" => &mut self.at_ms,
            _ => return Err(invalid(name, "is unknown; attributes start with `a.`")),
        };
        match field.replace(value) {
            None => Ok(()),
            Some(_) => Err(invalid(name, "appears twice")),
        }
    }

    fn put_attribute(&mut self, path: &str, name: String, value: String) -> Result<(), Rejection> {
        if self.attributes.insert(name, Value::String(value)).is_some() {
            return Err(invalid(path, "appears twice"));
        }
        if self.attributes.len() > QUERY_ATTRIBUTES_MAX {
            let problem = format!("exceeds the maximum of {QUERY_ATTRIBUTES_MAX} attributes");
            return Err(invalid(path, problem));
        }
        Ok(())
    }

    fn read(self) -> Result<Event, Rejection> {
        let wrong = |name| move |error: IdError| invalid(name, error);
        let event_type = self
            .event_type
            .ok_or_else(|| invalid("type", "is missing"))?;
        let number = |text: String| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| text.parse().ok()).flatten();
            number.ok_or_else(|| invalid("at_ms", "must be milliseconds since the Unix epoch"))
        };
        check_length(&self.attributes)?;
        let (id, visitor) = (self.id, self.visitor);
        Ok(Event {
            id: id
                .map(EventId::of_client)
                .transpose()
                .map_err(wrong("id"))?,
            event_type: EventType::new(event_type).map_err(wrong("type"))?,
            customer: None,
            visitor: visitor
                .map(VisitorId::new)
                .transpose()
                .map_err(wrong("visitor"))?,
            at_ms: self.at_ms.map(number).transpose()?,
            attributes: self.attributes,
        })
    }
}

fn pairs(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let pairs = query.split(|byte| *byte == b'&');
    pairs.filter(|pair| !pair.is_empty()).map(split)
}

fn split(pair: &[u8]) -> (&[u8], &[u8]) {
    let at = pair.iter().position(|byte| *byte == b'=');
    let (name, rest) = at
        .and_then(|at| pair.split_at_checked(at))
        .unwrap_or((pair, b""));
    (name, rest.get(1..).unwrap_or_default())
}

/// Decodes form encoding: `+` is a space.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'+') {
        return percent_decode(text).into();
    }
    let spaced: Vec<u8> = text
        .iter()
        .map(|byte| match byte {
            b'+' => b' ',
            other => *other,
        })
        .collect();
    let decoded: Cow<'_, [u8]> = percent_decode(&spaced).into();
    Cow::Owned(decoded.into_owned())
}

fn text(name: &[u8], bytes: &[u8]) -> Result<String, Rejection> {
    core::str::from_utf8(bytes)
        .map(String::from)
        .map_err(|_| invalid(&String::from_utf8_lossy(name), "is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn pixel_query_is_read_as_an_event() {
        let query = b"key=k&type=view&visitor=v1&id=5f0c&at_ms=17&a.sku=a%261&a.from=a+mail&_=9&consent=full";
        let json = r#"{"id":"5f0c","type":"view","visitor":"v1","at_ms":17,"attributes":{"sku":"a&1","from":"a mail"}}"#;
        assert_eq!(read(query).unwrap(), Event::read(json).unwrap());
        assert_eq!(
            read(b"&&type=view&").unwrap(),
            Event::read(r#"{"type":"view"}"#).unwrap()
        );
    }

    #[test]
    fn refusal_names_the_problem_and_the_field() {
        let check = |query: &str, expected: &str| {
            let rejection = read(query.as_bytes()).expect_err(query);
            assert_eq!(rejection.reason, Reason::Invalid);
            assert_eq!(rejection.message, expected);
        };
        check("", "type: is missing");
        check("type=View", "type: has an invalid byte at position 0");
        check("type=view&type=view", "type: appears twice");
        check("type=view&a.b=1&a.b=1", "a.b: appears twice");
        check(
            "type=view&colour=1",
            "colour: is unknown; attributes start with `a.`",
        );
        check(
            "type=view&customer=u1",
            "customer: is unknown; attributes start with `a.`",
        );
        check(
            "type=view&at_ms=1.5",
            "at_ms: must be milliseconds since the Unix epoch",
        );
        check(
            "type=view&at_ms=",
            "at_ms: must be milliseconds since the Unix epoch",
        );
        check(
            "type=view&at_ms=%2B5",
            "at_ms: must be milliseconds since the Unix epoch",
        );
        check("type=view&a.b=%ff", "a.b: is not UTF-8");
        let many: Vec<_> = (0..=QUERY_ATTRIBUTES_MAX)
            .map(|n| format!("a.{n}=1"))
            .collect();
        let rejection = read(format!("type=view&{}", many.join("&")).as_bytes()).unwrap_err();
        assert!(
            rejection.message.contains("exceeds the maximum"),
            "{rejection}"
        );
        let long = format!("type=view&a.b={}", "x".repeat(QUERY_LEN_MAX));
        assert_eq!(read(long.as_bytes()).unwrap_err().reason, Reason::TooLarge);
        // Each is stored as six.
        let controls = [b"type=view&a.b=".as_slice(), &[1; 8_000]].concat();
        assert_eq!(read(&controls).unwrap_err().reason, Reason::TooLarge);
    }

    #[test]
    fn query_parameter_is_found_and_removed() {
        let query = b"a=1&k%65y=s%2Bcret&b=2&key=x";
        assert_eq!(parameter(query, KEY).unwrap().as_ref(), b"s+cret");
        assert_eq!(without(query, KEY), b"a=1&b=2");
        assert_eq!(without(b"key=1", KEY), b"");
        assert_eq!(parameter(b"keys=1", KEY), None);
        assert_eq!(parameter(b"key", KEY).unwrap().as_ref(), b"");
    }

    #[test]
    fn pixel_image_is_a_one_pixel_gif() {
        assert_eq!(GIF.first_chunk::<10>().unwrap(), b"GIF89a\x01\0\x01\0");
        assert_eq!(GIF.last(), Some(&b';'));
    }

    proptest! {
        #[test]
        fn encoded_pixel_attributes_round_trip(name in ".{1,8}", value: String) {
            let encode = |text: &str| {
                percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
            };
            let query = format!("type=view&a.{}={}", encode(&name), encode(&value));
            let event = read(query.as_bytes()).unwrap();
            prop_assert_eq!(event.attributes.get(&name), Some(&Value::String(value)));
        }

        #[test]
        fn no_bytes_panic_the_reader(query: Vec<u8>) {
            let _ = read(&query);
            let rest = without(&query, KEY);
            prop_assert_eq!(parameter(&rest, KEY), None);
        }
    }
}
