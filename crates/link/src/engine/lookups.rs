//! Origin lookups: one at a time per link, within a rate limit.
//!
//! A request for a link that is being looked up waits for that lookup (singleflight). After it, the request is answered
//! from the cache, or reads Redis again, where the origin has stored the link. This protects the origin from popular
//! links and from floods of unknown codes. Cached links are also looked up when Redis cannot revalidate them. These
//! lookups leave half of the rate to others. A circuit breaker spares them the wait for an unresponsive origin.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::cache::LinkName;
use crate::redis::link_read::Purpose;
use crate::routes::link_record;
use weir_base::breaker::{self, Pass};
use weir_engine::breaker::CountedBreaker;
use weir_engine::{Effects, Fetch, FetchId, Metrics, StreamId};
use weir_limit::{Quota, State};

use crate::engine::config::OriginConfig;
use crate::engine::metrics::PREFIX;

/// Lookups, and the requests that wait for them.
#[derive(Debug)]
pub(crate) struct Lookups {
    cluster: Arc<str>,
    timeout_ms: u64,
    waiting_max: usize,
    quota: Quota,
    /// Rate reserved for requests that wait without a cached answer.
    reserve: u32,
    state: Option<State>,
    breaker: CountedBreaker,
    under_way: BTreeMap<FetchId, Lookup>,
    /// Requests whose lookup has ended, and which still need an answer.
    ended: VecDeque<(StreamId, LookupOutcome)>,
}

/// A lookup in flight.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) name: LinkName,
    /// The request that started it, unless its client has left.
    pub(crate) owner: Option<StreamId>,
    /// Other requests that wait for it.
    pub(crate) followers: Vec<StreamId>,
    /// Whether other requests may still join.
    is_open: bool,
    /// The purpose of the lookup.
    pub(crate) purpose: Purpose,
    /// The permit of the circuit breaker; `None` if it was open.
    pass: Option<Pass>,
    /// The change counter when the lookup began.
    pub(crate) changes: u32,
}

impl Lookup {
    /// All requests that wait for it.
    pub(crate) fn all_streams(self) -> Vec<StreamId> {
        let mut streams = self.followers;
        streams.extend(self.owner);
        streams
    }
}

/// The outcome of a lookup for a request that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupOutcome {
    /// The link exists: it is in the cache or in Redis.
    Found,
    /// The link does not exist.
    Unknown,
    /// The origin did not answer.
    Failed,
}

/// The lookup limit is reached. There may be room after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) wait_ms: u64,
}

/// A request that needs a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupRequest {
    pub(crate) stream: StreamId,
    pub(crate) name: LinkName,
    pub(crate) purpose: Purpose,
    /// Whether it has joined a lookup before: then it starts its own.
    pub(crate) has_followed: bool,
    /// Whether the cache has an answer: then it does not wait for a failing origin.
    pub(crate) is_held: bool,
    pub(crate) changes: u32,
}

/// Settings of the circuit breaker. It opens early, because only links with a cached answer use it.
const BREAKER: breaker::Settings = breaker::Settings {
    window_ms: 10_000,
    min_requests: 5,
    failure_percent: 50,
    open_ms: 1_000,
    probes: 2,
};

/// The `:authority` of lookups, which the origin ignores.
const AUTHORITY: &str = "weir";

impl Lookups {
    pub(crate) fn new(config: &OriginConfig, quota: Quota, metrics: &mut Metrics) -> Self {
        Self {
            cluster: config.cluster.as_str().into(),
            timeout_ms: config.timeout_ms,
            waiting_max: config.waiting_max,
            quota,
            reserve: quota.burst() / 2,
            state: None,
            breaker: CountedBreaker::new(BREAKER, metrics, &format!("{PREFIX}_origin")),
            under_way: BTreeMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Queues a request for the lookup of its link.
    ///
    /// # Errors
    /// [`TooMany`] if too many requests wait, if the rate limit is reached, or if the origin fails and the cache has an
    /// answer.
    pub(crate) fn wait(
        &mut self,
        request: LookupRequest,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Result<(), TooMany> {
        if self.waiting() >= self.waiting_max {
            return Err(TooMany { wait_ms: 1_000 });
        }
        let mut lookups = self.under_way.values_mut();
        let open = lookups.find(|lookup| lookup.is_open && lookup.name == request.name);
        if let Some(lookup) = open.filter(|_| !request.has_followed) {
            lookup.followers.push(request.stream);
            return Ok(());
        }
        let pass = self.breaker.permit(now_ms);
        if let (Err(wait_ms), true) = (pass, request.is_held) {
            return Err(TooMany { wait_ms });
        }
        let reserve = if request.is_held { self.reserve } else { 0 };
        self.charge(reserve, now_ms)?;
        let lookup = Lookup {
            name: request.name,
            owner: Some(request.stream),
            followers: Vec::new(),
            is_open: !request.has_followed,
            purpose: request.purpose,
            pass: pass.ok(),
            changes: request.changes,
        };
        self.send(lookup, effects);
        Ok(())
    }

    /// Looks up a link without a request, unless a lookup is in flight or the rate limit is reached.
    pub(crate) fn refresh(
        &mut self,
        name: LinkName,
        purpose: Purpose,
        changes: u32,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if self.under_way.values().any(|lookup| lookup.name == name) {
            return;
        }
        let Ok(pass) = self.breaker.permit(now_ms) else {
            return;
        };
        if self.charge(self.reserve, now_ms).is_err() {
            return;
        }
        let lookup = Lookup {
            name,
            owner: None,
            followers: Vec::new(),
            is_open: true,
            purpose,
            pass: Some(pass),
            changes,
        };
        self.send(lookup, effects);
    }

    fn send(&mut self, lookup: Lookup, effects: &mut Effects) {
        let link = lookup.name.to_link();
        // Only well-formed names get here.
        let path = link.map(|link| link_record(&link, lookup.purpose));
        let fetch = effects.fetch(Fetch {
            cluster: Arc::clone(&self.cluster),
            headers: Vec::from([
                (":method", "GET".to_owned()),
                (":path", path.unwrap_or_default()),
                (":authority", AUTHORITY.to_owned()),
            ]),
            body: Arc::default(),
            timeout_ms: self.timeout_ms,
        });
        self.under_way.insert(fetch, lookup);
    }

    /// Charges one lookup, if `reserve` others are left.
    fn charge(&mut self, reserve: u32, now_ms: u64) -> Result<(), TooMany> {
        let state = self
            .state
            .get_or_insert_with(|| State::new(&self.quota, now_ms));
        *state = state.at(&self.quota, now_ms);
        let check = state.check(&self.quota, reserve.saturating_add(1));
        if !check.is_allowed() {
            return Err(TooMany {
                wait_ms: check.wait_ms,
            });
        }
        state.charge(&self.quota, 1);
        Ok(())
    }

    /// The number of waiting requests.
    fn waiting(&self) -> usize {
        let lookups = self.under_way.values();
        let waiting: usize = lookups.map(|lookup| 1 + lookup.followers.len()).sum();
        waiting + self.ended.len()
    }

    /// Removes and returns the lookup of `fetch`, if any. `is_answered`: whether the origin answered it.
    pub(crate) fn completed(
        &mut self,
        fetch: FetchId,
        is_answered: bool,
        now_ms: u64,
    ) -> Option<Lookup> {
        let lookup = self.under_way.remove(&fetch)?;
        if let Some(pass) = lookup.pass {
            self.breaker.record(now_ms, pass, is_answered, 1);
        }
        Some(lookup)
    }

    /// Queues requests for an answer in a later turn. Many may wait for one lookup, and a lookup that a host refuses
    /// ends within the callback that sent it.
    pub(crate) fn tell_later(
        &mut self,
        streams: Vec<StreamId>,
        ended: LookupOutcome,
        effects: &mut Effects,
    ) {
        let is_woken = !self.ended.is_empty();
        let replies = streams.into_iter().map(|stream| (stream, ended));
        self.ended.extend(replies);
        if !is_woken && !self.ended.is_empty() {
            effects.wake();
        }
    }

    /// Takes at most `room` requests to answer now.
    pub(crate) fn take_ended(
        &mut self,
        room: usize,
        effects: &mut Effects,
    ) -> Vec<(StreamId, LookupOutcome)> {
        let count = self.ended.len().min(room);
        let replies = self.ended.drain(..count).collect();
        if !self.ended.is_empty() {
            effects.wake();
        }
        replies
    }

    /// Forgets `stream`. A lookup that it started continues.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        for lookup in self.under_way.values_mut() {
            if lookup.owner == Some(stream) {
                lookup.owner = None;
                return;
            }
            if let Some(index) = lookup.followers.iter().position(|one| *one == stream) {
                lookup.followers.swap_remove(index);
                return;
            }
        }
        self.ended.retain(|(one, _)| *one != stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::DomainId;
    use alloc::vec;
    use weir_engine::Effect;
    use weir_engine::pump::BATCH_MAX;

    /// Lookups, and the effects of the last event.
    struct Bench {
        lookups: Lookups,
        effects: Effects,
        now_ms: u64,
    }

    /// A request for a cached link.
    fn cached_request(stream: StreamId, code: &str) -> LookupRequest {
        LookupRequest {
            stream,
            name: LinkName::new(&DomainId::new("s").unwrap(), code.as_bytes()).unwrap(),
            purpose: Purpose::Look,
            has_followed: false,
            is_held: true,
            changes: 0,
        }
    }

    impl Bench {
        fn new() -> Self {
            let config = OriginConfig {
                waiting_max: 5,
                ..OriginConfig::default()
            };
            Self {
                lookups: Lookups::new(&config, Quota::per_second(10, 2), &mut Metrics::new()),
                effects: Effects::new(),
                now_ms: 1_000,
            }
        }

        /// Queues a request. Returns the lookup that it started, if any.
        fn wait(
            &mut self,
            stream: StreamId,
            code: &str,
            has_followed: bool,
        ) -> Result<Option<FetchId>, TooMany> {
            let domain = DomainId::new("s").unwrap();
            let request = LookupRequest {
                stream,
                name: LinkName::new(&domain, code.as_bytes()).unwrap(),
                purpose: Purpose::Look,
                has_followed,
                is_held: false,
                changes: 0,
            };
            self.wait_for(request)
        }

        fn wait_for(&mut self, request: LookupRequest) -> Result<Option<FetchId>, TooMany> {
            self.lookups.wait(request, self.now_ms, &mut self.effects)?;
            Ok(self.sent())
        }

        /// The lookup that was sent.
        fn sent(&mut self) -> Option<FetchId> {
            let mut list = vec![];
            self.effects.take_into(&mut list);
            list.into_iter().find_map(|effect| match effect {
                Effect::Fetch { id, .. } => Some(id),
                _ => None,
            })
        }

        fn refresh(&mut self, code: &str) -> Option<FetchId> {
            let domain = DomainId::new("s").unwrap();
            let name = LinkName::new(&domain, code.as_bytes()).unwrap();
            let effects = &mut self.effects;
            self.lookups
                .refresh(name, Purpose::Renew, 0, self.now_ms, effects);
            self.sent()
        }

        fn wakes(&mut self) -> usize {
            let mut list = vec![];
            self.effects.take_into(&mut list);
            list.iter()
                .filter(|effect| **effect == Effect::Wake)
                .count()
        }
    }

    #[test]
    fn requests_for_the_same_link_share_one_lookup() {
        let mut bench = Bench::new();
        let first = bench.wait(1, "abc", false).unwrap().unwrap();
        assert_eq!(bench.wait(2, "abc", false), Ok(None));
        assert_eq!(bench.wait(3, "abc", false), Ok(None));
        // A request that has joined a lookup before starts its own.
        assert!(bench.wait(4, "abc", true).unwrap().is_some());
        let lookup = bench.lookups.completed(first, true, 0).unwrap();
        assert_eq!((lookup.owner, lookup.followers), (Some(1), vec![2, 3]));
        assert!(bench.lookups.completed(first, true, 0).is_none());
        // The result of that lookup may not be in Redis for others.
        bench.now_ms += 100;
        assert!(bench.wait(5, "abc", false).unwrap().is_some());
    }

    #[test]
    fn lookups_and_waiting_requests_are_bounded() {
        let mut bench = Bench::new();
        assert!(bench.wait(1, "abc", false).unwrap().is_some());
        assert!(bench.wait(2, "abd", false).unwrap().is_some());
        assert_eq!(bench.wait(3, "abe", false), Err(TooMany { wait_ms: 100 }));
        for stream in 4..7 {
            assert_eq!(bench.wait(stream, "abc", false), Ok(None));
        }
        assert_eq!(bench.wait(8, "abc", false), Err(TooMany { wait_ms: 1_000 }));
    }

    #[test]
    fn background_lookups_leave_half_the_capacity_free() {
        let mut bench = Bench::new();
        let first = bench.refresh("abc").unwrap();
        assert_eq!(bench.refresh("abc"), None, "it is under way");
        assert_eq!(bench.refresh("abd"), None, "one of two is left");
        assert_eq!(bench.wait(1, "abc", false), Ok(None), "it follows");
        assert!(bench.wait(2, "abe", false).unwrap().is_some());
        let lookup = bench.lookups.completed(first, true, 1_000).unwrap();
        assert_eq!((lookup.owner, lookup.followers), (None, vec![1]));
    }

    #[test]
    fn link_is_looked_up_once_at_a_time_and_others_in_parallel() {
        let mut bench = Bench::new();
        assert!(bench.refresh("abc").is_some());
        bench.now_ms += 1_000;
        assert_eq!(bench.refresh("abc"), None);
        assert!(bench.refresh("abd").is_some());
    }

    #[test]
    fn lookups_of_cached_links_leave_half_to_uncached_links() {
        let mut bench = Bench::new();
        assert!(bench.wait_for(cached_request(1, "abc")).unwrap().is_some());
        let too_many = bench.wait_for(cached_request(2, "abd")).unwrap_err();
        assert_eq!(too_many, TooMany { wait_ms: 100 });
        assert!(bench.wait(3, "abe", false).unwrap().is_some());
    }

    #[test]
    fn request_with_stale_answer_does_not_wait_for_failing_origin() {
        let mut bench = Bench::new();
        for stream in 0..5 {
            let fetch = bench.wait(stream, &format!("abc{stream}"), false);
            let fetch = fetch.unwrap().unwrap();
            let now_ms = bench.now_ms;
            bench.lookups.completed(fetch, false, now_ms);
            bench.now_ms += 100;
        }
        let cached_request = cached_request(9, "held");
        assert_eq!(
            bench.wait_for(cached_request),
            Err(TooMany { wait_ms: 900 })
        );
        assert_eq!(bench.refresh("held"), None);
        // The others have no cached answer.
        assert!(bench.wait(10, "abd", false).unwrap().is_some());
        bench.now_ms += 1_000;
        assert!(
            bench.wait_for(cached_request).unwrap().is_some(),
            "one tries it out"
        );
    }

    #[test]
    fn disconnected_client_is_removed_from_every_queue() {
        let mut bench = Bench::new();
        let first = bench.wait(1, "abc", false).unwrap().unwrap();
        bench.wait(2, "abc", false).unwrap();
        bench.lookups.forget(1);
        bench.lookups.forget(2);
        let lookup = bench.lookups.completed(first, true, 0).unwrap();
        assert_eq!((lookup.owner, lookup.followers.len()), (None, 0));
        let Bench {
            lookups, effects, ..
        } = &mut bench;
        lookups.tell_later(vec![4, 5], LookupOutcome::Failed, effects);
        lookups.forget(4);
        assert_eq!(
            lookups.take_ended(BATCH_MAX, effects),
            [(5, LookupOutcome::Failed)]
        );
        assert_eq!(lookups.waiting(), 0);
    }

    #[test]
    fn many_waiting_requests_are_notified_in_batches() {
        let mut bench = Bench::new();
        let Bench {
            lookups, effects, ..
        } = &mut bench;
        lookups.tell_later((0..60).collect(), LookupOutcome::Unknown, effects);
        lookups.tell_later((60..100).collect(), LookupOutcome::Unknown, effects);
        assert_eq!(bench.wakes(), 1);
        let take = |bench: &mut Bench| {
            let Bench {
                lookups, effects, ..
            } = bench;
            lookups.take_ended(BATCH_MAX, effects).len()
        };
        assert_eq!(take(&mut bench), BATCH_MAX);
        assert_eq!(bench.wakes(), 1);
        assert_eq!(take(&mut bench), 100 - BATCH_MAX);
        assert_eq!(bench.wakes(), 0);
    }
}
