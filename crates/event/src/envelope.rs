//! The binary format of an event in the log.
//!
//! ```text
//! version · flags · received_ms · at_ms, from received_ms on · fingerprint (16 bytes)
//! · id · type · key · customer? · visitor? · network? (3 or 6 bytes) · count of topics · topics · attributes
//! ```
//!
//! Numbers are variable-length integers (LEB128, the signed one zigzag), and texts are prefixed by their lengths. Each
//! envelope has one encoding. A view with a customer takes about 120 bytes.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use weir_base::id::IdError;

use crate::address::Network;
use crate::consent::Consent;
use crate::event::{Attributes, Event};
use crate::fingerprint::Fingerprint;
use crate::json::canonical;
use crate::limits::{EVENT_LEN_MAX, TOPICS_MAX};
use crate::name::{CustomerId, EventId, EventType, KeyName, Topic, VisitorId};
use crate::stamps::Stamps;

/// The current version.
const VERSION: u8 = 1;

/// Maximum length of an envelope, in bytes: attributes, names and topics of maximum length, and some bytes for the
/// rest.
pub const ENVELOPE_LEN_MAX: usize = EVENT_LEN_MAX
    + EventId::LEN_MAX
    + EventType::LEN_MAX
    + KeyName::LEN_MAX
    + CustomerId::LEN_MAX
    + VisitorId::LEN_MAX
    + TOPICS_MAX * (Topic::LEN_MAX + 1)
    + 64;

const HAS_CUSTOMER: u8 = 1;
const HAS_VISITOR: u8 = 2;
const HAS_V4: u8 = 4;
const HAS_V6: u8 = 8;
const FLAGS: u8 = HAS_CUSTOMER | HAS_VISITOR | HAS_V4 | HAS_V6;

/// An accepted event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The event's id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// The customer, if known.
    pub customer: Option<CustomerId>,
    /// The browser or app.
    pub visitor: Option<VisitorId>,
    /// Event time by the gateway's clock, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Receipt time at the gateway, in milliseconds since the Unix epoch.
    pub received_ms: u64,
    /// The name of its write key.
    pub key: KeyName,
    /// The client's network.
    pub address: Option<Network>,
    /// Its topics.
    pub topics: Vec<Topic>,
    /// A JSON object without spaces, with members ordered by name.
    pub attributes: String,
    /// A hash of the client's data, to detect another event with the same id.
    pub fingerprint: Fingerprint,
}

/// What the origin decides about an event, in addition to its [`Stamps`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventAttribution {
    /// The customer: [`Event::customer_for`].
    pub customer: Option<CustomerId>,
    /// The event time: [`occurred_ms`](crate::clock::occurred_ms).
    pub at_ms: u64,
    /// The topics: [`Routes::topics`](crate::routes::Routes::topics).
    pub topics: Vec<Topic>,
}

/// Why an envelope is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The version is unknown.
    #[error("unsupported envelope version {0}, expected {VERSION}")]
    Version(u8),
    /// The bytes are truncated.
    #[error("the envelope is truncated")]
    CutOff,
    /// Extra bytes after the end.
    #[error("{0} bytes after the envelope")]
    Trailing(usize),
    /// This part is invalid.
    #[error("the envelope's {0} is invalid")]
    Bad(&'static str),
}

impl Envelope {
    /// The envelope of `event`. An anonymous one contains neither customer, visitor nor address.
    pub fn new(mut event: Event, stamps: &Stamps, decided: EventAttribution) -> Self {
        let is_anonymous = stamps.consent != Consent::Full;
        if is_anonymous {
            event.anonymise();
        }
        let attributes = canonical(&event.attributes);
        let fingerprint = event.fingerprint_with(&attributes);
        Self {
            id: event.id_for(&stamps.key, fingerprint),
            event_type: event.event_type,
            customer: decided.customer.filter(|_| !is_anonymous),
            visitor: event.visitor,
            at_ms: decided.at_ms,
            received_ms: stamps.received_ms,
            key: stamps.key.clone(),
            address: stamps.address.filter(|_| !is_anonymous),
            topics: decided.topics,
            attributes,
            fingerprint,
        }
    }

    /// The key for [`partition`](crate::partition::partition): the customer, else `g:` and the visitor, else the id.
    pub fn partition_key(&self) -> Cow<'_, str> {
        match (&self.customer, &self.visitor) {
            (Some(customer), _) => Cow::Borrowed(customer.as_str()),
            (None, Some(visitor)) => Cow::Owned(format!("g:{visitor}")),
            (None, None) => Cow::Borrowed(self.id.as_str()),
        }
    }

    /// The parsed attributes.
    ///
    /// # Errors
    /// If the stored attributes are invalid.
    pub fn read_attributes(&self) -> Result<Attributes, EnvelopeError> {
        serde_json::from_str(&self.attributes).map_err(|_| EnvelopeError::Bad("attributes"))
    }

    /// Encodes the envelope.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96 + self.attributes.len());
        self.encode_into(&mut out);
        out
    }

    /// Appends the encoding to `out`.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend([VERSION, self.flags()]);
        push_number(out, self.received_ms);
        push_number(out, zigzag(self.at_ms.wrapping_sub(self.received_ms)));
        out.extend(self.fingerprint.0);
        push_text(out, self.id.as_str());
        push_text(out, self.event_type.as_str());
        push_text(out, self.key.as_str());
        if let Some(customer) = &self.customer {
            push_text(out, customer.as_str());
        }
        if let Some(visitor) = &self.visitor {
            push_text(out, visitor.as_str());
        }
        match self.address {
            Some(Network::V4(octets)) => out.extend(octets),
            Some(Network::V6(octets)) => out.extend(octets),
            None => {}
        }
        push_number(out, self.topics.len() as u64);
        for topic in &self.topics {
            push_text(out, topic.as_str());
        }
        push_text(out, &self.attributes);
    }

    fn flags(&self) -> u8 {
        let customer = if self.customer.is_some() {
            HAS_CUSTOMER
        } else {
            0
        };
        let visitor = if self.visitor.is_some() {
            HAS_VISITOR
        } else {
            0
        };
        let network = match self.address {
            Some(Network::V4(_)) => HAS_V4,
            Some(Network::V6(_)) => HAS_V6,
            None => 0,
        };
        customer | visitor | network
    }

    /// Decodes the output of [`Envelope::encode`]. Any bytes are safe to decode.
    ///
    /// # Errors
    /// If the bytes are not an envelope.
    pub fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let mut reader = Reader { rest: bytes };
        let [version] = reader.array()?;
        if version != VERSION {
            return Err(EnvelopeError::Version(version));
        }
        let [flags] = reader.array()?;
        if flags & !FLAGS != 0 || flags & (HAS_V4 | HAS_V6) == HAS_V4 | HAS_V6 {
            return Err(EnvelopeError::Bad("flags"));
        }
        let has = |flag: u8| flags & flag != 0;
        let received_ms = reader.number("receipt")?;
        let at_ms = received_ms.wrapping_add(unzigzag(reader.number("time")?));
        let fingerprint = Fingerprint(reader.array()?);
        let envelope = Self {
            id: reader.name("id", |text| EventId::new(text))?,
            event_type: reader.name("type", |text| EventType::new(text))?,
            key: reader.name("key", |text| KeyName::new(text))?,
            customer: reader.optional(has(HAS_CUSTOMER), |reader| {
                reader.name("customer", |text| CustomerId::new(text))
            })?,
            visitor: reader.optional(has(HAS_VISITOR), |reader| {
                reader.name("visitor", |text| VisitorId::new(text))
            })?,
            address: match (has(HAS_V4), has(HAS_V6)) {
                (true, _) => Some(Network::V4(reader.array()?)),
                (_, true) => Some(Network::V6(reader.array()?)),
                _ => None,
            },
            topics: reader.topics()?,
            attributes: reader.attributes()?,
            at_ms,
            received_ms,
            fingerprint,
        };
        match reader.rest.len() {
            0 => Ok(envelope),
            count => Err(EnvelopeError::Trailing(count)),
        }
    }
}

/// A stored event.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
struct EventView<'a> {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    id: &'a EventId,
    /// Its registered type.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    event_type: &'a EventType,
    /// The signed-in customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, value_type = Option<String>))]
    customer: Option<&'a CustomerId>,
    /// The visitor id, from a cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, value_type = Option<String>))]
    visitor: Option<&'a VisitorId>,
    /// Event time by the gateway's clock, in milliseconds since the Unix epoch.
    at_ms: u64,
    /// Receipt time at the gateway, in milliseconds since the Unix epoch.
    received_ms: u64,
    /// Name of its write key.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    key: &'a KeyName,
    /// The client's address, truncated to /24 or /48.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    address: Option<String>,
    /// Its topics.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    topics: &'a [Topic],
    /// Its attributes.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    attributes: &'a RawValue,
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Envelope {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        EventView::schema()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Envelope {
    fn name() -> Cow<'static, str> {
        "Event".into()
    }
}

/// The JSON in API responses and deliveries.
impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let attributes = serde_json::from_str(&self.attributes);
        let view = EventView {
            id: &self.id,
            event_type: &self.event_type,
            customer: self.customer.as_ref(),
            visitor: self.visitor.as_ref(),
            at_ms: self.at_ms,
            received_ms: self.received_ms,
            key: &self.key,
            address: self.address.map(|network| format!("{network}")),
            topics: &self.topics,
            attributes: attributes.map_err(serde::ser::Error::custom)?,
        };
        view.serialize(serializer)
    }
}

/// Maps small numbers of both signs to small unsigned ones.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference.cast_signed() >> 63).cast_unsigned())
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        // Seven bits, and the flag that more follow.
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    push_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], EnvelopeError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(EnvelopeError::CutOff)?;
        self.rest = rest;
        Ok(*array)
    }

    fn number(&mut self, subject: &'static str) -> Result<u64, EnvelopeError> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            let is_last = byte & 0x80 == 0;
            // A number has one encoding: no bit is lost, and the last byte is not zero.
            let is_lost = bits << shift >> shift != bits;
            if is_lost || (is_last && byte == 0 && shift > 0) {
                break;
            }
            number |= bits << shift;
            if is_last {
                return Ok(number);
            }
        }
        Err(EnvelopeError::Bad(subject))
    }

    fn text(&mut self, subject: &'static str) -> Result<&'a [u8], EnvelopeError> {
        let length = usize::try_from(self.number(subject)?).map_err(|_| EnvelopeError::CutOff)?;
        let (text, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(EnvelopeError::CutOff)?;
        self.rest = rest;
        Ok(text)
    }

    fn name<T>(
        &mut self,
        subject: &'static str,
        read: impl FnOnce(&[u8]) -> Result<T, IdError>,
    ) -> Result<T, EnvelopeError> {
        read(self.text(subject)?).map_err(|_| EnvelopeError::Bad(subject))
    }

    fn optional<T>(
        &mut self,
        is_there: bool,
        read: impl FnOnce(&mut Self) -> Result<T, EnvelopeError>,
    ) -> Result<Option<T>, EnvelopeError> {
        is_there.then(|| read(self)).transpose()
    }

    fn topics(&mut self) -> Result<Vec<Topic>, EnvelopeError> {
        let count = self.number("topics")?;
        if count > TOPICS_MAX as u64 {
            return Err(EnvelopeError::Bad("topics"));
        }
        (0..count)
            .map(|_| self.name("topic", |text| Topic::new(text)))
            .collect()
    }

    fn attributes(&mut self) -> Result<String, EnvelopeError> {
        let text = core::str::from_utf8(self.text("attributes")?);
        text.ok()
            .filter(|text| text.len() <= EVENT_LEN_MAX)
            .map(String::from)
            .ok_or(EnvelopeError::Bad("attributes"))
    }
}

#[cfg(test)]
mod tests;
