//! The engine's own HTTP requests.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};
use weir_engine::event::FetchResponse;
use weir_engine::{Fetch, FetchId};

/// Requests that wait or are pending.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    /// Only a callback of the root context may send: the host delivers a response to the context that sent the request.
    waiting: VecDeque<(FetchId, Fetch)>,
    under_way: BTreeMap<u32, FetchId>,
}

impl Fetches {
    /// Stores a request until [`Fetches::take_waiting`].
    pub(crate) fn wait(&mut self, id: FetchId, fetch: Fetch) {
        self.waiting.push_back((id, fetch));
    }

    /// The next waiting request.
    pub(crate) fn take_waiting(&mut self) -> Option<(FetchId, Fetch)> {
        self.waiting.pop_front()
    }

    /// Sends a request from a callback of the root context. Returns whether the host accepted it.
    pub(crate) fn send(&mut self, id: FetchId, fetch: &Fetch) -> bool {
        let headers = fetch.headers.iter();
        let headers = headers.map(|(name, value)| (*name, value.as_str()));
        let timeout = Duration::from_millis(fetch.timeout_ms);
        let body = Some(&*fetch.body).filter(|body| !body.is_empty());
        let sent =
            hostcalls::dispatch_http_call(&fetch.cluster, headers.collect(), body, vec![], timeout);
        if let Ok(token) = sent {
            self.under_way.insert(token, id);
        }
        sent.is_ok()
    }

    /// The request of the ended call `token`.
    pub(crate) fn ended(&mut self, token: u32) -> Option<FetchId> {
        self.under_way.remove(&token)
    }
}

/// Reads the response within its callback, with the callback's numbers.
pub(crate) fn read_response(num_headers: usize, body_size: usize) -> Option<FetchResponse> {
    if num_headers == 0 {
        return None;
    }
    let headers = hostcalls::get_map_bytes(MapType::HttpCallResponseHeaders).unwrap_or_default();
    let mut headers: Vec<(String, String)> = headers
        .into_iter()
        .filter_map(|(name, value)| Some((name, String::from_utf8(value).ok()?)))
        .collect();
    let status = headers.iter().find(|(name, _)| name == ":status");
    let status = status.and_then(|(_, status)| status.parse().ok())?;
    headers.retain(|(name, _)| !name.starts_with(':'));
    let body = hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, body_size);
    Some(FetchResponse {
        status,
        headers,
        body: body.ok().flatten().unwrap_or_default(),
    })
}
