//! The processing of one request at an edge.

use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;

use weir_base::FieldError;
use weir_base::headers::{CLAIM, EDGE, EDGE_SIGNATURE, is_gateway_only};
use weir_base::shared_data::SharedData;
use weir_base::stamp::{Stamp, StampHeaders};
use weir_engine::config::parse;
use weir_engine::event::PlainRequest;
use weir_engine::redis::Reply;
use weir_engine::{Answer, Headers, Request, setup};
use weir_limit::engine::Limiter;
use weir_link::engine::Links;
use weir_sale::engine::Gate;

use crate::click_limits::ClickLimits;
use crate::config::{CheckedConfig, Config, NO_CLAIMS};
use crate::engine_slot::{EngineSlot, EngineVerdict, Make};
use crate::host::{click_limits_are_elsewhere, stock_is_elsewhere};
use crate::knowledge::{Feed, Knowledge, TakeError};
use crate::object_calls::{EngineReply as Asked, ObjectCall, PendingRequest};
use crate::stock::Stock;
use crate::store::Store;

/// Memory for the counters of local limits.
pub type Data = Rc<dyn SharedData>;

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The edge answers.
    Answer(Arc<Answer>),
    /// It passes to a gateway with these headers, without pseudo-headers: `:method`, `:path` and `:authority` are
    /// unchanged.
    Forward(Pairs),
}

/// Looks up an environment variable.
pub type Variable = dyn Fn(&str) -> Option<Vec<u8>>;

/// Header names and values.
pub type Pairs = Vec<(String, Vec<u8>)>;

/// What a host supplies to create an edge.
pub struct EdgeSetup {
    /// Environment variables, for secrets.
    pub variable: Box<Variable>,
    /// A number that is hard to guess and unique to this instance.
    pub seed: u64,
    /// Memory for the counters of local limits; with [`LocalData`](weir_base::shared_data::LocalData), for this
    /// instance alone.
    pub data: Data,
    /// Whether this platform has [a shared counter](crate::exact).
    pub counts_exactly: bool,
}

/// An edge.
pub struct Edge<S> {
    config: CheckedConfig,
    knowledge: Knowledge<S>,
    limits: Option<EngineSlot<Limiter<Data>>>,
    gate: Option<EngineSlot<Gate<Data>>>,
    links: Option<EngineSlot<Links>>,
    stock: Option<Stock>,
    click_limits: Option<ClickLimits>,
}

/// The outcome of a request before calls to objects.
pub enum FirstOutcome {
    /// It is decided.
    Decided(Decision),
    /// It buys, or clicks a link with a click limit, and needs calls to objects.
    Asks(PendingRequest),
}

/// The outcome of a request after calls to objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The edge answers.
    Answer(Arc<Answer>),
    /// It has a claim, and passes to the origin. Report the origin's response with [`Edge::ended`].
    ///
    /// These are the headers, without pseudo-headers; the path is [`ORDERS`](crate::stock::ORDERS).
    ToOrigin(Pairs),
    /// It passes to a gateway, which decides from the start.
    ToGateway(Pairs),
}

/// Shared data for the creation of engines.
pub(crate) struct Host {
    setup: EdgeSetup,
    no_claims: Vec<u8>,
    /// The number of engine names issued.
    named: Cell<u64>,
}

impl Host {
    pub(crate) fn new(setup: EdgeSetup, config: &CheckedConfig) -> Self {
        Self {
            no_claims: config.no_claims(),
            named: Cell::default(),
            setup,
        }
    }
}

impl setup::Host for Host {
    type Data = Data;

    fn data(&self) -> Data {
        Rc::clone(&self.setup.data)
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            NO_CLAIMS => Some(self.no_claims.clone()),
            name => (self.setup.variable)(name),
        }
    }

    /// A name for an engine, which identifies its clicks. The seed is unique to this instance.
    fn unique_name(&self) -> String {
        let number = self.named.get();
        self.named.set(number + 1);
        format!("edge-{:016x}-{number}", self.setup.seed)
    }

    fn unguessable(&self) -> u64 {
        self.setup.seed
    }
}

/// Headers of one connection (RFC 9110, section 7.6.1), and headers that a host's own client sets.
const OF_CONNECTION: [&str; 8] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The header to which each proxy appends its peer.
const FORWARDED_FOR: &str = "x-forwarded-for";

impl<S: Store> Edge<S> {
    /// Creates an edge that uses the data in `store`.
    ///
    /// # Errors
    /// If a field is invalid, with its path.
    pub fn new(json: &[u8], setup: EdgeSetup, store: S) -> Result<Self, FieldError> {
        let config = Config::read(json, &setup.variable)?;
        if config.exact_limits.is_some() && !setup.counts_exactly {
            let problem = "this platform has no shared counters: leave limits to the gateways";
            return Err(FieldError::new("exact_limits", problem));
        }
        if config.stock.is_some() && !setup.counts_exactly {
            let problem = "this platform has no objects: leave sales to the gateways";
            return Err(FieldError::new("stock_in_objects", problem));
        }
        if config.click_limits.is_some() && !setup.counts_exactly {
            let problem =
                "this platform has no objects: leave links with a click limit to the gateways";
            return Err(FieldError::new("click_limits_in_objects", problem));
        }
        let host = Rc::new(Host::new(setup, &config));
        let click_limits = config
            .click_limits
            .as_ref()
            .map(|json| click_limits(json, &host));
        let stock = config.stock.as_ref().map(|json| stock(json, &host));
        let limits = config.limits.as_ref().map(|json| limiter(json, &host));
        let gate = config.gate.as_ref().map(|json| gate(json, &host));
        let links = config.links.as_ref().map(|json| links(json, &host));
        Ok(Self {
            limits: limits.transpose().map_err(within("limits"))?,
            gate: gate.transpose().map_err(within("gate"))?,
            links: links.transpose().map_err(within("links"))?,
            stock: stock.transpose().map_err(within("gate"))?,
            click_limits: click_limits.transpose().map_err(within("links"))?,
            knowledge: Knowledge::new(&config, store),
            config,
        })
    }

    /// Decides on a request, with the data from the feeds: see [`Edge::due`].
    pub fn decide(&mut self, request: &PlainRequest) -> Decision {
        let response = self.ask_limits(request);
        self.decided(response, request)
    }

    /// Like [`Edge::decide`], for a host with objects.
    pub fn begin(&mut self, request: &PlainRequest) -> FirstOutcome {
        self.knowledge.take_counted();
        let response = self.ask_limits(request);
        if response == EngineVerdict::GoesOn
            && let Some(started) = self.buy(request)
        {
            return started;
        }
        let decided = self.decided(response, request);
        match self.count(request) {
            Some(started) => started,
            None => FirstOutcome::Decided(decided),
        }
    }

    /// Starts a click on a link whose clicks an object counts, if an engine has read one. Without recent data from the
    /// origin, a gateway decides.
    fn count(&mut self, request: &PlainRequest) -> Option<FirstOutcome> {
        if !self.knowledge.take_counted() {
            return None;
        }
        let click_limits = self.click_limits.as_mut()?;
        match self.knowledge.click_limits_in_objects(request.now_ms)? {
            Some(prefix) if prefix == click_limits.key_prefix() => {
                let run = click_limits.begin(request, &self.knowledge)?;
                Some(FirstOutcome::Asks(PendingRequest::Clicks(Box::new(run))))
            }
            _ => Some(refused(click_limits_are_elsewhere())),
        }
    }

    fn decided(&mut self, of_limits: EngineVerdict, request: &PlainRequest) -> Decision {
        match self.ask(of_limits, request) {
            EngineVerdict::Answer(answer) => Decision::Answer(answer),
            EngineVerdict::GoesOn | EngineVerdict::Undecided => {
                Decision::Forward(self.outgoing(request))
            }
        }
    }

    fn ask_limits(&mut self, request: &PlainRequest) -> EngineVerdict {
        let knowledge = &self.knowledge;
        let limits = self.limits.as_mut();
        limits.map_or(EngineVerdict::GoesOn, |limits| {
            limits.ask(request, knowledge, true, |_| ())
        })
    }

    /// Runs the engines in order: each gets only requests that the previous one passed.
    fn ask(&mut self, of_limits: EngineVerdict, request: &PlainRequest) -> EngineVerdict {
        let (knowledge, now_ms) = (&self.knowledge, request.now_ms);
        let mut response = of_limits;
        if let (EngineVerdict::GoesOn, Some(gate)) = (&response, &mut self.gate) {
            let is_known = knowledge.knows_sales(now_ms);
            response = gate.ask(request, knowledge, is_known, Gate::trust_bands);
        }
        if let (EngineVerdict::GoesOn, Some(links)) = (&response, &mut self.links) {
            let is_known = knowledge.knows_links(now_ms);
            response = links.ask(request, knowledge, is_known, |_| ());
        }
        response
    }

    /// Starts a purchase, if objects contain the stock. Without recent data from the origin, a gateway decides.
    fn buy(&mut self, request: &PlainRequest) -> Option<FirstOutcome> {
        let stock = self.stock.as_mut()?;
        let text = |name: &str| request.headers.get(name).unwrap_or_default();
        if !stock.is_asked(&text(":method"), &text(":path")) {
            return None;
        }
        match self.knowledge.stock_in_objects(request.now_ms)? {
            Some(prefix) if prefix == stock.key_prefix() => {
                let run = stock.begin(request, &self.knowledge)?;
                Some(FirstOutcome::Asks(PendingRequest::Buys(Box::new(run))))
            }
            _ => Some(refused(stock_is_elsewhere())),
        }
    }

    /// Reports an object's reply to a call of this request, or its failure; the reason shows whether it may have run.
    pub fn answered(
        &self,
        pending: &mut PendingRequest,
        ask: &ObjectCall,
        reply: Reply,
        now_ms: u64,
    ) {
        match (pending, &self.stock, &self.click_limits) {
            (PendingRequest::Buys(run), Some(stock), _) => {
                run.answered(ask, reply, now_ms, &stock.call_router(&self.knowledge));
            }
            (PendingRequest::Clicks(run), _, Some(click_limits)) => {
                run.answered(
                    ask,
                    reply,
                    now_ms,
                    &click_limits.call_router(&self.knowledge),
                );
            }
            _ => {}
        }
    }

    /// The outcome of the request, once it needs no more calls.
    pub fn request_outcome(
        &self,
        pending: &PendingRequest,
        request: &PlainRequest,
    ) -> RequestOutcome {
        let response = match pending {
            PendingRequest::Buys(run) => run.reply(),
            PendingRequest::Clicks(run) => run.reply(),
        };
        match (response, pending) {
            (Some(Asked::Answer(answer)), _) => RequestOutcome::Answer(Arc::clone(answer)),
            (Some(Asked::GoesOn), PendingRequest::Buys(run)) if run.changes().has(CLAIM) => {
                RequestOutcome::ToOrigin(run.changes().apply(self.outgoing(request)))
            }
            _ => RequestOutcome::ToGateway(self.outgoing(request)),
        }
    }

    /// Ends the request. For one with a claim, `response_status` is that of the origin, or `None` if the result is
    /// uncertain. Further calls may be needed, which return unused claims or clicks.
    pub fn ended(&self, pending: &mut PendingRequest, response_status: Option<u16>, now_ms: u64) {
        match (pending, &self.stock, &self.click_limits) {
            (PendingRequest::Buys(run), Some(stock), _) => {
                run.closed(response_status, now_ms, &stock.call_router(&self.knowledge));
            }
            (PendingRequest::Clicks(run), _, Some(click_limits)) => {
                run.advance(now_ms, &click_limits.call_router(&self.knowledge));
            }
            _ => {}
        }
    }

    /// Releases a request that needs no more calls and no longer [owes](PendingRequest::owes) any.
    pub fn finish(&mut self, pending: PendingRequest) {
        match (pending, &mut self.stock, &mut self.click_limits) {
            (PendingRequest::Buys(run), Some(stock), _) => stock.finish(*run),
            (PendingRequest::Clicks(run), _, Some(click_limits)) => click_limits.finish(*run),
            _ => {}
        }
    }

    /// The headers of a request that passes: without headers that only gateways and edges send, and with the assertion.
    fn outgoing(&self, request: &PlainRequest) -> Pairs {
        let text = |name: &str| {
            let value = request.headers.get(name).unwrap_or_default();
            String::from_utf8_lossy(&value).into_owned()
        };
        let client = address_of(&request.peer_address());
        let signed = self.stamp(&text(":method"), &text(":path"), &client, request.now_ms);
        let mut headers: Pairs = request
            .headers
            .iter()
            .filter(|(name, _)| may_go_on(name))
            // With a known client, the header is rewritten.
            .filter(|(name, _)| client.is_empty() || *name != FORWARDED_FOR.as_bytes())
            .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.to_vec()))
            .collect();
        if !client.is_empty() {
            let before = request.headers.get(FORWARDED_FOR);
            let all = before
                .iter()
                .map(|before| &**before)
                .chain([client.as_bytes()]);
            headers.push((
                FORWARDED_FOR.into(),
                all.collect::<Vec<_>>().join(&b", "[..]),
            ));
        }
        headers.push((EDGE.into(), signed.value.into_bytes()));
        headers.push((EDGE_SIGNATURE.into(), signed.signature.into_bytes()));
        headers
    }

    /// The assertion of a request; the edge's own requests have no client.
    pub fn stamp(&self, method: &str, path: &str, client: &str, now_ms: u64) -> StampHeaders {
        let stamp = Stamp {
            at_ms: now_ms,
            edge: &self.config.edge,
            client,
            method,
            path,
        };
        stamp.sign(&self.config.keys)
    }

    /// Whether a holder of the edges' key has signed this request: its method, its path and the time.
    pub fn has_signed(
        &self,
        request: (&str, &str),
        (stamp, signature): (&[u8], &[u8]),
        now_ms: u64,
    ) -> bool {
        let text = core::str::from_utf8;
        let (Ok(stamp), Ok(signature)) = (text(stamp), text(signature)) else {
            return false;
        };
        Stamp::verify(&self.config.keys, stamp, signature, request, now_ms).is_ok()
    }

    /// The next due feed and its path. The host requests it from the origin, with a [stamp](Self::stamp), and passes
    /// the response to [`Edge::take`]. Repeat before each request until the result is `None`.
    pub fn due(&self, now_ms: u64) -> Option<(Feed, String)> {
        let mut feeds = Feed::ALL.into_iter();
        feeds.find_map(|feed| Some((feed, self.knowledge.due(feed, now_ms)?)))
    }

    /// Like [`Edge::due`], for one feed.
    pub fn due_of(&self, feed: Feed, now_ms: u64) -> Option<String> {
        self.knowledge.due(feed, now_ms)
    }

    /// See [`Knowledge::follow`].
    pub fn follow(&mut self) {
        self.knowledge.follow();
    }

    /// Reads the link of a request from the store, without changes: for a host with an asynchronous store.
    pub fn prepare(&mut self, request: &PlainRequest) {
        let is_known = self.knowledge.knows_links(request.now_ms);
        if let Some(links) = &mut self.links {
            links.ask(request, &self.knowledge, is_known, |_| ());
        }
    }

    /// Applies the origin's response.
    ///
    /// # Errors
    /// See [`TakeError`]. The existing data stays until it expires.
    pub fn take(
        &mut self,
        feed: Feed,
        status: u16,
        text: &[u8],
        now_ms: u64,
    ) -> Result<(), TakeError> {
        self.knowledge.take(feed, status, text, now_ms)
    }
}

pub(crate) fn within(part: &'static str) -> impl Fn(FieldError) -> FieldError {
    move |error| FieldError::new(format!("{part}.{}", error.path), error.problem)
}

pub(crate) fn limiter(
    json: &[u8],
    host: &Rc<Host>,
) -> Result<EngineSlot<Limiter<Data>>, FieldError> {
    let (json, host) = (json.to_vec(), Rc::clone(host));
    let make: Make<_> = Box::new(move || {
        let configured = weir_limit::engine::configure(&json, &*host, false)?;
        Ok(configured.engine)
    });
    EngineSlot::new(make)
}

fn gate(json: &[u8], host: &Rc<Host>) -> Result<EngineSlot<Gate<Data>>, FieldError> {
    let (json, host) = (json.to_vec(), Rc::clone(host));
    let make: Make<_> = Box::new(move || {
        let configured = weir_sale::engine::configure(&json, &*host)?;
        Ok(configured.engine)
    });
    EngineSlot::new(make)
}

/// The gate that sells from objects, with the gateways' claim secret.
fn stock(json: &[u8], host: &Rc<Host>) -> Result<Stock, FieldError> {
    let variable = |name: &str| setup::Host::variable(&**host, name);
    let config = parse::<weir_sale::engine::Config>(json)?.checked(&variable)?;
    let (routes, key_prefix) = (config.routes.clone(), config.redis.key_prefix.clone());
    let host = Rc::clone(host);
    let make: Make<_> = Box::new(move || Ok(Gate::new(config.clone(), &setup::Host::data(&*host))));
    Stock::new(make, routes, key_prefix)
}

fn links(json: &[u8], host: &Rc<Host>) -> Result<EngineSlot<Links>, FieldError> {
    EngineSlot::new(make_links(json, host))
}

/// The engine of links whose clicks objects count.
fn click_limits(json: &[u8], host: &Rc<Host>) -> Result<ClickLimits, FieldError> {
    let key_prefix = parse::<weir_link::engine::config::Config>(json)?;
    let key_prefix = key_prefix.redis.key_prefix;
    ClickLimits::new(make_links(json, host), key_prefix)
}

fn make_links(json: &[u8], host: &Rc<Host>) -> Make<Links> {
    let (json, host) = (json.to_vec(), Rc::clone(host));
    Box::new(move || {
        let configured = weir_link::engine::configure(&json, &*host)?;
        Ok(configured.engine)
    })
}

fn refused(answer: Answer) -> FirstOutcome {
    FirstOutcome::Decided(Decision::Answer(Arc::new(answer)))
}

fn may_go_on(name: &[u8]) -> bool {
    let is_of_connection = OF_CONNECTION
        .iter()
        .any(|existing| existing.as_bytes() == name);
    !name.starts_with(b":") && !is_gateway_only(name) && !is_of_connection
}

/// The address in `address:port`.
fn address_of(peer: &[u8]) -> String {
    let peer = String::from_utf8_lossy(peer);
    let address = peer.rsplit_once(':').map_or(&*peer, |(address, _)| address);
    let address = address.trim_matches(['[', ']']);
    // It is placed between semicolons.
    address.replace(';', "")
}

/// An answer as HTTP. Clients that use gRPC get its status and message in headers.
pub fn to_http(answer: &Answer) -> (u16, Pairs, Vec<u8>) {
    let pairs = |headers: &Headers| -> Pairs {
        let pair = |(name, value): (&[u8], &[u8])| {
            (String::from_utf8_lossy(name).into_owned(), value.to_vec())
        };
        headers.iter().map(pair).collect()
    };
    let mut headers = pairs(&answer.headers);
    let Some(grpc_status) = answer.grpc_status else {
        return (answer.status, headers, answer.body.clone());
    };
    headers.retain(|(name, _)| name != "content-type");
    headers.push(("content-type".into(), b"application/grpc".to_vec()));
    headers.push(("grpc-status".into(), grpc_status.to_string().into_bytes()));
    headers.push(("grpc-message".into(), answer.body.clone()));
    (200, headers, Vec::new())
}
