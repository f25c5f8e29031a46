//! Look-ups at the origin: one at a time of each link, and not too many.
//!
//! Who asks for a link that is being looked up waits for that; when it has come, those ask Redis once more, where
//! the origin has put the link. So neither a link that many ask for at once nor a flood of codes that do not exist
//! is more to the origin than it can take.

use std::collections::{BTreeMap, VecDeque};

use weir_filter_kit::pump::BATCH_MAX;
use weir_limit::{Quota, State};
use weir_link::answer::Method;
use weir_link::cache::LinkName;

use crate::config::OriginConfig;

/// Those that wait for the origin.
pub(crate) struct OriginLookups {
    config: OriginConfig,
    quota: Quota,
    state: Option<State>,
    to_send: VecDeque<Lookup>,
    under_way: BTreeMap<u32, Lookup>,
    /// Those whose link was looked up for another one.
    ended: VecDeque<(u32, LinkName, Ended)>,
}

/// A link that is looked up.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) name: LinkName,
    /// Who is told the origin's answer, if it has not gone.
    pub(crate) owner: Option<u32>,
    /// What the owner asked for.
    pub(crate) method: Method,
    /// Who waits for it, too.
    pub(crate) followers: Vec<u32>,
    /// Whether others may.
    is_open: bool,
    /// How many changes had been heard of when it began.
    pub(crate) changes: u32,
    headers: Vec<(&'static str, String)>,
}

/// How a look-up has ended for those who waited for another one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The origin has the link, and should have put it into Redis.
    Found,
    /// There is no such link.
    Unknown,
    /// The origin did not say.
    Failed,
}

/// There are too many look-ups. After so many milliseconds there may be room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) wait_ms: u64,
}

/// What a request that is to be looked up brings.
#[derive(Debug)]
pub(crate) struct LookupRequest {
    pub(crate) owner: u32,
    pub(crate) name: LinkName,
    pub(crate) method: Method,
    /// Whether it has waited for another one's look-up before.
    pub(crate) is_second: bool,
    pub(crate) changes: u32,
}

impl OriginLookups {
    pub(crate) fn new(config: OriginConfig) -> Self {
        Self {
            quota: Quota::per_second(config.per_second, config.burst),
            config,
            state: None,
            to_send: VecDeque::new(),
            under_way: BTreeMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Lets a request wait for the look-up of its link; `headers` makes the call's, if it takes one of its own.
    /// Returns whether it does: then [`OriginLookups::send`] has something to send.
    pub(crate) fn ask(
        &mut self,
        ask: LookupRequest,
        headers: impl FnOnce() -> Vec<(&'static str, String)>,
        now_ms: u64,
    ) -> Result<bool, TooMany> {
        if self.waiting() >= self.config.waiting_max {
            return Err(TooMany { wait_ms: 1_000 });
        }
        let mut lookups = self.to_send.iter_mut().chain(self.under_way.values_mut());
        let open = lookups.find(|lookup| lookup.is_open && lookup.name == ask.name);
        if let Some(lookup) = open.filter(|_| !ask.is_second) {
            lookup.followers.push(ask.owner);
            return Ok(false);
        }
        self.charge(now_ms)?;
        self.to_send.push_back(Lookup {
            name: ask.name,
            owner: Some(ask.owner),
            method: ask.method,
            followers: Vec::new(),
            is_open: !ask.is_second,
            changes: ask.changes,
            headers: headers(),
        });
        Ok(true)
    }

    fn charge(&mut self, now_ms: u64) -> Result<(), TooMany> {
        let state = self
            .state
            .get_or_insert_with(|| State::new(&self.quota, now_ms));
        *state = state.at(&self.quota, now_ms);
        let check = state.check(&self.quota, 1);
        if !check.is_allowed() {
            return Err(TooMany {
                wait_ms: check.wait_ms,
            });
        }
        state.charge(&self.quota, 1);
        Ok(())
    }

    /// How many wait.
    fn waiting(&self) -> usize {
        let lookups = self.to_send.iter().chain(self.under_way.values());
        let waiting: usize = lookups.map(|lookup| 1 + lookup.followers.len()).sum();
        waiting + self.ended.len()
    }

    /// Sends what is to be sent, each by `send`, which returns the call's token. What nobody waits for is left
    /// out; what cannot be sent is returned.
    pub(crate) fn send(
        &mut self,
        mut send: impl FnMut(&OriginConfig, &[(&'static str, String)]) -> Option<u32>,
    ) -> Vec<Lookup> {
        let mut unsent = Vec::new();
        for lookup in std::mem::take(&mut self.to_send) {
            if lookup.owner.is_none() && lookup.followers.is_empty() {
                continue;
            }
            match send(&self.config, &lookup.headers) {
                Some(token) => {
                    self.under_way.insert(token, lookup);
                }
                None => unsent.push(lookup),
            }
        }
        unsent
    }

    /// The look-up that the call `token` was, if it was one.
    pub(crate) fn completed(&mut self, token: u32) -> Option<Lookup> {
        self.under_way.remove(&token)
    }

    /// Those who have waited for another one's look-up are told how it has ended, when it is their turn.
    pub(crate) fn tell(&mut self, name: LinkName, followers: Vec<u32>, ended: Ended) {
        let told = followers.into_iter().map(|owner| (owner, name, ended));
        self.ended.extend(told);
    }

    /// Those whose turn it is: to answer many from one callback would overflow Envoy's stack.
    pub(crate) fn take_ended(&mut self) -> Vec<(u32, LinkName, Ended)> {
        let count = self.ended.len().min(BATCH_MAX);
        self.ended.drain(..count).collect()
    }

    /// Whether a turn has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.to_send.is_empty() || !self.ended.is_empty()
    }

    /// `owner` has gone. What was sent for it comes back all the same.
    pub(crate) fn forget(&mut self, owner: u32) {
        for lookup in self.to_send.iter_mut().chain(self.under_way.values_mut()) {
            if lookup.owner == Some(owner) {
                lookup.owner = None;
                return;
            }
            if let Some(index) = lookup.followers.iter().position(|one| *one == owner) {
                lookup.followers.swap_remove(index);
                return;
            }
        }
        self.ended.retain(|(one, _, _)| *one != owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_link::code::DomainId;

    fn lookups() -> OriginLookups {
        OriginLookups::new(OriginConfig {
            per_second: 10,
            burst: 2,
            waiting_max: 5,
            ..OriginConfig::default()
        })
    }

    fn ask(
        lookups: &mut OriginLookups,
        owner: u32,
        code: &str,
        is_second: bool,
    ) -> Result<bool, TooMany> {
        let domain = DomainId::new("s").unwrap();
        let ask = LookupRequest {
            owner,
            name: LinkName::new(&domain, code.as_bytes()).unwrap(),
            method: Method::Get,
            is_second,
            changes: 0,
        };
        lookups.ask(ask, Vec::new, 1_000)
    }

    #[test]
    fn who_asks_for_the_same_link_waits_for_one_look_up() {
        let mut lookups = lookups();
        assert_eq!(ask(&mut lookups, 1, "abc", false), Ok(true));
        assert_eq!(ask(&mut lookups, 2, "abc", false), Ok(false));
        assert!(lookups.send(|_, _| Some(7)).is_empty());
        assert_eq!(ask(&mut lookups, 3, "abc", false), Ok(false));
        // Who has waited already looks up for itself.
        assert_eq!(ask(&mut lookups, 4, "abc", true), Ok(true));
        let lookup = lookups.completed(7).unwrap();
        assert_eq!((lookup.owner, lookup.followers), (Some(1), vec![2, 3]));
        assert!(lookups.completed(7).is_none());
    }

    #[test]
    fn there_are_no_more_look_ups_than_allowed_and_no_more_that_wait() {
        let mut lookups = lookups();
        assert_eq!(ask(&mut lookups, 1, "abc", false), Ok(true));
        assert_eq!(ask(&mut lookups, 2, "abd", false), Ok(true));
        assert_eq!(
            ask(&mut lookups, 3, "abe", false),
            Err(TooMany { wait_ms: 100 })
        );
        for owner in 4..7 {
            assert_eq!(ask(&mut lookups, owner, "abc", false), Ok(false));
        }
        assert_eq!(
            ask(&mut lookups, 8, "abc", false),
            Err(TooMany { wait_ms: 1_000 })
        );
    }

    #[test]
    fn who_has_gone_is_forgotten_wherever_it_waits() {
        let mut lookups = lookups();
        ask(&mut lookups, 1, "abc", false).unwrap();
        ask(&mut lookups, 2, "abc", false).unwrap();
        ask(&mut lookups, 3, "abd", false).unwrap();
        lookups.forget(1);
        lookups.forget(3);
        let mut sent = 0;
        lookups.send(|_, _| {
            sent += 1;
            Some(sent)
        });
        assert_eq!(sent, 1, "nobody waits for the other one");
        lookups.forget(2);
        let lookup = lookups.completed(1).unwrap();
        assert_eq!((lookup.owner, lookup.followers.len()), (None, 0));
        lookups.tell(lookup.name, vec![4, 5], Ended::Failed);
        lookups.forget(4);
        assert_eq!(lookups.take_ended().len(), 1);
        assert!(!lookups.has_work());
    }

    #[test]
    fn many_are_told_in_several_turns() {
        let mut lookups = lookups();
        let domain = DomainId::new("s").unwrap();
        let name = LinkName::new(&domain, b"abc").unwrap();
        lookups.tell(name, (0..100).collect(), Ended::Unknown);
        assert_eq!(lookups.take_ended().len(), BATCH_MAX);
        assert!(lookups.has_work());
        assert_eq!(lookups.take_ended().len(), 100 - BATCH_MAX);
    }
}
