//! `weir.fast_path`: a network filter before Envoy's HTTP connection manager. It answers requests that an engine can
//! decide from their heads alone.
//!
//! Other bytes reach the connection manager unchanged, and the HTTP filter of the same engine decides. The fast path
//! ignores a connection until the connection manager's response ends. If it cannot find that end, it ignores the
//! connection permanently.
//!
//! | module | |
//! |---|---|
//! | [`head`] | parses canonical requests |
//! | [`exchange`] | finds the end of a response of the connection manager |
//! | [`answer`] | writes an answer as Envoy does |
//! | [`address`] | the client's address |
//! | [`counts`] | counters and the latency histogram |
//! | [`access_log`] | the access log |

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::Deserialize;
use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine::{Answer, EarlyDecision, Headers, Request};
use weir_envoy_abi::{self as abi, Connection, ReadStatus};

use crate::engine_host::EngineHost;
use crate::filters::{guard, worker_index};
use crate::shared::now_ms;

pub mod access_log;
pub mod address;
pub mod answer;
pub mod counts;
pub mod exchange;
pub mod head;

use access_log::{AccessLog, AccessLogSettings, LoggedRequest};
use address::AddressRules;
use exchange::{Exchange, Progress};
use head::{Head, Header, Received};

/// The name of the filter in Envoy's configuration.
pub const NAME: &str = "weir.fast_path";

/// The longest time without a request to the HTTP stack, whose timers and drain need regular requests.
const HTTP_PERIOD: Duration = Duration::from_secs(30);

/// The header with the addresses of proxies and client.
const FORWARDED: &str = "x-forwarded-for";

/// Whether Envoy drains its connections or shuts down. It never returns from that.
static IS_DRAINING: AtomicBool = AtomicBool::new(false);

/// From now on, the HTTP stack answers everything, because it closes connections gracefully.
pub fn drain() {
    IS_DRAINING.store(true, Ordering::Relaxed);
}

/// The first bytes of an HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2";

/// The filter's configuration, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The `native.name` of each HTTP filter that may answer, in the order of the connection manager.
    ask: Vec<String>,
    /// Whether the user header of a received request is final, because no filter of this listener sets it. Otherwise the fast
    /// path answers only what holds for every user.
    #[serde(default)]
    trusts_user_header: bool,
    /// The same as in the connection manager.
    #[serde(default = "yes")]
    use_remote_address: bool,
    /// Requests with one of these headers use the HTTP stack, because another filter reads the header: `origin` for CORS.
    #[serde(default)]
    pass_headers: Vec<String>,
    /// One of this many answerable requests uses the HTTP stack, as a sample for its access log and statistics. Default: 100.
    #[serde(default = "default_sample")]
    sample_of: u32,
    /// The same as in the connection manager.
    #[serde(default = "default_server_name")]
    server_name: String,
    /// The same as in the connection manager.
    #[serde(default)]
    xff_num_trusted_hops: u32,
    /// The same as in the connection manager.
    #[serde(default)]
    skip_xff_append: bool,
    /// The access log. Default: none.
    access_log: Option<AccessLogSettings>,
}

impl Settings {
    fn address_rules(&self) -> AddressRules {
        AddressRules {
            use_remote_address: self.use_remote_address,
            trusted_hops: self.xff_num_trusted_hops,
        }
    }
}

fn yes() -> bool {
    true
}

fn default_sample() -> u32 {
    100
}

fn default_server_name() -> String {
    "envoy".to_owned()
}

/// One configuration.
#[derive(Debug)]
pub struct FastPath {
    settings: Settings,
    filters: Arc<AskedFilters>,
    access_log: Option<AccessLog>,
    /// Whether a missing filter was logged.
    has_logged_missing: AtomicBool,
}

impl FastPath {
    /// # Errors
    /// Names the field that is wrong.
    pub fn new(json: &[u8]) -> Result<Self, FieldError> {
        let mut settings: Settings = parse(json)?;
        if settings.ask.is_empty() {
            return Err(FieldError::new(
                "ask",
                "must name a filter: its `native.name`",
            ));
        }
        if settings.sample_of < 2 {
            return Err(FieldError::new("sample_of", "must be 2 or more"));
        }
        for name in &mut settings.pass_headers {
            name.make_ascii_lowercase();
        }
        let access_log = settings.access_log.as_ref().map(AccessLog::open);
        let access_log = access_log.transpose()?.flatten();
        let filters = Arc::new(AskedFilters::new(&settings.ask));
        *newest() = Arc::downgrade(&filters);
        Ok(Self {
            settings,
            filters,
            access_log,
            has_logged_missing: AtomicBool::new(false),
        })
    }

    /// The engines of this thread, in configuration order; empty if one of them is missing.
    fn hosts(&self) -> Vec<Arc<EngineHost>> {
        let found = self.filters.hosts();
        if found.is_none() && !self.has_logged_missing.swap(true, Ordering::Relaxed) {
            let text = format!(
                "{NAME}: this listener lacks an HTTP filter with one of the native.name {:?}, so Envoy's HTTP stack answers everything",
                self.settings.ask
            );
            abi::log(abi::Level::Warn, &text);
        }
        found.unwrap_or_default()
    }
}

/// The HTTP filters that one fast path may ask, each with its engines once Envoy has made it.
///
/// The engines are dropped with the filter's configuration.
#[derive(Debug)]
struct AskedFilters(Vec<(String, OnceLock<Vec<Weak<EngineHost>>>)>);

impl AskedFilters {
    fn new(names: &[String]) -> Self {
        let names = names.iter().map(|name| (name.clone(), OnceLock::new()));
        Self(names.collect())
    }

    /// Whether a filter with this name was still missing.
    fn bind(&self, name: &str, hosts: &[Arc<EngineHost>]) -> bool {
        let mut requested = self.0.iter().filter(|(requested, _)| requested == name);
        let hosts = hosts.iter().map(Arc::downgrade).collect();
        requested
            .next()
            .is_some_and(|(_, of)| of.set(hosts).is_ok())
    }

    /// The engines of this thread, in the order of their filters; none if one of them is missing.
    fn hosts(&self) -> Option<Vec<Arc<EngineHost>>> {
        let of_filter = |(_, hosts): &(String, OnceLock<Vec<Weak<EngineHost>>>)| {
            let hosts = hosts.get()?;
            hosts.get(worker_index() % hosts.len().max(1))?.upgrade()
        };
        self.0.iter().map(of_filter).collect()
    }
}

/// The filters of the fast path that was configured last.
fn newest() -> MutexGuard<'static, Weak<AskedFilters>> {
    static NEWEST: Mutex<Weak<AskedFilters>> = Mutex::new(Weak::new());
    NEWEST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the fast path of the same listener ask the engines of an HTTP filter.
///
/// Envoy makes the filters of a listener one after another, so a filter belongs to the fast path that was configured last. A
/// filter whose name that one does not ask belongs to another listener: from then on, the fast path gets no more filters. Two
/// listeners can therefore use the same name, and never answer for each other.
pub fn register(name: &str, hosts: &[Arc<EngineHost>]) {
    let mut newest = newest();
    let is_bound = newest
        .upgrade()
        .is_some_and(|filters| filters.bind(name, hosts));
    if !is_bound {
        *newest = Weak::new();
    }
}

/// The reader of a connection's next bytes.
#[derive(Debug)]
enum Reader {
    /// The fast path reads the next request.
    Fast,
    /// The HTTP stack is answering a request.
    Http(Exchange),
    /// The HTTP stack reads the rest of the connection.
    Lost,
}

/// One connection of a client.
pub struct FastConnection {
    config: Arc<FastPath>,
    hosts: Vec<Arc<EngineHost>>,
    /// The client's address, as `address:port`.
    address: String,
    is_tls: bool,
    reader: RefCell<Reader>,
    /// Whether the bytes being sent are an answer of the fast path.
    is_sending: Cell<bool>,
    /// Whether the write buffer has passed its high watermark.
    is_congested: Cell<bool>,
    /// Answers since the last request to the HTTP stack.
    answered: Cell<u32>,
    /// The time of that request, or of the connection's start.
    http_at: Cell<Instant>,
    /// Whether the HTTP stack has received bytes. Its first bytes decide between HTTP/1 and HTTP/2.
    has_http_begun: Cell<bool>,
}

/// The decision on the received bytes.
enum Step {
    /// The buffer is empty.
    Nothing,
    /// Take this many bytes, and send these.
    Answered(usize, Vec<u8>),
    /// Pass the bytes to the HTTP stack.
    GoOn(Reader),
    /// Send these bytes and close the connection.
    Refused(Vec<u8>),
}

impl FastConnection {
    /// Creates the state of a new connection.
    pub fn new(config: &Arc<FastPath>, connection: &Connection<'_>) -> Self {
        let hosts = config.hosts();
        let reader = match hosts.is_empty() {
            true => Reader::Lost,
            false => Reader::Fast,
        };
        Self {
            config: Arc::clone(config),
            hosts,
            address: connection.remote_address(),
            is_tls: connection.is_tls(),
            reader: RefCell::new(reader),
            is_sending: Cell::new(false),
            is_congested: Cell::new(false),
            answered: Cell::new(0),
            http_at: Cell::new(Instant::now()),
            has_http_begun: Cell::new(false),
        }
    }

    /// Handles received bytes. `is_last`: the client closed its side.
    pub fn received(&self, mut connection: Connection<'_>, is_last: bool) -> ReadStatus {
        let is_fast = matches!(*self.reader.borrow(), Reader::Fast);
        // Before a response has ended, more bytes may be a body or the next request.
        if !is_fast || is_last {
            self.reader.replace(Reader::Lost);
            return ReadStatus::Continue;
        }
        match connection.with_received(|bytes| self.step(bytes)) {
            Step::Nothing => ReadStatus::Stop,
            Step::Answered(length, bytes) => {
                connection.take(length);
                self.is_sending.set(true);
                connection.send(&bytes);
                self.is_sending.set(false);
                ReadStatus::Stop
            }
            Step::GoOn(reader) => {
                self.reader.replace(reader);
                self.has_http_begun.set(true);
                ReadStatus::Continue
            }
            Step::Refused(bytes) => {
                self.reader.replace(Reader::Lost);
                connection.send(&bytes);
                connection.close();
                ReadStatus::Stop
            }
        }
    }

    fn step(&self, bytes: &[u8]) -> Step {
        if bytes.is_empty() {
            return Step::Nothing;
        }
        // The HTTP stack would switch to HTTP/2, although the connection began as HTTP/1.
        if !self.has_http_begun.get() && self.answered.get() > 0 && bytes.starts_with(HTTP2_PREFACE)
        {
            let answer = answer::bad_request(&self.config.settings.server_name, now_ms());
            return Step::Refused(answer);
        }
        // The HTTP stack stops reading when a client does not read, and announces the end of connections in a drain.
        if self.is_congested.get() || IS_DRAINING.load(Ordering::Relaxed) {
            return Step::GoOn(Reader::Lost);
        }
        let (length, is_head) = match head::read(bytes) {
            Received::Unclear => return Step::GoOn(Reader::Lost),
            Received::Whole { length, is_head } => (length, is_head),
            Received::Plain(head) => {
                // The HTTP stack decides how far it reads a pipeline.
                let is_alone = head.length == bytes.len();
                if is_alone && let Some(bytes) = self.answer(&head) {
                    self.answered.set(self.answered.get().saturating_add(1));
                    return Step::Answered(head.length, bytes);
                }
                (head.length, false)
            }
        };
        self.answered.set(0);
        self.http_at.set(Instant::now());
        if let Some(host) = self.hosts.first() {
            host.common().fast_path.passed();
        }
        Step::GoOn(match bytes.len() == length {
            true => Reader::Http(Exchange::new(is_head)),
            false => Reader::Lost,
        })
    }

    /// Whether the next answerable request goes to the HTTP stack as a sample.
    fn is_sample(&self, now: Instant) -> bool {
        self.answered.get().saturating_add(1) >= self.config.settings.sample_of
            || now.duration_since(self.http_at.get()) >= HTTP_PERIOD
    }

    /// The bytes of the answer to a request, if an engine decides it.
    fn answer(&self, head: &Head<'_>) -> Option<Vec<u8>> {
        let arrived = Instant::now();
        let settings = &self.config.settings;
        let passes =
            |(name, _): &Header<'_>| settings.pass_headers.iter().any(|pass| *pass == **name);
        if self.is_sample(arrived) || head.headers.iter().any(passes) {
            return None;
        }
        let request = self.request(head);
        let (host, answer) = self.decide(&request)?;
        let bytes = answer::bytes(&answer, &settings.server_name, request.now_ms);
        let counts = &host.common().fast_path;
        if let Some(log) = &self.config.access_log
            && !log.answered(&logged(head, &request), &answer)
        {
            counts.log_line_dropped();
        }
        counts.answered(&answer, arrived.elapsed());
        Some(bytes)
    }

    /// The first decision of an engine, and that engine.
    fn decide(&self, request: &FastRequest<'_>) -> Option<(&EngineHost, Arc<Answer>)> {
        for host in &self.hosts {
            let mut decided = EarlyDecision::Undecided;
            guard(host, |host| {
                decided = host.decide_early(request, self.config.settings.trusts_user_header);
            });
            match decided {
                EarlyDecision::Answer(answer) => return Some((host, answer)),
                EarlyDecision::NotConcerned => {}
                EarlyDecision::Undecided => return None,
            }
        }
        None
    }

    /// The request as the HTTP filter would receive it.
    fn request(&self, head: &Head<'_>) -> FastRequest<'_> {
        let settings = &self.config.settings;
        let rules = settings.address_rules();
        let appends = settings.use_remote_address && !settings.skip_xff_append;
        let is_forwarded = |(name, _): &&Header<'_>| name == FORWARDED;
        let received = head.headers.iter().filter(is_forwarded);
        let received: Vec<&[u8]> = received.map(|(_, value)| *value).collect();
        let joined = (!received.is_empty()).then(|| received.join(&b","[..]));
        let scheme: &[u8] = if self.is_tls { b"https" } else { b"http" };
        let mut headers: Vec<(&str, &[u8])> = vec![
            (":authority", head.host),
            (":path", head.path.as_bytes()),
            (":method", head.method.as_bytes()),
            (":scheme", scheme),
        ];
        let others = head.headers.iter();
        let others = others.filter(|header| !appends || !is_forwarded(header));
        headers.extend(others.map(|(name, value)| (&**name, *value)));
        let mut appended = joined.clone().unwrap_or_default();
        if appends {
            // As the connection manager does.
            if joined.is_some() {
                appended.push(b',');
            }
            appended.extend(ip(&self.address).bytes());
            headers.push((FORWARDED, &appended));
        }
        FastRequest {
            headers: Headers::new(&headers),
            address: rules.client(&self.address, joined.as_deref()),
            now_ms: now_ms(),
        }
    }

    /// Observes bytes that are about to be sent to the client.
    pub fn sent(&self, connection: &Connection<'_>) {
        if self.is_sending.get() {
            return;
        }
        let mut reader = self.reader.borrow_mut();
        let next = match &mut *reader {
            Reader::Http(exchange) => match connection.with_sent(|bytes| exchange.sent(bytes)) {
                Progress::More => return,
                Progress::Done => Reader::Fast,
                Progress::Lost => Reader::Lost,
            },
            // An unexpected write, for example before the HTTP stack closes the connection.
            Reader::Fast | Reader::Lost => Reader::Lost,
        };
        *reader = next;
    }

    /// The write buffer passed its high watermark.
    pub fn congested(&self) {
        self.is_congested.set(true);
    }

    /// A hook panicked: leaves the connection to the HTTP stack.
    pub fn panicked(&self) {
        self.is_sending.set(false);
        if let Ok(mut reader) = self.reader.try_borrow_mut() {
            *reader = Reader::Lost;
        }
    }
}

/// A request that has not reached the HTTP stack.
struct FastRequest<'a> {
    headers: Headers,
    address: Cow<'a, str>,
    now_ms: u64,
}

/// The address of `address:port`, without brackets.
fn ip(address: &str) -> &str {
    let ip = address.rsplit_once(':').map_or("", |(ip, _)| ip);
    ip.trim_start_matches('[').trim_end_matches(']')
}

/// The request for the access log.
fn logged<'a>(head: &'a Head<'_>, request: &'a FastRequest<'_>) -> LoggedRequest<'a> {
    let mut headers = head.headers.iter();
    let traceparent = headers.find(|(name, _)| name == "traceparent");
    LoggedRequest {
        method: head.method,
        path: head.path,
        address: ip(&request.address),
        traceparent: traceparent.map(|(_, value)| *value),
        now_ms: request.now_ms,
    }
}

impl Request for FastRequest<'_> {
    fn headers(&self) -> &Headers {
        &self.headers
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.headers.get(name)
    }

    fn peer_address(&self) -> Vec<u8> {
        self.address.as_bytes().to_vec()
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }
}
