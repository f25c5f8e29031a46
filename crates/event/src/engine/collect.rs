//! Decides on a request with events, without its body.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::address::Network;
use crate::answer::Answer as EventAnswer;
use crate::batch::CONTENT_ENCODINGS;
use crate::consent::Consent;
use crate::limits::BODY_LEN_MAX;
use crate::name::VisitorId;
use crate::pixel;
use crate::stamps::{Kind, Stamps};
use subtle::ConstantTimeEq;
use weir_base::address::AddressGroup;
use weir_base::headers::{EVENT_ADDRESS, EVENT_KEY, EVENT_KIND, RECEIVED_MS};
use weir_engine::{Answer, Request};

use crate::engine::answer::{RefusalReason, accepted, gif};
use crate::engine::config::{CheckedConfig, WriteKey};
use crate::engine::cors;
use crate::engine::metrics::Outcome;
use crate::engine::request::Fields;

/// Maximum length of an `Origin` that a response repeats, in bytes.
const PAGE_LEN_MAX: usize = 256;

/// Metadata headers that no client may send.
const FORGED: [&str; 4] = [EVENT_KEY, EVENT_KIND, RECEIVED_MS, EVENT_ADDRESS];

/// The endpoint of a request with events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectEndpoint {
    /// The path for `POST` requests.
    Body,
    /// The path of the tracking pixel.
    Pixel,
}

/// A request that passes if the limits allow it.
#[derive(Debug)]
pub(crate) struct AdmittedRequest {
    pub(crate) stamps: Stamps,
    /// The visitor, if the request contains one.
    pub(crate) visitor: Option<VisitorId>,
    /// Headers to remove first.
    pub(crate) removed: Vec<Cow<'static, str>>,
    /// Its path without gateway-only parameters, if it has any.
    pub(crate) path: Option<String>,
    /// The origin of the page that receives the response.
    pub(crate) page: Option<String>,
    /// Whether the client has sent metadata headers.
    pub(crate) is_forged: bool,
}

/// A request that the gateway answers itself.
#[derive(Debug)]
pub(crate) struct AnsweredRequest {
    pub(crate) outcome: Outcome,
    pub(crate) answer: Answer,
}

impl From<RefusalReason> for AnsweredRequest {
    fn from(refused: RefusalReason) -> Self {
        Self {
            outcome: refused.outcome(),
            answer: refused.answer(),
        }
    }
}

/// Decides on a request with events.
pub(crate) fn decide(
    config: &CheckedConfig,
    place: CollectEndpoint,
    fields: &Fields<'_>,
    request: &dyn Request,
) -> Result<AdmittedRequest, AnsweredRequest> {
    let page = fields.origin.and_then(page);
    let decided = match fields.wanted_method {
        Some(_) if fields.method == b"OPTIONS" && place == CollectEndpoint::Body => {
            Err(preflight(config, fields, page.as_deref()))
        }
        _ => Collect {
            config,
            place,
            fields,
            request,
        }
        .decide(page.as_deref()),
    };
    // Pages may read every refusal: it contains nothing confidential, and a page that cannot read it retries forever.
    decided.map_err(|answered| match &page {
        Some(page) if answered.outcome != Outcome::Preflight => AnsweredRequest {
            answer: cors::for_page(&answered.answer, page),
            ..answered
        },
        _ => answered,
    })
}

/// The value of `Origin`, if a response can repeat it.
fn page(origin: &[u8]) -> Option<String> {
    let text = core::str::from_utf8(origin).ok()?;
    let is_one = text.len() <= PAGE_LEN_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_one.then(|| text.to_string())
}

/// The answer to a preflight. It has no key header, so any key may allow the page, or the key in the query.
fn preflight(config: &CheckedConfig, fields: &Fields<'_>, page: Option<&str>) -> AnsweredRequest {
    let key = fields.write_key();
    let may_be = |existing: &&WriteKey| key.as_ref().is_none_or(|key| is_same(&existing.key, key));
    let mut keys = config.keys.iter().filter(may_be);
    let allowing = page.filter(|page| keys.any(|key| key.origins.allow(page.as_bytes())));
    match allowing {
        Some(page) => AnsweredRequest {
            outcome: Outcome::Preflight,
            answer: cors::preflight(page),
        },
        None => RefusalReason::OriginNotAllowed.into(),
    }
}

fn is_same(existing: &[u8], key: &[u8]) -> bool {
    existing.ct_eq(key).into()
}

struct Collect<'a> {
    config: &'a CheckedConfig,
    place: CollectEndpoint,
    fields: &'a Fields<'a>,
    request: &'a dyn Request,
}

impl Collect<'_> {
    fn decide(&self, page: Option<&str>) -> Result<AdmittedRequest, AnsweredRequest> {
        self.check_method()?;
        let key = self.key()?;
        self.check_page(key, page)?;
        if self.place == CollectEndpoint::Body {
            self.check_body()?;
        }
        let consent = self.consent(key)?;
        if consent == Consent::None {
            return Err(self.dropped(Outcome::Dropped, &EventAnswer::dropped()));
        }
        let address = self.fields.address(self.config.trusted_hops, self.request);
        let visitor = self.fields.visitor();
        if !is_kept(key, visitor.as_ref(), &address) {
            return Err(self.dropped(Outcome::Sampled, &EventAnswer::sampled()));
        }
        let is_anonymous = consent != Consent::Full;
        Ok(AdmittedRequest {
            stamps: Stamps {
                key: key.name.clone(),
                kind: key.kind,
                received_ms: self.request.now_ms(),
                address: Network::from_address(&address).filter(|_| !is_anonymous),
                consent,
            },
            visitor,
            removed: self.removed(is_anonymous),
            path: self.path()?,
            page: page.map(ToString::to_string),
            is_forged: self
                .fields
                .to_remove
                .iter()
                .any(|name| FORGED.contains(name)),
        })
    }

    fn check_method(&self) -> Result<(), RefusalReason> {
        let (method, allowed) = match self.place {
            CollectEndpoint::Body => (b"POST".as_slice(), "POST, OPTIONS"),
            CollectEndpoint::Pixel => (b"GET".as_slice(), "GET"),
        };
        match self.fields.method == method {
            true => Ok(()),
            false => Err(RefusalReason::Method { allowed }),
        }
    }

    /// Compares all keys, each in constant time, so that timing reveals nothing.
    fn key(&self) -> Result<&WriteKey, RefusalReason> {
        let sent = self.fields.write_key().unwrap_or_default();
        let mut found = None;
        for key in &self.config.keys {
            if is_same(&key.key, &sent) {
                found = Some(key);
            }
        }
        found.ok_or(RefusalReason::Unauthorized)
    }

    /// Servers send no `Origin`; nor do some browser requests, such as images.
    fn check_page(&self, key: &WriteKey, page: Option<&str>) -> Result<(), RefusalReason> {
        match (self.fields.origin, key.kind) {
            (None, _) => Ok(()),
            (Some(_), Kind::Server) => Err(RefusalReason::ServersKeyInPage),
            (Some(_), Kind::Browser) => page
                .filter(|page| key.origins.allow(page.as_bytes()))
                .map(|_| ())
                .ok_or(RefusalReason::OriginNotAllowed),
        }
    }

    fn check_body(&self) -> Result<(), RefusalReason> {
        let essence = self.fields.content_type.split(|byte| *byte == b';').next();
        let essence = essence.unwrap_or_default().trim_ascii();
        let is = |existing: &str| essence.eq_ignore_ascii_case(existing.as_bytes());
        // A beacon must be text to avoid a preflight.
        if !is("application/json") && !is("text/plain") {
            return Err(RefusalReason::ContentType);
        }
        let encoding = self.fields.content_encoding.unwrap_or(b"identity");
        let mut existing = CONTENT_ENCODINGS.iter();
        if !existing.any(|existing| encoding.eq_ignore_ascii_case(existing.as_bytes())) {
            return Err(RefusalReason::ContentEncoding);
        }
        let length = self
            .fields
            .content_length
            .ok_or(RefusalReason::LengthRequired)?;
        let length = core::str::from_utf8(length).ok();
        let length: Option<usize> = length.and_then(|length| length.parse().ok());
        match length {
            Some(0..=BODY_LEN_MAX) => Ok(()),
            _ => Err(RefusalReason::TooLong),
        }
    }

    /// The strictest consent of the person, the browser and the key's default.
    fn consent(&self, key: &WriteKey) -> Result<Consent, RefusalReason> {
        let signals = self.config.signals;
        let response = self.fields.consent().map_err(|_| RefusalReason::Consent)?;
        Ok(response
            .unwrap_or(key.consent)
            .and(signals.consent(self.fields.has_gpc, self.fields.has_dnt)))
    }

    fn dropped(&self, outcome: Outcome, answer: &EventAnswer) -> AnsweredRequest {
        let answer = match self.place {
            CollectEndpoint::Body => accepted(answer),
            CollectEndpoint::Pixel => gif(),
        };
        AnsweredRequest { outcome, answer }
    }

    fn removed(&self, is_anonymous: bool) -> Vec<Cow<'static, str>> {
        let there = self.fields.to_remove.iter();
        let mut removed: Vec<Cow<'static, str>> = there.map(|name| Cow::Borrowed(*name)).collect();
        let user_header = &self.config.user_header;
        if is_anonymous && self.request.header(user_header).is_some() {
            removed.push(Cow::Owned(user_header.clone()));
        }
        removed
    }

    /// The path without the write key, which must not appear in logs behind the gateway.
    fn path(&self) -> Result<Option<String>, RefusalReason> {
        let (Some(query), Some(collect)) = (self.fields.query(), &self.config.collect) else {
            return Ok(None);
        };
        if self.place == CollectEndpoint::Body {
            return Ok(Some(collect.path.clone()));
        }
        let query = pixel::without(query, pixel::KEY);
        let query = pixel::without(&query, pixel::CONSENT);
        let query = String::from_utf8(query)
            .ok()
            .filter(|query| query.is_ascii());
        let query = query.ok_or(RefusalReason::Query)?;
        Ok(Some([&collect.pixel_path, "?", &query].concat()))
    }
}

/// Whether the sample contains these events, by visitor or else by address.
fn is_kept(key: &WriteKey, visitor: Option<&VisitorId>, address: &[u8]) -> bool {
    let group;
    let subject = match visitor {
        Some(visitor) => visitor.as_str().as_bytes(),
        None => {
            group = AddressGroup::read(address).key();
            &group
        }
    };
    key.sample.keeps(key.name.as_str(), subject)
}
