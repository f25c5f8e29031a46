//! The network: delays, and the faults of calls.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::VecDeque;

use crate::plan::{Caller, OriginFate, RedisFate, SqlFate};
use crate::random::Rng;

/// Active faults that wait for a call.
#[derive(Debug)]
pub(crate) struct Network {
    /// One random stream of delays per link.
    links: Vec<Rng>,
    gateway_calls: VecDeque<RedisFate>,
    origin_calls: VecDeque<RedisFate>,
    transactions: VecDeque<SqlFate>,
    requests: VecDeque<OriginFate>,
}

/// A link: each has its own delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Gateway(usize),
    Origin(usize),
    Client(usize),
}

/// The number of links of each kind.
const LINKS_A_KIND: usize = 64;

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        let links = (0..3 * LINKS_A_KIND as u64)
            .map(|link| Rng::new(seed, 100 + link))
            .collect();
        Self {
            links,
            gateway_calls: VecDeque::new(),
            origin_calls: VecDeque::new(),
            transactions: VecDeque::new(),
            requests: VecDeque::new(),
        }
    }

    /// The delay of the next message on `link`: mostly less than a millisecond, sometimes much longer.
    pub(crate) fn delay_us(&mut self, link: Link) -> u64 {
        let rng = self.rng(link);
        match rng.below(100) {
            0 => rng.between(5_000, 60_000),
            1..=7 => rng.between(1_000, 8_000),
            _ => rng.between(80, 700),
        }
    }

    pub(crate) fn rng(&mut self, link: Link) -> &mut Rng {
        let at = match link {
            Link::Gateway(n) => n % LINKS_A_KIND,
            Link::Origin(n) => LINKS_A_KIND + n % LINKS_A_KIND,
            Link::Client(n) => 2 * LINKS_A_KIND + n % LINKS_A_KIND,
        };
        &mut self.links[at]
    }

    // --- waiting faults

    pub(crate) fn arm_redis(&mut self, caller: Caller, fate: RedisFate) {
        self.redis(caller).push_back(fate);
    }

    pub(crate) fn arm_sql(&mut self, fate: SqlFate) {
        self.transactions.push_back(fate);
    }

    pub(crate) fn arm_origin(&mut self, fate: OriginFate) {
        self.requests.push_back(fate);
    }

    /// The fault of the next call to Redis.
    pub(crate) fn redis_fate(&mut self, caller: Caller) -> Option<RedisFate> {
        self.redis(caller).pop_front()
    }

    pub(crate) fn sql_fate(&mut self) -> Option<SqlFate> {
        self.transactions.pop_front()
    }

    pub(crate) fn origin_fate(&mut self) -> Option<OriginFate> {
        self.requests.pop_front()
    }

    /// Removes all waiting faults.
    pub(crate) fn disarm(&mut self) {
        self.gateway_calls.clear();
        self.origin_calls.clear();
        self.transactions.clear();
        self.requests.clear();
    }

    fn redis(&mut self, caller: Caller) -> &mut VecDeque<RedisFate> {
        match caller {
            Caller::Gateway => &mut self.gateway_calls,
            Caller::Origin => &mut self.origin_calls,
        }
    }
}
