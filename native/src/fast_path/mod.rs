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

pub mod answer;
pub mod exchange;
pub mod head;

use exchange::{Exchange, Progress};
use head::{Head, Received};

/// The name of the filter in Envoy's configuration.
pub const NAME: &str = "weir.fast_path";

/// The longest time without a request to the HTTP stack, whose timers and drain need regular requests.
const HTTP_PERIOD: Duration = Duration::from_secs(30);

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
    /// Whether a missing filter was logged.
    has_logged_missing: AtomicBool,
}

impl FastPath {
    /// # Errors
    /// Names the field that is wrong.
    pub fn new(name: &[u8], json: &[u8]) -> Result<Self, FieldError> {
        if name != NAME.as_bytes() {
            let name = String::from_utf8_lossy(name);
            let problem = format!("there is no network filter {name}; there is {NAME}");
            return Err(FieldError::new("filter_name", problem));
        }
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
        let filters = Arc::new(AskedFilters::new(&settings.ask));
        *newest() = Arc::downgrade(&filters);
        Ok(Self {
            settings,
            filters,
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
        // The HTTP stack stops reading when a client does not read.
        if self.is_congested.get() {
            return Step::GoOn(Reader::Lost);
        }
        let (length, is_head) = match head::read(bytes) {
            Received::Unclear => return Step::GoOn(Reader::Lost),
            Received::Whole { length, is_head } => (length, is_head),
            Received::Plain(head) => {
                // The HTTP stack decides how far it reads a pipeline.
                let is_alone = head.length == bytes.len();
                if is_alone && let Some(answer) = self.answer(&head) {
                    self.answered.set(self.answered.get().saturating_add(1));
                    let server = &self.config.settings.server_name;
                    return Step::Answered(head.length, answer::bytes(&answer, server, now_ms()));
                }
                (head.length, false)
            }
        };
        self.answered.set(0);
        self.http_at.set(Instant::now());
        if let Some(host) = self.hosts.first() {
            host.common()
                .fast_path
                .passed
                .fetch_add(1, Ordering::Relaxed);
        }
        Step::GoOn(match bytes.len() == length {
            true => Reader::Http(Exchange::new(is_head)),
            false => Reader::Lost,
        })
    }

    /// Whether the next answerable request goes to the HTTP stack as a sample.
    fn is_sample(&self) -> bool {
        self.answered.get().saturating_add(1) >= self.config.settings.sample_of
            || self.http_at.get().elapsed() >= HTTP_PERIOD
    }

    fn answer(&self, head: &Head<'_>) -> Option<Arc<Answer>> {
        let settings = &self.config.settings;
        let passes = |(name, _): &(String, &[u8])| settings.pass_headers.contains(name);
        if self.is_sample() || head.headers.iter().any(passes) {
            return None;
        }
        let request = self.request(head);
        for host in &self.hosts {
            let mut decided = EarlyDecision::Undecided;
            guard(host, |host| {
                decided = host.decide_early(&request, settings.trusts_user_header);
            });
            match decided {
                EarlyDecision::Answer(answer) => {
                    host.common()
                        .fast_path
                        .answered
                        .fetch_add(1, Ordering::Relaxed);
                    return Some(answer);
                }
                EarlyDecision::NotConcerned => {}
                EarlyDecision::Undecided => return None,
            }
        }
        None
    }

    /// The request as the HTTP filter would receive it.
    fn request(&self, head: &Head<'_>) -> FastRequest {
        const FORWARDED: &str = "x-forwarded-for";
        let scheme: &[u8] = if self.is_tls { b"https" } else { b"http" };
        let ip = self.address.rsplit_once(':').map_or("", |(ip, _)| ip);
        let ip = ip.trim_start_matches('[').trim_end_matches(']');
        let is_forwarded =
            |name: &str| self.config.settings.use_remote_address && name == FORWARDED;
        let others = head.headers.iter();
        let others = others.map(|(name, value)| (name.as_str(), *value));
        let (forwarded, others): (Vec<_>, Vec<_>) =
            others.partition(|(name, _)| is_forwarded(name));
        // Appends the address as the connection manager does.
        let forwarded = forwarded.into_iter().map(|(_, value)| value);
        let forwarded = forwarded.chain([ip.as_bytes()]).collect::<Vec<_>>();
        let forwarded = forwarded.join(&b","[..]);
        let mut headers: Vec<(&str, &[u8])> = vec![
            (":authority", head.host),
            (":path", head.path.as_bytes()),
            (":method", head.method.as_bytes()),
            (":scheme", scheme),
        ];
        headers.extend(others);
        if self.config.settings.use_remote_address {
            headers.push((FORWARDED, &forwarded));
        }
        FastRequest {
            headers: Headers::new(&headers),
            address: self.address.clone(),
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
struct FastRequest {
    headers: Headers,
    address: String,
    now_ms: u64,
}

impl Request for FastRequest {
    fn headers(&self) -> &Headers {
        &self.headers
    }

    fn header(&self, name: &str) -> Option<std::borrow::Cow<'_, [u8]>> {
        self.headers.get(name)
    }

    fn peer_address(&self) -> Vec<u8> {
        self.address.clone().into_bytes()
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }
}
