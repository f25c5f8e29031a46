//! For the benchmark: the gate's admission as a filter in wasm has it that knows no bridge. Each request asks Redis by
//! an HTTP call of its own to Webdis, which carries one command.
//!
//! It reads a request as `seckill-gate` does, runs the same script for one user, signs the same claim and sends
//! it on with the same headers. What the gate does besides is left out, which is in this filter's favour: the
//! catalogue, breakers, rebalances, what is remembered of empty shards, and giving back what a client that left had claimed.

use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, BufferType, ContextType, MapType, Status};
use weir_base::headers;
use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_base::language::Language;
use weir_engine::answer::Refusal;
use weir_engine::metrics::Counter;
use weir_engine::redis::{UnknownFailure, read};
use weir_engine::{Answer, Metrics, Request as _};
use weir_proxy_kit::metrics::HostMetrics;
use weir_proxy_kit::request::HostRequest;
use weir_proxy_kit::{env, reply};
use weir_sale::admission::{Conclusion, conclude};
use weir_sale::claim::Ticket;
use weir_sale::ledger::{Checks, ClaimTerms, OpenClaim};
use weir_sale::redis::claim::{self, Group};
use weir_sale::redis::keys::ShardKeys;
use weir_sale::shard::home_shard;
use weir_sale::verdict::Verdict;
use weir_scripts::Call;
use weir_scripts::keys::DEFAULT_PREFIX;

/// The one sale that this gate knows, as the benchmark fills it.
const SALE: &str = "open";
const SHARDS: u32 = 4;
const PATH: &[u8] = b"/sales/open/orders";
const CLAIM_TTL_MS: u64 = 3_600_000;

const CLUSTER: &str = "webdis";
const DEADLINE: Duration = Duration::from_millis(250);

/// How far apart counters are told to the host, as the gate does it.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);

/// What one VM knows.
struct Gate {
    sale: SaleId,
    shards: Vec<ShardKeys>,
    claim_sha1: String,
    keys: KeyRing,
    granted: Counter,
    refused: Counter,
}

impl Gate {
    fn new(metrics: &mut Metrics) -> Option<Self> {
        let sale = SaleId::new(SALE).ok()?;
        let secret = env::var("WEIR_CLAIM_SECRET")?;
        Some(Self {
            shards: (0..SHARDS)
                .map(|shard| ShardKeys::new(DEFAULT_PREFIX, &sale, shard))
                .collect(),
            sale,
            claim_sha1: claim::SCRIPT.sha1_hex(),
            keys: SigningKey::new("k1", &secret).ok()?.into(),
            granted: metrics.counter("weir_peer_webdis_granted_total"),
            refused: metrics.counter("weir_peer_webdis_refused_total"),
        })
    }

    /// Asks Redis whether `user` gets a unit.
    fn ask(&self, user: &UserId) -> Result<PendingClaim, Verdict> {
        let shard = home_shard(user, SHARDS);
        let terms = ClaimTerms {
            ttl_ms: CLAIM_TTL_MS,
            user_cap: 1,
            quantity: 1,
            checks: Checks {
                blocked: true,
                ..Checks::default()
            },
        };
        let keys = self.shards.get(shard as usize);
        let group = Group {
            keys: keys.ok_or(Verdict::Unavailable)?.clone(),
            terms,
            users: vec![user],
            attempts: vec![],
        };
        self.send(&claim::call(&[group]))
            .map_err(|_| Verdict::Unavailable)?;
        let user = user.clone();
        Ok(PendingClaim { shard, user })
    }

    /// As Webdis takes a command: its words are the path's segments. `.raw` asks for the reply in RESP.
    fn send(&self, call: &Call) -> Result<u32, Status> {
        let mut path = format!("/EVALSHA/{}/{}", self.claim_sha1, call.keys.len());
        for word in call.words() {
            path.push('/');
            push_encoded(&mut path, word);
        }
        path.push_str(".raw");
        let headers = vec![
            (":method", "GET"),
            (":path", path.as_str()),
            (":authority", CLUSTER),
        ];
        hostcalls::dispatch_http_call(CLUSTER, headers, None, vec![], DEADLINE)
    }

    /// The request goes on with its claim.
    fn send_on(
        &self,
        requested: PendingClaim,
        held: OpenClaim,
        verdict: Verdict,
    ) -> Result<(), Status> {
        let claim = Ticket {
            sale: self.sale.clone(),
            shard: requested.shard,
            generation: held.generation,
            quantity: held.quantity,
            deadline_ms: held.deadline_ms,
            user: requested.user,
        }
        .encode();
        add_request_header(headers::CLAIM, &claim)?;
        add_request_header(headers::CLAIM_SIGNATURE, &self.keys.sign(&claim))?;
        add_request_header(headers::VERDICT, verdict.label())?;
        self.granted.increment();
        hostcalls::resume_http_request()
    }

    fn reject(&self, verdict: Verdict) {
        self.refused.increment();
        let refusal = Refusal {
            status: verdict.status().unwrap_or(500),
            error: verdict.label(),
            message: verdict.message(Language::English),
            order: None,
        };
        let headers = vec![(headers::VERDICT, verdict.label())];
        if !reply::send(&Answer::refusal(headers, &refusal)) {
            log::warn!("an answer could not be sent");
        }
    }
}

fn add_request_header(name: &str, value: &str) -> Result<(), Status> {
    hostcalls::add_map_value(MapType::HttpRequestHeaders, name, value)
}

fn remove_gateway_headers() -> Result<(), Status> {
    let remove = |name| hostcalls::remove_map_value(MapType::HttpRequestHeaders, name);
    headers::GATEWAY_ONLY.into_iter().try_for_each(remove)
}

/// Percent-encodes all but what RFC 3986 reserves for nothing; the dot, too, behind which Webdis looks for a format.
fn push_encoded(path: &mut String, word: &[u8]) {
    for &byte in word {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) {
            path.push(byte.into());
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// Who waits for Redis.
struct PendingClaim {
    shard: u32,
    user: UserId,
}

struct Request {
    gate: Rc<Gate>,
    requested: Option<PendingClaim>,
}

impl Context for Request {
    fn on_http_call_response(
        &mut self,
        _token: u32,
        _headers: usize,
        body: usize,
        _trailers: usize,
    ) {
        let Some(requested) = self.requested.take() else {
            return;
        };
        let body = hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, body);
        let body = body.ok().flatten().ok_or(UnknownFailure::Lost.into());
        let replies = read(body, 1).ok();
        let reply = replies.and_then(|replies| claim::parse(replies.first()?, 1).ok());
        let reply = reply.and_then(|replies| replies.first().copied());
        let gate = &self.gate;
        match reply.map(|reply| conclude(reply, None, 0)) {
            Some(Conclusion::Pass { verdict, held }) => {
                if let Err(status) = gate.send_on(requested, held, verdict) {
                    log::warn!("a granted request could not go on: {status:?}");
                }
            }
            Some(Conclusion::Reject { verdict, .. }) => gate.reject(verdict),
            Some(Conclusion::Rebalance) => gate.reject(Verdict::AllReserved),
            None => gate.reject(Verdict::Unavailable),
        }
    }
}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _num_headers: usize, _end_of_stream: bool) -> Action {
        let request = HostRequest::default();
        let request = request.headers();
        let is = |name, value: &[u8]| request.get(name).is_some_and(|actual| *actual == *value);
        if !is(":method", b"POST") || !is(":path", PATH) {
            return Action::Continue;
        }
        if request.pose_as_gateway()
            && let Err(status) = remove_gateway_headers()
        {
            log::warn!("headers of a request could not be changed: {status:?}");
            return Action::Pause;
        }
        let user = request.get("x-user-id").unwrap_or_default();
        let requested = UserId::new(&user)
            .map_err(|_| Verdict::InvalidUser)
            .and_then(|user| self.gate.ask(&user));
        match requested {
            Ok(requested) => self.requested = Some(requested),
            Err(verdict) => self.gate.reject(verdict),
        }
        Action::Pause
    }
}

#[derive(Default)]
struct Root {
    gate: Option<Rc<Gate>>,
    metrics: Metrics,
    host_metrics: HostMetrics,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _plugin_configuration_size: usize) -> bool {
        self.gate = Gate::new(&mut self.metrics).map(Rc::new);
        if self.gate.is_none() {
            log::error!("WEIR_CLAIM_SECRET must be in the VM's environment, 32 bytes or more");
        }
        self.gate.is_some() && hostcalls::set_tick_period(FLUSH_PERIOD).is_ok()
    }

    fn on_tick(&mut self) {
        self.host_metrics.flush(&mut self.metrics);
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        let gate = Rc::clone(self.gate.as_ref()?);
        let requested = None;
        Some(Box::new(Request { gate, requested }))
    }
}

/// What the module does when a host has loaded it.
pub fn start() {
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    weir_proxy_kit::host::log_panics("webdis-gate");
    proxy_wasm::set_root_context(|_| Box::<Root>::default());
}

// As in the filters.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, missing_docs)]
mod entry {
    proxy_wasm::main! {{ crate::start() }}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_is_percent_encoded_into_one_path_segment() {
        let mut path = String::new();
        push_encoded(&mut path, b"weir:{open:0}:a/b.c \xff");
        assert_eq!(path, "weir%3A%7Bopen%3A0%7D%3Aa%2Fb%2Ec%20%FF");
    }
}
