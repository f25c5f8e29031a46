//! One event as its client sent it.
//!
//! ```json
//! {"id": "5f0c…", "type": "view", "customer": "u1", "visitor": "v1", "at_ms": 1700000000000, "attributes": {"sku": "a1"}}
//! ```
//!
//! Only `type` is required. The schema of a type defines its attributes.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};

use serde::Deserialize;
use serde_json::Value;

use crate::answer::{Reason, Rejection};
use crate::fingerprint::Fingerprint;
pub use crate::json::Attributes;
use crate::json::{canonical, inexact_number, nesting_of};
use crate::limits::{EVENT_LEN_MAX, NESTING_MAX};
use crate::name::{CustomerId, EventId, EventType, KeyName, VisitorId};
use crate::stamps::Kind;

/// A well-formed event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The id, if the client gives one.
    pub id: Option<EventId>,
    /// The type.
    pub event_type: EventType,
    /// The customer, if a server gives one.
    pub customer: Option<CustomerId>,
    /// The browser or app.
    pub visitor: Option<VisitorId>,
    /// Event time by the client's clock, in milliseconds since the Unix epoch.
    pub at_ms: Option<u64>,
    /// The attributes: at most [`EVENT_LEN_MAX`] bytes of JSON.
    pub attributes: Attributes,
}

/// An event from a client.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
struct Members<'a> {
    /// The event id; default: generated.
    #[serde(borrow)]
    #[cfg_attr(
        feature = "openapi",
        schema(nullable = false, pattern = "^[A-Za-z0-9._:-]{1,64}$")
    )]
    id: Option<Cow<'a, str>>,
    /// Its registered type.
    #[serde(borrow, rename = "type")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^[a-z0-9_.-]{1,64}$"))]
    event_type: Cow<'a, str>,
    /// The customer; only with a server key.
    #[serde(borrow)]
    #[cfg_attr(feature = "openapi", schema(nullable = false, max_length = 128))]
    customer: Option<Cow<'a, str>>,
    /// The visitor id, from a cookie.
    #[serde(borrow)]
    #[cfg_attr(feature = "openapi", schema(nullable = false, max_length = 128))]
    visitor: Option<Cow<'a, str>>,
    /// Event time by the client's clock, in milliseconds since the Unix epoch.
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    at_ms: Option<u64>,
    /// Its attributes.
    #[cfg_attr(feature = "openapi", schema(nullable = false, value_type = Option<Object>))]
    attributes: Option<Attributes>,
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Event {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        Members::schema()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Event {
    fn name() -> Cow<'static, str> {
        "NewEvent".into()
    }
}

/// The location of a value in an event, such as `/attributes/user/id`: a JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pointer(String);

/// The text is not a location in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a JSON pointer of at most 256 bytes that starts with /attributes/, such as /attributes/user"
)]
pub struct PointerError;

impl Pointer {
    /// Maximum length, in bytes.
    pub const LEN_MAX: usize = 256;

    const START: &'static str = "/attributes";

    /// Checks a pointer.
    ///
    /// # Errors
    /// If the pointer is invalid, or does not lead into the attributes.
    pub fn new(text: impl Into<String>) -> Result<Self, PointerError> {
        let text = text.into();
        let rest = text.strip_prefix(Self::START);
        // Only these may follow `~` (RFC 6901, section 3).
        let is_escaped = |part: &str| part.starts_with(['0', '1']);
        let is_one = rest
            .is_some_and(|rest| rest.starts_with('/') && rest.split('~').skip(1).all(is_escaped));
        match is_one && text.len() <= Self::LEN_MAX {
            true => Ok(Self(text)),
            false => Err(PointerError),
        }
    }

    /// The pointer as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value at this location.
    pub fn find<'a>(&self, attributes: &'a Attributes) -> Option<&'a Value> {
        let rest = self.0.strip_prefix(Self::START)?.strip_prefix('/')?;
        let (first, rest) = match rest.split_once('/') {
            Some((first, _)) => (first, rest.get(first.len()..).unwrap_or_default()),
            None => (rest, ""),
        };
        let first = first.replace("~1", "/").replace("~0", "~");
        attributes.get(&first)?.pointer(rest)
    }
}

impl TryFrom<String> for Pointer {
    type Error = PointerError;

    fn try_from(text: String) -> Result<Self, PointerError> {
        Self::new(text)
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> Self {
        pointer.0
    }
}

impl Event {
    /// Parses an event's JSON.
    ///
    /// # Errors
    /// If the event is invalid, with the location.
    pub fn read(json: &str) -> Result<Self, Rejection> {
        if json.len() > EVENT_LEN_MAX {
            return Err(too_large("the event", json.len()));
        }
        // The parser would also accept a list of the members.
        if !json.trim_ascii_start().starts_with('{') {
            return Err(Rejection::new(Reason::Invalid, "must be an object"));
        }
        let mut reader = serde_json::Deserializer::from_str(json);
        let members: Members<'_> = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| unreadable(&error.path().to_string(), error.inner()))?;
        reader.end().map_err(|error| unreadable(".", &error))?;
        if let Some(path) = inexact_number(json) {
            let problem = "the number has too many digits: send it as a string";
            return Err(invalid(&path, problem));
        }
        Self::new(members)
    }

    fn new(members: Members<'_>) -> Result<Self, Rejection> {
        let attributes = members.attributes.unwrap_or_default();
        // The event itself is one level.
        if nesting_of(&attributes) >= NESTING_MAX {
            let problem = format!("arrays and objects are nested deeper than {NESTING_MAX}");
            return Err(invalid("attributes", problem));
        }
        check_length(&attributes)?;
        let wrong = |name| move |error: weir_base::id::IdError| invalid(name, error);
        let id = members.id.as_deref();
        let customer = members.customer.as_deref();
        let visitor = members.visitor.as_deref();
        Ok(Self {
            id: id
                .map(EventId::of_client)
                .transpose()
                .map_err(wrong("id"))?,
            event_type: EventType::new(members.event_type.as_ref()).map_err(wrong("type"))?,
            customer: customer
                .map(CustomerId::new)
                .transpose()
                .map_err(wrong("customer"))?,
            visitor: visitor
                .map(VisitorId::new)
                .transpose()
                .map_err(wrong("visitor"))?,
            at_ms: members.at_ms,
            attributes,
        })
    }

    /// Removes the identity. Attributes stay: their content is the site's responsibility.
    pub fn anonymise(&mut self) {
        self.customer = None;
        self.visitor = None;
    }

    /// A hash that distinguishes events. The order of members does not matter.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint_with(&canonical(&self.attributes))
    }

    pub(crate) fn fingerprint_with(&self, attributes: &str) -> Fingerprint {
        let at_ms = self.at_ms.map(u64::to_be_bytes);
        let text = |text: &'static str| Some(text.as_bytes());
        let customer = self.customer.as_ref().map(|name| name.as_str().as_bytes());
        let visitor = self.visitor.as_ref().map(|name| name.as_str().as_bytes());
        Fingerprint::from_fields([
            text("weir-event-1"),
            Some(self.event_type.as_str().as_bytes()),
            customer,
            visitor,
            at_ms.as_ref().map(<[u8; 8]>::as_slice),
            Some(attributes.as_bytes()),
        ])
    }

    /// The client's id, or else one derived from the key and the fingerprint, so that retries have the same id.
    pub fn id_for(&self, key: &KeyName, fingerprint: Fingerprint) -> EventId {
        if let Some(id) = &self.id {
            return id.clone();
        }
        let fields = [key.as_str().as_bytes(), &fingerprint.0].map(Some);
        EventId::derived(Fingerprint::from_fields(fields))
    }

    /// The customer of the event. `user` is the signed-in user from the gateway. `place` is an additional location of
    /// the customer in events of this type.
    ///
    /// A server key may name any customer: by `customer`, or else at `place`. A browser key is public, so only the
    /// gateway's user counts. A browser's event may name that same customer.
    ///
    /// # Errors
    /// If a browser's event names another customer, or if the value at `place` is invalid.
    pub fn customer_for(
        &self,
        kind: Kind,
        user: Option<&CustomerId>,
        place: Option<&Pointer>,
    ) -> Result<Option<CustomerId>, Rejection> {
        match (kind, &self.customer) {
            (Kind::Browser, Some(named)) if Some(named) != user => Err(Rejection::new(
                Reason::CustomerNotAllowed,
                "customer: only server keys may set it; authenticate the user at the gateway instead",
            )),
            (Kind::Browser, _) => Ok(user.cloned()),
            (Kind::Server, Some(named)) => Ok(Some(named.clone())),
            (Kind::Server, None) => place.map_or(Ok(None), |place| self.customer_at(place)),
        }
    }

    fn customer_at(&self, place: &Pointer) -> Result<Option<CustomerId>, Rejection> {
        let name = match place.find(&self.attributes) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(name)) => CustomerId::new(name),
            Some(Value::Number(number)) if !number.is_f64() => CustomerId::new(number.to_string()),
            Some(_) => return Err(invalid(place.as_str(), "must be a string or an integer")),
        };
        name.map(Some)
            .map_err(|error| invalid(place.as_str(), error))
    }
}

/// The id of a possibly invalid event, for its verdict.
pub fn id_of(json: &str) -> Option<EventId> {
    #[derive(Deserialize)]
    struct OnlyId<'a> {
        #[serde(borrow)]
        id: Option<Cow<'a, str>>,
    }
    let members: OnlyId<'_> = serde_json::from_str(json).ok()?;
    EventId::of_client(members.id?.as_ref()).ok()
}

/// Checks the length after parsing: numbers and strings may have grown.
pub(crate) fn check_length(attributes: &Attributes) -> Result<(), Rejection> {
    match canonical(attributes).len() {
        0..=EVENT_LEN_MAX => Ok(()),
        length => Err(too_large("attributes", length)),
    }
}

fn too_large(subject: &str, length: usize) -> Rejection {
    let message = format!("{subject}: has {length} bytes, the maximum is {EVENT_LEN_MAX}");
    Rejection::new(Reason::TooLarge, message)
}

pub(crate) fn invalid(path: &str, problem: impl core::fmt::Display) -> Rejection {
    Rejection::new(Reason::Invalid, format!("{path}: {problem}"))
}

/// `path` is `.` for the whole event.
fn unreadable(path: &str, error: &serde_json::Error) -> Rejection {
    match path {
        "." => Rejection::new(Reason::Invalid, error.to_string()),
        path => invalid(path, error),
    }
}

#[cfg(test)]
pub(crate) mod tests;
