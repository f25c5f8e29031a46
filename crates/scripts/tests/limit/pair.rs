//! Limits in Redis and in the model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use weir_base::resp::Value;
use weir_limit::redis::keys::LimitKey;
use weir_limit::redis::limit::{Answer, LimitRequest};
use weir_limit::redis::limit_back::Charge;
use weir_limit::redis::{limit, limit_back};
use weir_limit::{Algorithm, Quota, SET_BACK_MS_MAX, State};
use weir_scripts::Call;

use crate::support::{Redis, Server};

pub const NOW_MS: u64 = 1_700_000_000_000;

pub const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::Gcra,
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
    Algorithm::Concurrency,
];

pub fn quota(algorithm: Algorithm, rate: u32, per_ms: u64, burst: u32) -> Quota {
    Quota::new(algorithm, rate, per_ms, burst).unwrap()
}

/// A key that no other test uses.
pub fn new_key() -> LimitKey {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
    LimitKey::new("limits", "rule", number.to_be_bytes())
}

/// The model's state of a key.
#[derive(Clone, Copy)]
pub struct ModelEntry {
    pub state: State,
    /// The quota of its last charge.
    pub quota: Quota,
    /// When its key in Redis may expire.
    pub expires_at_ms: u64,
    /// When it did.
    pub gone_at_ms: Option<u64>,
}

/// Limits in Redis and in the model.
pub struct Pair {
    pub redis: Redis,
    pub now_ms: u64,
    pub retained: BTreeMap<LimitKey, ModelEntry>,
    /// The keys that the current call writes.
    pub written: BTreeSet<LimitKey>,
}

impl Pair {
    pub fn new(server: &Server) -> Self {
        Self {
            redis: server.connect(),
            now_ms: NOW_MS,
            retained: BTreeMap::new(),
            written: BTreeSet::new(),
        }
    }

    /// The model's state of a key.
    pub fn state(&self, key: &LimitKey, quota: &Quota) -> State {
        match self.retained.get(key) {
            // Charges under another quota may have expired under that quota.
            Some(retained) if retained.gone_at_ms.is_some() && retained.quota != *quota => {
                State::new(quota, self.now_ms)
            }
            Some(retained) if retained.quota.algorithm() == quota.algorithm() => {
                retained.state.at(quota, self.now_ms)
            }
            _ => State::new(quota, self.now_ms),
        }
    }

    pub fn keep(&mut self, key: &LimitKey, quota: Quota, state: State) {
        let rest_ms = state.idle_at_ms(&quota).saturating_sub(self.now_ms);
        let entry = ModelEntry {
            state,
            quota,
            expires_at_ms: self.now_ms + rest_ms + SET_BACK_MS_MAX,
            gone_at_ms: None,
        };
        self.retained.insert(key.clone(), entry);
        self.written.insert(key.clone());
    }

    pub fn charge(&mut self, ask: &LimitRequest, units: u32) {
        if units > 0 {
            let mut state = self.state(&ask.key, &ask.quota);
            state.charge(&ask.quota, units);
            self.keep(&ask.key, ask.quota, state);
        }
    }

    /// The model's answer to one request.
    pub fn decide(&mut self, asks: &[LimitRequest]) -> Vec<Answer> {
        let mut requests = BTreeMap::<&LimitKey, u32>::new();
        let mut dues = Vec::new();
        let mut answers = Vec::new();
        for ask in asks {
            let requests = requests.entry(&ask.key).or_default();
            let before = (*requests).min(ask.quota.burst());
            *requests = requests.saturating_add(ask.cost);
            dues.push((*requests).min(ask.quota.burst()) - before);
            let state = self.state(&ask.key, &ask.quota);
            answers.push(Answer {
                check: state.check(&ask.quota, *requests),
                used: 0,
            });
        }
        if answers.iter().all(|answer| answer.check.is_allowed()) {
            for (ask, due) in asks.iter().zip(&dues) {
                self.charge(ask, *due);
            }
            for ((ask, due), answer) in asks.iter().zip(dues).zip(&mut answers) {
                let remaining = self.state(&ask.key, &ask.quota).check(&ask.quota, 0);
                let more = ask.extra.min(remaining.remaining);
                self.charge(ask, more);
                answer.used = due + more;
            }
            for (ask, answer) in asks.iter().zip(&mut answers) {
                let remaining = self.state(&ask.key, &ask.quota).check(&ask.quota, 0);
                (answer.check.remaining, answer.check.reset_ms) =
                    (remaining.remaining, remaining.reset_ms);
            }
        }
        answers
    }

    /// Runs one call with many requests on both.
    pub fn ask(&mut self, requests: &[Vec<LimitRequest>]) -> Vec<Vec<Answer>> {
        let keys = requests.iter().flatten().map(|ask| ask.key.clone());
        let keys: Vec<LimitKey> = keys.collect();
        let call = limit::call_at(requests, self.now_ms);
        let expected: Vec<_> = requests.iter().map(|asks| self.decide(asks)).collect();
        let reply = self.run(&call, &keys);
        let answers = limit::parse(&reply, requests.iter().map(Vec::len))
            .unwrap_or_else(|e| panic!("{e}: {reply:?}"));
        assert_eq!(answers, expected, "{requests:#?} at {}", self.now_ms);
        answers
    }

    /// One request for one limit.
    pub fn ask_one(&mut self, key: &LimitKey, quota: Quota, cost: u32) -> Answer {
        self.ask(&[vec![ask(key, quota, cost)]])[0][0]
    }

    /// How many of `count` requests, one per call, pass.
    pub fn burst(&mut self, key: &LimitKey, quota: Quota, count: u32) -> usize {
        let answers = (0..count).map(|_| self.ask_one(key, quota, 1));
        answers.filter(|answer| answer.used == 1).count()
    }

    /// Runs one call that returns charges on both.
    pub fn take_back(&mut self, charges: &[Charge]) -> usize {
        let keys: Vec<LimitKey> = charges.iter().map(|charge| charge.key.clone()).collect();
        let call = limit_back::call_at(charges, self.now_ms);
        let mut expected = 0;
        for Charge {
            key,
            quota,
            cost,
            mark,
        } in charges
        {
            let mut state = self.state(key, quota);
            let untouched = state;
            state.take_back(quota, *cost, *mark);
            if state != untouched {
                self.keep(key, *quota, state);
                expected += 1;
            }
        }
        let reply = self.run(&call, &keys);
        let taken_back = limit_back::parse(&reply, charges.len()).unwrap();
        assert_eq!(taken_back, expected, "{charges:#?} at {}", self.now_ms);
        taken_back
    }

    /// Runs the call after the model, and compares when its keys expire: written keys as in the model, others
    /// unchanged. It then removes the expiries, because a history's time is not Redis' time.
    pub fn run(&mut self, call: &Call, keys: &[LimitKey]) -> Value {
        let start = Instant::now();
        // In one transaction, so that none expires in between.
        self.redis.command(&[b"MULTI"]);
        let mut eval = Vec::new();
        call.encode_eval(&mut eval);
        self.redis.exchange(&eval);
        for command in [b"PTTL".as_slice(), b"PERSIST"] {
            for key in keys {
                self.redis.command(&[command, key.as_bytes()]);
            }
        }
        let Value::Array(mut replies) = self.redis.command(&[b"EXEC"]) else {
            panic!("EXEC gives an array");
        };
        // The clock may advance between two commands of a transaction, and both are rounded.
        let elapsed_ms = i64::try_from(start.elapsed().as_millis()).unwrap() + 1;
        for (key, ttl) in keys.iter().zip(&replies[1..]) {
            let Value::Integer(ttl_ms) = *ttl else {
                panic!("PTTL gives a number: {ttl:?}");
            };
            let expected = match self
                .retained
                .get(key)
                .filter(|retained| retained.gone_at_ms.is_none())
            {
                None => -2..=-2,
                Some(_) if !self.written.contains(key) => -1..=-1,
                Some(retained) => {
                    let ttl_ms = i64::try_from(retained.expires_at_ms - self.now_ms).unwrap();
                    ttl_ms - elapsed_ms..=ttl_ms
                }
            };
            assert!(expected.contains(&ttl_ms), "{ttl_ms} for {expected:?}");
        }
        self.written.clear();
        replies.swap_remove(0)
    }

    /// Moves the clock. Redis drops expired keys; the model does not, which must make no difference unless the clock
    /// goes back too far.
    pub fn set_clock(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        for (key, retained) in &mut self.retained {
            if retained.expires_at_ms <= now_ms && retained.gone_at_ms.is_none() {
                self.redis.command(&[b"DEL", key.as_bytes()]);
                retained.gone_at_ms = Some(now_ms);
            }
        }
        self.retained.retain(|_, retained| {
            retained
                .gone_at_ms
                .is_none_or(|at_ms| now_ms + SET_BACK_MS_MAX >= at_ms)
        });
    }
}

pub fn ask(key: &LimitKey, quota: Quota, cost: u32) -> LimitRequest {
    LimitRequest {
        key: key.clone(),
        quota,
        cost,
        extra: 0,
    }
}
