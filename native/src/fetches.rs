//! HTTP requests of engines. They wait for the main thread, because only it can send them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_engine::Fetch;
use weir_engine::event::FetchResponse;
use weir_envoy_abi::{ConfigHost, FetchedResponse};

use crate::engine_host::FetchOf;

/// The HTTP requests of one filter configuration.
#[derive(Debug, Default)]
pub struct Fetches {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<(FetchOf, Fetch)>,
    /// Requests in flight, by Envoy's ID.
    under_way: HashMap<u64, FetchOf>,
}

impl Fetches {
    /// Queues a request for the main thread.
    pub fn wait(&self, of: FetchOf, fetch: Fetch) {
        self.lock().waiting.push_back((of, fetch));
    }

    /// Sends all queued requests on the main thread. Returns the origins of those that Envoy did not send.
    pub fn send(&self, host: &ConfigHost<'_>) -> Vec<FetchOf> {
        let mut failed = Vec::new();
        // Release the lock before calling Envoy, which may report the request's end before it returns.
        while let Some((of, fetch)) = self.next() {
            let headers: Vec<(&str, &str)> = fetch
                .headers
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            match host.fetch(&fetch.cluster, &headers, &fetch.body, fetch.timeout_ms) {
                Some(id) => drop(self.lock().under_way.insert(id, of)),
                None => failed.push(of),
            }
        }
        failed
    }

    fn next(&self) -> Option<(FetchOf, Fetch)> {
        self.lock().waiting.pop_front()
    }

    /// Removes an ended request and returns its origin.
    pub fn ended(&self, id: u64) -> Option<FetchOf> {
        self.lock().under_way.remove(&id)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts a response for the engine. `None` if it has no status.
pub fn read(response: FetchedResponse<'_>) -> Option<FetchResponse> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let headers = response.headers.iter();
    let mut headers: Vec<(String, String)> = headers
        .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
        .collect();
    let status = headers.iter().find(|(name, _)| name == ":status");
    let status = status.and_then(|(_, status)| status.parse().ok())?;
    headers.retain(|(name, _)| !name.starts_with(':'));
    Some(FetchResponse {
        status,
        headers,
        body: response.body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_read_without_pseudo_headers_or_non_text() {
        let response = |headers: &[(&'static [u8], &'static [u8])]| FetchedResponse {
            headers: headers.to_vec(),
            body: b"x".to_vec(),
        };
        let read_it = read(response(&[
            (b":status", b"204"),
            (b"a", b"1"),
            (b"b", b"\xff"),
        ]));
        let expected = FetchResponse {
            status: 204,
            headers: vec![("a".into(), "1".into())],
            body: b"x".to_vec(),
        };
        assert_eq!(read_it, Some(expected));
        assert_eq!(read(response(&[(b"a", b"1")])), None);
    }
}
