//! Redis: the model of limits behind the gateways' commands.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::BTreeMap;
use std::rc::Rc;

use weir_base::resp::Value;
use weir_limit::redis::keys;
use weir_limit::{Algorithm, Check, Quota, State};

use crate::mutation::Mutation;
use crate::queue::START_MS;
use crate::stage::commands::{CommandArgs, ScriptCall, Scripts, no_script, number, read};
use crate::stage::history::History;
use weir_edge::shard::reply::{encode, integer};

/// The prefix of the tested rule's keys.
const KEYS_OF_RULE: &[u8] = b"weir:limit:{r:";

/// One server.
#[derive(Debug)]
pub(super) struct Redis {
    data: Data,
    history: History<Data>,
    scripts: Scripts,
    mutation: Option<Mutation>,
    /// The first document, for a mutation.
    first_rules: Option<Rc<[u8]>>,
    /// The units charged to the tested rule.
    pub(super) charged: u64,
    /// The units returned by repeated calls.
    pub(super) returned_by_repeats: u64,
}

/// The data that a loss may remove.
#[derive(Clone, Debug, Default)]
struct Data {
    limits: BTreeMap<Vec<u8>, StoredState>,
    rules: Option<Rc<[u8]>>,
}

/// The stored state of a key.
#[derive(Clone, Copy, Debug)]
struct StoredState {
    state: State,
    /// The quota of its last charge.
    quota: Quota,
}

/// One charge of a request, as `limit.lua` reads it.
struct Ask {
    key: Vec<u8>,
    quota: Quota,
    cost: u32,
    extra: u32,
}

/// The answer to one charge.
struct Answer {
    check: Check,
    used: u32,
}

/// A call's numbers, and its keys and quotas.
struct Terms<'a> {
    keys: &'a [Vec<u8>],
    quotas: Vec<Quota>,
    numbers: std::vec::IntoIter<u64>,
}

/// The arrival of a call.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) now_us: u64,
    /// The clock of the sending gateway, for a mutation.
    pub(super) gateway_ms: u64,
    pub(super) most: u64,
    pub(super) is_repeat: bool,
}

impl Redis {
    pub(super) fn new(keeps_history: bool, mutation: Option<Mutation>) -> Self {
        Self {
            data: Data::default(),
            history: History::new(keeps_history),
            scripts: Scripts::default(),
            mutation,
            first_rules: None,
            charged: 0,
            returned_by_repeats: 0,
        }
    }

    pub(super) fn set_rules(&mut self, json: &str) {
        let json: Rc<[u8]> = json.as_bytes().into();
        self.first_rules.get_or_insert_with(|| Rc::clone(&json));
        self.data.rules = Some(json);
    }

    /// Restores the state of `back_us` ago; an empty one if `None`. Scripts are lost in any case.
    pub(super) fn restart(&mut self, back_us: Option<u64>, now_us: u64) {
        self.scripts.clear();
        if back_us != Some(0) {
            self.data = self.history.earlier(back_us, now_us);
        }
    }

    pub(super) fn run(&mut self, bytes: &[u8], arrival: Arrival) -> Vec<u8> {
        let mut replies = Vec::new();
        for words in read(bytes).iter().take(arrival.most as usize) {
            let reply = self.command(words, arrival);
            encode(&reply, &mut replies);
        }
        self.history.note(arrival.now_us, &self.data);
        replies
    }

    fn command(&mut self, words: &CommandArgs, arrival: Arrival) -> Value {
        if words[0] == b"GET" {
            assert_eq!(words[1], keys::limit_rules("weir"));
            let rules = match self.mutation {
                Some(Mutation::RulesNotRead) => &self.first_rules,
                _ => &self.data.rules,
            };
            let rules = rules.as_deref();
            return rules.map_or(Value::Null, |json| Value::Bulk(json.to_vec()));
        }
        let mut scripts = std::mem::take(&mut self.scripts);
        let reply = match scripts.find(words) {
            None => no_script(),
            Some(call) => self.script(&call, arrival),
        };
        self.scripts = scripts;
        reply
    }

    fn script(&mut self, call: &ScriptCall<'_>, arrival: Arrival) -> Value {
        let now_ms = match self.mutation {
            Some(Mutation::GatewaysClocksCount) => arrival.gateway_ms,
            _ => START_MS + arrival.now_us / 1_000,
        };
        let terms = Terms::new(call);
        match call.name {
            "limit" => self.limit(terms, now_ms),
            "limit_back" => self.limit_back(terms, now_ms, arrival.is_repeat),
            other => panic!("no gateway calls {other}"),
        }
    }

    // --- limit.lua

    fn limit(&mut self, mut terms: Terms<'_>, now_ms: u64) -> Value {
        let mut numbers = Vec::new();
        while let Some(count) = terms.numbers.next() {
            let asks: Vec<Ask> = (0..count).map(|_| terms.ask()).collect();
            for Answer {
                check,
                used: accepted,
            } in self.decide(&asks, now_ms)
            {
                let wait_ms = match self.mutation {
                    Some(Mutation::WaitToldTooShort) => check.wait_ms.div_ceil(8),
                    _ => check.wait_ms,
                };
                numbers.extend([
                    integer(wait_ms),
                    integer(check.remaining),
                    integer(check.reset_ms),
                    integer(check.mark),
                    integer(accepted),
                ]);
            }
        }
        Value::Array(numbers)
    }

    fn decide(&mut self, asks: &[Ask], now_ms: u64) -> Vec<Answer> {
        let mut requests = BTreeMap::<&[u8], u32>::new();
        let mut dues = Vec::new();
        let mut answers = Vec::new();
        for ask in asks {
            let requests = requests.entry(&ask.key).or_default();
            let before = (*requests).min(ask.quota.burst());
            *requests = requests.saturating_add(ask.cost);
            dues.push((*requests).min(ask.quota.burst()) - before);
            let check = self.state(&ask.key, &ask.quota, now_ms);
            let check = check.check(&ask.quota, *requests);
            answers.push(Answer { check, used: 0 });
        }
        if !answers.iter().all(|answer| answer.check.is_allowed()) {
            return answers;
        }
        for (ask, due) in asks.iter().zip(&dues) {
            self.charge(ask, *due, now_ms);
        }
        for ((ask, due), answer) in asks.iter().zip(dues).zip(&mut answers) {
            let remaining = self.state(&ask.key, &ask.quota, now_ms);
            let more = ask.extra.min(remaining.check(&ask.quota, 0).remaining);
            if self.mutation != Some(Mutation::SliceNotCharged) {
                self.charge(ask, more, now_ms);
            }
            answer.used = due + more;
        }
        for (ask, answer) in asks.iter().zip(&mut answers) {
            let remaining = self.state(&ask.key, &ask.quota, now_ms);
            let remaining = remaining.check(&ask.quota, 0);
            (answer.check.remaining, answer.check.reset_ms) =
                (remaining.remaining, remaining.reset_ms);
        }
        answers
    }

    fn charge(&mut self, ask: &Ask, units: u32, now_ms: u64) {
        if units == 0 {
            return;
        }
        let mut state = self.state(&ask.key, &ask.quota, now_ms);
        state.charge(&ask.quota, units);
        self.keep(&ask.key, &ask.quota, state);
        if ask.key.starts_with(KEYS_OF_RULE) {
            self.charged += u64::from(units);
        }
    }

    // --- limit_back.lua

    fn limit_back(&mut self, mut terms: Terms<'_>, now_ms: u64, is_repeat: bool) -> Value {
        let mut count = 0_u64;
        while let Some(key) = terms.key() {
            let (quota, cost, mark) = (terms.quota(), terms.number(), terms.number());
            let mut state = self.state(&key, &quota, now_ms);
            let untouched = state;
            let cost = cost as u32;
            state.take_back(&quota, cost, mark);
            if self.mutation == Some(Mutation::SlotReturnedTwice) {
                state.take_back(&quota, cost, mark);
            }
            if state != untouched {
                count += 1;
                self.keep(&key, &quota, state);
                if is_repeat {
                    self.returned_by_repeats += u64::from(cost);
                }
            }
        }
        integer(count)
    }

    // --- states

    fn state(&self, key: &[u8], quota: &Quota, now_ms: u64) -> State {
        let is_in_flight = quota.algorithm() == Algorithm::Concurrency;
        let now_ms = match self.mutation {
            Some(Mutation::SlotsNeverExpire) if is_in_flight => START_MS,
            _ => now_ms,
        };
        match self.data.limits.get(key) {
            Some(retained) if retained.quota.algorithm() == quota.algorithm() => {
                retained.state.at(quota, now_ms)
            }
            _ => State::new(quota, now_ms),
        }
    }

    fn keep(&mut self, key: &[u8], quota: &Quota, state: State) {
        let quota = *quota;
        self.data
            .limits
            .insert(key.to_vec(), StoredState { state, quota });
    }
}

impl<'a> Terms<'a> {
    fn new(call: &ScriptCall<'a>) -> Self {
        let [_, quotas, numbers] = call.args else {
            panic!("three arguments");
        };
        let quotas: Vec<&[u8]> = split(quotas).collect();
        let quotas = quotas.chunks(4).map(quota).collect();
        let numbers: Vec<u64> = split(numbers).map(number).collect();
        Self {
            keys: call.keys,
            quotas,
            numbers: numbers.into_iter(),
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers.next().expect("a number")
    }

    fn key(&mut self) -> Option<Vec<u8>> {
        let place = self.numbers.next()?;
        Some(self.keys[place as usize - 1].clone())
    }

    fn quota(&mut self) -> Quota {
        let place = self.number();
        self.quotas[place as usize - 1]
    }

    fn ask(&mut self) -> Ask {
        Ask {
            key: self.key().expect("a key"),
            quota: self.quota(),
            cost: self.number() as u32,
            extra: self.number() as u32,
        }
    }
}

fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = text.split(|byte| *byte == b' ');
    words.filter(|word| !word.is_empty())
}

fn quota(words: &[&[u8]]) -> Quota {
    let algorithm = match words[0] {
        b"g" => Algorithm::Gcra,
        b"s" => Algorithm::SlidingWindow,
        b"f" => Algorithm::FixedWindow,
        b"c" => Algorithm::Concurrency,
        other => panic!("no algorithm is {other:?}"),
    };
    let (rate, per_ms, burst) = (number(words[1]), number(words[2]), number(words[3]));
    let quota = Quota::new(algorithm, rate as u32, per_ms, burst as u32);
    quota.expect("gateways send quotas that can be")
}
