//! Decides which requests are views: successful requests on a route, by people.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;

use crate::consent::Consent;
use crate::name::{CustomerId, EventType, VisitorId};
use percent_encoding::percent_decode;
use serde::Serialize;
use weir_base::FieldError;
use weir_base::agent::UserAgent;
use weir_base::hash::seeded_hash;
use weir_engine::{Effects, Event, Request, StreamEnd, StreamId};

use crate::engine::config::{CheckedConfig, CheckedObserve, SignalsConfig};
use crate::engine::metrics::{EventCounters, Observed};
use crate::engine::outbox::Outbox;
use crate::engine::request::Fields;

/// Maximum open requests on observed routes, with about 300 bytes each.
const OPEN_MAX: usize = 10_000;

/// Maximum length of a captured attribute, in bytes.
const CAPTURE_LEN_MAX: usize = 64;

/// Maximum cached user agents, with about 20 bytes each: classification is the most expensive step.
const AGENTS_MAX: usize = 1_000;

/// A path with one segment in braces: `/products/{sku}`.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    before: String,
    /// The attribute name in the braces.
    pub(crate) attribute: String,
    after: String,
}

impl Pattern {
    pub(crate) fn new(path: &str, at: &str) -> Result<Self, FieldError> {
        let refuse = || {
            let problem = "must be a path with one segment in braces, such as /products/{sku}";
            FieldError::new(at, problem)
        };
        let (before, rest) = path.split_once('{').ok_or_else(refuse)?;
        let (attribute, after) = rest.split_once('}').ok_or_else(refuse)?;
        let is_name = |text: &str| {
            let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            (1..=CAPTURE_LEN_MAX).contains(&text.len()) && text.bytes().all(is_of_name)
        };
        let is_plain = |text: &str| {
            let is_of_path = |byte: u8| byte.is_ascii_graphic() && !b"?#{}".contains(&byte);
            text.bytes().all(is_of_path)
        };
        let is_segment = before.ends_with('/') && (after.is_empty() || after.starts_with('/'));
        let is_path = before.starts_with('/') && is_plain(before) && is_plain(after);
        match is_path && is_segment && is_name(attribute) {
            true => Ok(Self {
                before: before.into(),
                attribute: attribute.into(),
                after: after.into(),
            }),
            false => Err(refuse()),
        }
    }

    /// The path segment in the place of the braces, unchanged.
    pub(crate) fn find<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let rest = path.strip_prefix(self.before.as_bytes())?;
        let found = rest.strip_suffix(self.after.as_bytes())?;
        (!found.is_empty() && !found.contains(&b'/')).then_some(found)
    }
}

/// A view that counts if its request succeeds.
#[derive(Debug)]
struct Open {
    route: usize,
    text: String,
    customer: Option<CustomerId>,
    visitor: Option<VisitorId>,
    at_ms: u64,
}

/// The JSON of an event for the origin.
#[derive(Serialize)]
struct ObservedEvent<'a> {
    id: String,
    #[serde(rename = "type")]
    event_type: &'a EventType,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<CustomerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    visitor: Option<VisitorId>,
    at_ms: u64,
    attributes: BTreeMap<&'a str, &'a str>,
}

/// Watches requests on routes.
#[derive(Debug)]
pub(crate) struct Observer {
    config: CheckedObserve,
    user_header: String,
    signals: SignalsConfig,
    open: BTreeMap<StreamId, Open>,
    outbox: Outbox,
    agents: Agents,
    counters: Arc<EventCounters>,
}

impl Observer {
    pub(crate) fn new(
        observe: CheckedObserve,
        config: &CheckedConfig,
        unique_name: &str,
        seed: u64,
        counters: Arc<EventCounters>,
    ) -> Self {
        let key = observe.key.clone();
        let outbox = Outbox::new(
            observe.outbox.clone(),
            key,
            unique_name,
            Arc::clone(&counters),
        );
        Self {
            config: observe,
            user_header: config.user_header.clone(),
            signals: config.signals,
            open: BTreeMap::new(),
            outbox,
            agents: Agents::new(seed),
            counters,
        }
    }

    /// Handles a request without events. It always passes unchanged.
    pub(crate) fn on_request(
        &mut self,
        stream: StreamId,
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let mut routes = self.config.routes.iter().enumerate();
        let found = routes.find_map(|(route, (pattern, _))| Some((route, pattern.find(path)?)));
        let Some((route, text)) = found else {
            return effects.let_go(stream);
        };
        let fields = Fields::from_headers(request.headers());
        if fields.method != b"GET" {
            return effects.let_go(stream);
        }
        match self.watch(route, text, &fields, request) {
            Ok(open) => {
                self.open.insert(stream, open);
                effects.go_on(stream);
            }
            Err(observed) => {
                self.counters.observed.increment(observed);
                effects.let_go(stream);
            }
        }
    }

    fn watch(
        &mut self,
        route: usize,
        text: &[u8],
        fields: &Fields<'_>,
        request: &dyn Request,
    ) -> Result<Open, Observed> {
        if fields.is_prefetch {
            return Err(Observed::Prefetch);
        }
        if self.agents.is_bot(fields.user_agent) {
            return Err(Observed::Bot);
        }
        let consent = self.consent(fields);
        if consent == Consent::None {
            return Err(Observed::Dropped);
        }
        let text = percent_decode(text).decode_utf8().ok();
        let text = text.filter(|text| text.len() <= CAPTURE_LEN_MAX);
        let text = text.ok_or(Observed::Malformed)?;
        if self.open.len() >= OPEN_MAX {
            return Err(Observed::Overloaded);
        }
        let is_full = consent == Consent::Full;
        let customer = request.header(&self.user_header).filter(|_| is_full);
        let visitor = fields.visitor().map(Ok).or_else(|| {
            let cookie = fields.cookie(&self.config.visitor_cookie)?;
            Some(VisitorId::new(cookie))
        });
        Ok(Open {
            route,
            text: text.into_owned(),
            customer: customer.and_then(|name| CustomerId::new(name).ok()),
            visitor: visitor.and_then(Result::ok).filter(|_| is_full),
            at_ms: request.now_ms(),
        })
    }

    /// The person's consent, from cookie, header or signal. An invalid value counts as no consent, because nobody would
    /// see an error.
    fn consent(&self, fields: &Fields<'_>) -> Consent {
        let cookie = fields.cookie(&self.config.consent_cookie);
        let cookie = cookie.map(|word| Consent::from_label(word).unwrap_or(Consent::None));
        let header = fields.consent().unwrap_or(Some(Consent::None));
        let response = match (cookie, header) {
            (Some(cookie), Some(header)) => Some(cookie.and(header)),
            (cookie, header) => cookie.or(header),
        };
        response
            .unwrap_or(self.config.consent)
            .and(self.signals.consent(fields.has_gpc, fields.has_dnt))
    }

    pub(crate) fn handle(&mut self, event: &Event<'_>, effects: &mut Effects) {
        match event {
            Event::Closed { stream, end } => self.on_closed(*stream, *end, effects),
            Event::Undelivered { stream, .. } => {
                self.open.remove(stream);
            }
            Event::Tick { now_ms } => self.outbox.flush(*now_ms, effects),
            Event::FetchDone {
                fetch,
                response,
                now_ms,
            } => self
                .outbox
                .ended(*fetch, response.as_ref(), *now_ms, effects),
            _ => {}
        }
    }

    fn on_closed(&mut self, stream: StreamId, end: &dyn StreamEnd, effects: &mut Effects) {
        let Some(open) = self.open.remove(&stream) else {
            return;
        };
        let is_answered = matches!(end.response_status(), Some(200..=399));
        let route = self.config.routes.get(open.route).filter(|_| is_answered);
        let Some((pattern, event_type)) = route else {
            return self.counters.observed.increment(Observed::Failed);
        };
        self.counters.observed.increment(Observed::View);
        let sent = ObservedEvent {
            id: self.outbox.next_id(),
            event_type,
            customer: open.customer,
            visitor: open.visitor,
            at_ms: open.at_ms,
            attributes: BTreeMap::from([(pattern.attribute.as_str(), open.text.as_str())]),
        };
        // Strings and numbers always serialize.
        let json = serde_json::to_vec(&sent).unwrap_or_default();
        self.outbox.push(&json, end.now_ms(), effects);
    }

    pub(crate) fn tick_ms(&self) -> Option<u64> {
        self.outbox.tick_ms()
    }
}

/// A cache of which user agents are bots.
#[derive(Debug)]
struct Agents {
    seed: u64,
    cached: BTreeMap<u64, bool>,
}

impl Agents {
    /// `seed` must be unknown to clients.
    fn new(seed: u64) -> Self {
        let existing = BTreeMap::new();
        Self {
            seed,
            cached: existing,
        }
    }

    fn is_bot(&mut self, user_agent: &[u8]) -> bool {
        let key = seeded_hash(self.seed, user_agent);
        if let Some(is_bot) = self.cached.get(&key) {
            return *is_bot;
        }
        if self.cached.len() >= AGENTS_MAX {
            self.cached.clear();
        }
        let is_bot = UserAgent::new(user_agent).is_bot();
        self.cached.insert(key, is_bot);
        is_bot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(path: &str) -> Result<Pattern, FieldError> {
        Pattern::new(path, "path")
    }

    #[test]
    fn path_segment_is_found_at_its_position() {
        let check = |path: &str, request: &str, expected: Option<&str>| {
            let pattern = pattern(path).unwrap();
            let found = pattern.find(request.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{path} {request}");
        };
        check("/products/{sku}", "/products/a1", Some("a1"));
        check("/products/{sku}", "/products/", None);
        check("/products/{sku}", "/products/a1/", None);
        check("/products/{sku}", "/products/a1/b", None);
        check("/products/{sku}", "/product/a1", None);
        check("/p/{sku}/view", "/p/a1/view", Some("a1"));
        check("/p/{sku}/view", "/p/view", None);
        check("/p/{sku}/view", "/p//view", None);
        check("/{sku}", "/a%2Fb", Some("a%2Fb"));
    }

    #[test]
    fn invalid_path_pattern_is_refused() {
        for bad in [
            "",
            "/products",
            "products/{sku}",
            "/products/{}",
            "/products/{sku",
            "/products/x{sku}",
            "/products/{sku}x",
            "/{a}/{b}",
            "/products/{sku}?x",
            "/products/{s-k}",
        ] {
            assert_eq!(pattern(bad).unwrap_err().path, "path", "{bad}");
        }
        assert_eq!(pattern("/p/{sku}").unwrap().attribute, "sku");
    }

    #[test]
    fn user_agent_cache_is_bounded() {
        let mut agents = Agents::new(7);
        for n in 0..3 * AGENTS_MAX {
            let name = alloc::format!("Mozilla/5.0 (number {n})");
            assert!(!agents.is_bot(name.as_bytes()));
            assert!(agents.is_bot(b"Googlebot/2.1"));
            assert!(agents.cached.len() <= AGENTS_MAX);
        }
    }

    #[test]
    fn observed_view_serializes_as_an_event() {
        let sent = ObservedEvent {
            id: "o.1-2".into(),
            event_type: &EventType::new("view").unwrap(),
            customer: None,
            visitor: Some(VisitorId::new("v1").unwrap()),
            at_ms: 7,
            attributes: BTreeMap::from([("sku", "a\"1")]),
        };
        let json = serde_json::to_string(&sent).unwrap();
        let event = crate::event::Event::read(&json).unwrap();
        assert_eq!(event.attributes["sku"], "a\"1");
        assert_eq!((event.at_ms, event.customer), (Some(7), None));
    }
}
