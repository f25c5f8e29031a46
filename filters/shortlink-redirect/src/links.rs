//! The state of one VM, and what it answers to a request.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use proxy_wasm::hostcalls;
use weir_filter_kit::http::RequestHeaders;
use weir_filter_kit::link::{HostLink, Link as _};
use weir_link::answer::{self, Answer, Gone};
use weir_link::cache::{Found, Known, LinkName, Memory};
use weir_link::click::client_address;
use weir_link::click_buffer::{Click, ClickBuffer};
use weir_link::domain::Domain;
use weir_link::record::Link;
use weir_scripts::routes::link_lookup;

use crate::NAME;
use crate::answer::{kind_of, send, send_file, send_unavailable};
use crate::config::{Checked, ClicksConfig};
use crate::domains::Sites;
use crate::job::{Job, ReadJob};
use crate::metrics::{AnswerKind, Clicks, From, Metrics};
use crate::origin_lookups::{LookupRequest, OriginLookups};
use crate::poll::Poller;
use crate::redis::Redis;
use crate::request::{Fields, Resource};

/// So many bytes of each header that describes the client are told to the origin.
const HEADER_LEN_MAX: usize = 1_024;

/// All that one VM knows. Shared by its root context and its streams.
pub(crate) struct Links {
    pub(crate) config: Checked,
    pub(crate) sites: Sites,
    pub(crate) memory: Memory,
    /// If clicks are counted.
    pub(crate) click_buffer: Option<ClickBuffer>,
    pub(crate) flush_due_ms: u64,
    pub(crate) redis: Redis,
    pub(crate) lookups: OriginLookups,
    pub(crate) poller: Poller,
    pub(crate) metrics: Metrics,
    /// How many polls have told of changes. What was read before such a poll completed may be from before the
    /// change, and is not remembered.
    pub(crate) changes: u32,
    /// The streams that wait.
    pub(crate) waiting: BTreeSet<u32>,
    pub(crate) is_serving: bool,
    pub(crate) is_poll_failing: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It goes on.
    Passed,
    /// It was answered.
    Answered,
    /// It waits.
    Waiting,
}

/// A request for a link, of the effective context's stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkRequest<'a> {
    pub(crate) owner: u32,
    pub(crate) name: LinkName,
    pub(crate) domain: &'a Domain,
    pub(crate) fields: Fields<'a>,
    pub(crate) now_ms: u64,
}

impl Links {
    /// `link` leads to Redis; no other VM has this name, and nobody outside knows the seed.
    pub(crate) fn new(config: Checked, link: HostLink, unique_name: &str, seed: u64) -> Self {
        let clicks = config.clicks.as_ref();
        Self {
            sites: Sites::default(),
            memory: Memory::new(config.limits, seed),
            click_buffer: clicks.map(|clicks| ClickBuffer::new(unique_name, clicks.batches_max)),
            flush_due_ms: 0,
            redis: Redis::new(&config, link),
            lookups: OriginLookups::new(config.origin.clone()),
            poller: Poller::new(config.poll_interval_ms),
            metrics: Metrics::define(),
            changes: 0,
            waiting: BTreeSet::new(),
            is_serving: false,
            is_poll_failing: false,
            config,
        }
    }

    /// How far apart ticks should be.
    pub(crate) fn tick(&self) -> Duration {
        let poll_ms = self.poller.schedule.interval_ms();
        let watch_ms = self.redis.pump.tick_ms();
        let clicks = self.config.clicks.as_ref();
        let flush_ms = clicks.map_or(watch_ms, |clicks| clicks.flush_ms);
        Duration::from_millis(match self.is_serving {
            true => poll_ms.min(flush_ms).min(watch_ms),
            false => poll_ms,
        })
    }

    /// Decides on the request of the effective context's stream `owner`.
    pub(crate) fn decide(&mut self, owner: u32, now_ms: u64) -> Decision {
        self.note_request();
        let headers = RequestHeaders::read();
        let fields = Fields::of(&headers);
        let Some(domain) = self.sites.find(fields.host) else {
            self.metrics.answered(AnswerKind::Passed);
            return Decision::Passed;
        };
        match fields.resource(&domain.id) {
            Resource::Link(name) => self.look(LinkRequest {
                owner,
                name,
                domain: &domain,
                fields,
                now_ms,
            }),
            Resource::AppleFile => self.file(&domain, domain.apple_app_site_association.as_ref()),
            Resource::AndroidFile => self.file(&domain, domain.assetlinks.as_ref()),
            Resource::Nothing => self.unknown(&domain),
        }
    }

    fn look(&mut self, asking: LinkRequest<'_>) -> Decision {
        match self.memory.find(&asking.name, asking.now_ms) {
            Found::Link { known, is_due } => {
                self.metrics.found(From::Memory);
                let answer = answer_of(known, &asking);
                let is_click = give(answer, &asking, &self.metrics);
                self.count(is_click, &asking);
                if is_due {
                    self.renew(asking.name, asking.now_ms);
                }
                Decision::Answered
            }
            Found::Unknown => {
                self.metrics.found(From::MemoryUnknown);
                self.unknown(asking.domain)
            }
            Found::MustRevalidate | Found::Nothing => self.ask_redis(asking, false),
        }
    }

    /// Lets the request wait for Redis; or for the origin, if Redis is not to be asked.
    pub(crate) fn ask_redis(&mut self, asking: LinkRequest<'_>, is_second: bool) -> Decision {
        let Some(link) = asking.name.to_link() else {
            return self.unknown(asking.domain);
        };
        let Some(pass) = self.redis.permit(&self.metrics, asking.now_ms) else {
            return self.without_redis(asking, is_second);
        };
        let job = Job::Read(ReadJob {
            name: asking.name,
            link,
            is_click: asking.fields.is_click(),
            pass,
            changes: self.changes,
            is_second,
        });
        // There is room, as was just looked.
        let _ = self.redis.pump.enqueue(asking.owner, job, asking.now_ms);
        self.wait(asking.owner)
    }

    fn wait(&mut self, owner: u32) -> Decision {
        self.waiting.insert(owner);
        Decision::Waiting
    }

    /// What is known of the link is read again, for nobody in particular.
    fn renew(&mut self, name: LinkName, now_ms: u64) {
        let Some(link) = name.to_link() else { return };
        let Some(pass) = self.redis.permit(&self.metrics, now_ms) else {
            return;
        };
        let job = Job::Read(ReadJob {
            name,
            link,
            is_click: false,
            pass,
            changes: self.changes,
            is_second: false,
        });
        self.redis.pump.enqueue_unowned(job, now_ms);
    }

    /// Redis does not say: what was known counts, or else what the origin says.
    pub(crate) fn without_redis(&mut self, asking: LinkRequest<'_>, is_second: bool) -> Decision {
        let Some(known) = self.memory.stale(&asking.name, asking.now_ms) else {
            return self.ask_origin(asking, is_second);
        };
        self.metrics.found(From::Stale);
        let answer = answer_of(known, &asking);
        let is_click = give(answer, &asking, &self.metrics);
        self.count(is_click, &asking);
        Decision::Answered
    }

    /// Lets the request wait for the origin, if there are not too many.
    pub(crate) fn ask_origin(&mut self, asking: LinkRequest<'_>, is_second: bool) -> Decision {
        if self.memory.find(&asking.name, asking.now_ms) == Found::Unknown {
            // Another one has asked meanwhile.
            return self.unknown(asking.domain);
        }
        let ask = LookupRequest {
            owner: asking.owner,
            name: asking.name,
            method: asking.fields.method(),
            is_second,
            changes: self.changes,
        };
        let clicks = self.config.clicks.as_ref();
        let headers = || lookup_headers(&asking, clicks);
        match self.lookups.ask(ask, headers, asking.now_ms) {
            Ok(is_new) => {
                if is_new {
                    self.redis.pump.link().wake();
                }
                self.wait(asking.owner)
            }
            Err(too_many) => {
                self.metrics.answered(AnswerKind::Overloaded);
                send_unavailable(too_many.wait_ms);
                Decision::Answered
            }
        }
    }

    /// There is no such link.
    pub(crate) fn unknown(&self, domain: &Domain) -> Decision {
        self.metrics.answered(AnswerKind::Unknown);
        send(answer::unknown(domain.not_found_page.as_deref()));
        Decision::Answered
    }

    fn file(&self, domain: &Domain, file: Option<&serde_json::Value>) -> Decision {
        if !send_file(file) {
            return self.unknown(domain);
        }
        self.metrics.answered(AnswerKind::File);
        Decision::Answered
    }

    /// Answers with a link that was just read, and counts the click if it is one.
    pub(crate) fn answer_with(
        &mut self,
        link: &Link,
        is_used_up: bool,
        left_ms: Option<u64>,
        asking: &LinkRequest<'_>,
    ) {
        let answer = answer_to(link, is_used_up, left_ms, asking);
        let is_click = give(answer, asking, &self.metrics);
        self.count(is_click, asking);
    }

    /// Counts a click, if it is one.
    fn count(&mut self, is_click: bool, asking: &LinkRequest<'_>) {
        let Some(click_buffer) = self.click_buffer.as_mut().filter(|_| is_click) else {
            return;
        };
        self.metrics.clicks(Clicks::Counted, 1);
        let address = client(&asking.fields, self.config.clicks.as_ref());
        click_buffer.count(&Click {
            link: &asking.name,
            now_ms: asking.now_ms,
            address: &address,
            user_agent: asking.fields.user_agent,
            referer: asking.fields.referer,
            accept_language: asking.fields.accept_language,
        });
    }

    /// The first request makes this VM one that needs to know its domains.
    fn note_request(&mut self) {
        if !std::mem::replace(&mut self.is_serving, true) {
            self.poller.schedule.hurry();
            self.redis.pump.link().wake();
        }
    }

    /// The stream `owner` has gone, or has been answered.
    pub(crate) fn forget(&mut self, owner: u32) {
        if self.waiting.remove(&owner) {
            self.redis.pump.forget(owner);
            self.lookups.forget(owner);
        }
    }

    /// Makes `owner`, which has waited, the stream that answers are for, and reads its request. `None` if it
    /// has gone.
    pub(crate) fn select(&mut self, owner: u32) -> Option<RequestHeaders> {
        self.waiting.remove(&owner);
        if let Err(status) = hostcalls::set_effective_context(owner) {
            log::debug!("{NAME}: the stream has gone: {status:?}");
            return None;
        }
        Some(RequestHeaders::read())
    }
}

fn answer_of<'a>(known: &'a Known, asking: &LinkRequest<'_>) -> Answer<'a> {
    let left_ms = known.dies_at_ms.checked_sub(asking.now_ms);
    let left_ms = left_ms.filter(|_| known.dies_at_ms != u64::MAX);
    answer_to(&known.link, known.is_used_up, left_ms, asking)
}

fn answer_to<'a>(
    link: &'a Link,
    is_used_up: bool,
    left_ms: Option<u64>,
    asking: &LinkRequest<'_>,
) -> Answer<'a> {
    match is_used_up {
        true => Answer::Gone(Gone::UsedUp),
        false => answer::answer(link, &asking.fields.visit(left_ms, asking.now_ms)),
    }
}

/// Sends an answer, and returns whether the request was a click.
fn give(answer: Answer<'_>, asking: &LinkRequest<'_>, metrics: &Metrics) -> bool {
    let is_click = answer.leads_on() && asking.fields.is_click();
    metrics.answered(kind_of(&answer));
    send(answer.reply());
    is_click
}

/// The client's address, of the effective context's stream.
fn client<'a>(fields: &Fields<'a>, config: Option<&ClicksConfig>) -> Cow<'a, [u8]> {
    let trusted_hops = config.and_then(|config| config.trusted_hops);
    if let Some(address) = trusted_hops.and_then(|hops| fields.forwarded(hops)) {
        return Cow::Borrowed(address);
    }
    let address = hostcalls::get_property(vec!["source", "address"]);
    Cow::Owned(address.ok().flatten().unwrap_or_default())
}

/// The call that asks the origin for a link, as this client would.
fn lookup_headers(
    asking: &LinkRequest<'_>,
    clicks: Option<&ClicksConfig>,
) -> Vec<(&'static str, String)> {
    let fields = &asking.fields;
    let (path, query) = fields.split_path();
    let mut target = link_lookup(&visible(path));
    if !query.is_empty() && query.len() <= answer::QUERY_LEN_MAX {
        target.push('?');
        target.push_str(&visible(query));
    }
    let method = if fields.is_click() { "GET" } else { "HEAD" };
    let mut headers = vec![
        (":method", method.to_owned()),
        (":path", target),
        (":authority", visible(fields.host)),
    ];
    let described = [
        ("user-agent", fields.user_agent),
        ("referer", fields.referer),
        ("accept-language", fields.accept_language),
    ];
    for (name, value) in described {
        let value = value.get(..HEADER_LEN_MAX).unwrap_or(value);
        if !value.is_empty() {
            headers.push((name, readable(value)));
        }
    }
    if let Some(address) = client_address(&client(fields, clicks)) {
        headers.push(("x-forwarded-for", address.to_string()));
    }
    headers
}

/// As it may stand in a path: what is not visible ASCII is percent-encoded.
fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte.is_ascii_graphic() {
            true => text.push(char::from(*byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// As it may stand in a header: what is not ASCII text is a question mark.
fn readable(bytes: &[u8]) -> String {
    let is_text = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let text = bytes
        .iter()
        .map(|byte| if is_text(*byte) { *byte } else { b'?' });
    text.map(char::from).collect()
}
