//! A fake Redis that runs the limiter's scripts with the model in `weir-limit`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::redis::{limit, limit_back};
use crate::{Algorithm, Quota, State};
use weir_base::resp::{Value, decode};
use weir_scripts::Script;

const SCRIPTS: [&Script; 2] = [&limit::SCRIPT, &limit_back::SCRIPT];

#[derive(Default)]
pub struct FakeRedis {
    states: BTreeMap<Vec<u8>, (Quota, State)>,
    /// The scripts loaded by digest.
    loaded: BTreeSet<&'static str>,
    /// The document for polls.
    pub document: Option<Vec<u8>>,
    /// The number of executed script calls.
    pub scripts_run: usize,
    /// The number of charged units.
    pub charged: u64,
    /// The charged units of concurrency limits.
    pub charged_in_flight: u64,
}

/// One term of a script call: a key, its quota, and two numbers.
struct Term {
    key: Vec<u8>,
    quota: Quota,
    numbers: [u64; 2],
}

impl FakeRedis {
    /// Loads all scripts, as after earlier use.
    pub fn load_scripts(&mut self) {
        self.loaded = SCRIPTS.map(|script| script.name).into();
    }

    /// Runs commands and returns the replies.
    pub fn run(&mut self, body: &[u8], now_ms: u64) -> Vec<u8> {
        let replies = commands(body).into_iter();
        replies
            .flat_map(|words| self.command(&words, now_ms))
            .collect()
    }

    /// The number of counted units of requests in flight.
    pub fn in_flight(&self) -> u64 {
        let concurrency = self.states.values();
        let concurrency = concurrency.filter(|(quota, _)| is_concurrency(quota));
        let used = concurrency
            .map(|(quota, state)| u64::from(quota.burst() - state.check(quota, 0).remaining));
        used.sum()
    }

    fn command(&mut self, words: &[Vec<u8>], now_ms: u64) -> Vec<u8> {
        match (words[0].as_slice(), &self.document) {
            (b"GET", None) => b"$-1\r\n".into(),
            (b"GET", Some(document)) => {
                let head = format!("${}\r\n", document.len()).into_bytes();
                [&head, document.as_slice(), b"\r\n"].concat()
            }
            _ => self.script(words, now_ms),
        }
    }

    fn script(&mut self, words: &[Vec<u8>], now_ms: u64) -> Vec<u8> {
        let is_digest = words[0] == b"EVALSHA";
        let script = SCRIPTS.into_iter().find(|script| match is_digest {
            true => script.sha1_hex().as_bytes() == words[1],
            false => script.source.as_bytes() == words[1],
        });
        let script = script.expect("one of the limiter's scripts");
        if is_digest && !self.loaded.contains(script.name) {
            return b"-NOSCRIPT No matching script. Please use EVAL.\r\n".into();
        }
        self.loaded.insert(script.name);
        self.scripts_run += 1;
        match script.name {
            "limit" => self.limit(words, now_ms),
            _ => self.limit_back(words, now_ms),
        }
    }

    fn limit(&mut self, words: &[Vec<u8>], now_ms: u64) -> Vec<u8> {
        let (terms, mut numbers) = (Terms::read(words), numbers(&words[words.len() - 1]));
        let mut reply = vec![];
        while let Some(count) = numbers.next() {
            let limits: Vec<Term> = (0..count).map(|_| terms.next(&mut numbers)).collect();
            reply.extend(self.decide(&limits, now_ms));
        }
        let numbers = reply.iter().map(|number| format!(":{number}\r\n"));
        let text = numbers.collect::<String>();
        format!("*{}\r\n{text}", reply.len()).into_bytes()
    }

    /// The reply to one request. No request here has two limits with the same key.
    fn decide(&mut self, limits: &[Term], now_ms: u64) -> Vec<u64> {
        let check = |limit: &Term| {
            let state = self.state(&limit.key, &limit.quota, now_ms);
            state.check(&limit.quota, limit.numbers[0] as u32)
        };
        let checks: Vec<_> = limits.iter().map(check).collect();
        let is_allowed = checks.iter().all(|check| check.is_allowed());
        let mut reply = vec![];
        for (limit, mut check) in limits.iter().zip(checks) {
            let mut used = 0;
            if is_allowed {
                let [cost, extra] = limit.numbers.map(|number| number as u32);
                let mut state = self.state(&limit.key, &limit.quota, now_ms);
                state.charge(&limit.quota, cost);
                let more = extra.min(state.check(&limit.quota, 0).remaining);
                state.charge(&limit.quota, more);
                used = u64::from(cost + more);
                let rest = state.check(&limit.quota, 0);
                (check.remaining, check.reset_ms) = (rest.remaining, rest.reset_ms);
                self.states.insert(limit.key.clone(), (limit.quota, state));
            }
            self.charged += used;
            if is_concurrency(&limit.quota) {
                self.charged_in_flight += used;
            }
            let remaining = check.remaining.into();
            reply.extend([check.wait_ms, remaining, check.reset_ms, check.mark, used]);
        }
        reply
    }

    fn limit_back(&mut self, words: &[Vec<u8>], now_ms: u64) -> Vec<u8> {
        let (terms, mut numbers) = (
            Terms::read(words),
            numbers(&words[words.len() - 1]).peekable(),
        );
        let mut found = 0;
        while numbers.peek().is_some() {
            let Term {
                key,
                quota,
                numbers: [cost, mark],
            } = terms.next(&mut numbers);
            let mut state = self.state(&key, &quota, now_ms);
            let before = state.check(&quota, 0).remaining;
            state.take_back(&quota, cost as u32, mark);
            let after = state.check(&quota, 0).remaining;
            assert!(after > before, "what was taken back had not been charged");
            self.states.insert(key, (quota, state));
            found += 1;
        }
        format!(":{found}\r\n").into_bytes()
    }

    fn state(&self, key: &[u8], quota: &Quota, now_ms: u64) -> State {
        match self.states.get(key) {
            Some((existing, state)) if existing.algorithm() == quota.algorithm() => {
                state.at(quota, now_ms)
            }
            _ => State::new(quota, now_ms),
        }
    }
}

/// The number of charges that these commands undo.
pub fn charges_back(body: &[u8]) -> u64 {
    let digest = limit_back::SCRIPT.sha1_hex().into_bytes();
    let source = limit_back::SCRIPT.source.as_bytes();
    let backs = commands(body).into_iter();
    let backs = backs.filter(|words| words.get(1).is_some_and(|s| *s == digest || s == source));
    backs
        .map(|words| numbers(&words[words.len() - 1]).count() as u64 / 4)
        .sum()
}

/// The keys and quotas that a call's terms refer to by index.
struct Terms {
    keys: Vec<Vec<u8>>,
    quotas: Vec<Quota>,
}

impl Terms {
    fn read(words: &[Vec<u8>]) -> Self {
        let keys_len = numbers(&words[2]).next().unwrap() as usize;
        let quotas = String::from_utf8(words[words.len() - 2].clone()).unwrap();
        let quotas: Vec<&str> = quotas.split_whitespace().collect();
        Self {
            keys: words[3..3 + keys_len].into(),
            quotas: quotas.as_chunks().0.iter().map(quota).collect(),
        }
    }

    fn next(&self, numbers: &mut impl Iterator<Item = u64>) -> Term {
        let mut next = || numbers.next().unwrap();
        Term {
            key: self.keys[next() as usize - 1].clone(),
            quota: self.quotas[next() as usize - 1],
            numbers: [next(), next()],
        }
    }
}

fn quota([letter, rate, per_ms, burst]: &[&str; 4]) -> Quota {
    let algorithm = match *letter {
        "g" => Algorithm::Gcra,
        "s" => Algorithm::SlidingWindow,
        "f" => Algorithm::FixedWindow,
        "c" => Algorithm::Concurrency,
        other => panic!("{other}"),
    };
    let of = |text: &str| text.parse::<u32>().unwrap();
    Quota::new(algorithm, of(rate), per_ms.parse().unwrap(), of(burst)).unwrap()
}

fn is_concurrency(quota: &Quota) -> bool {
    quota.algorithm() == Algorithm::Concurrency
}

fn numbers(text: &[u8]) -> impl Iterator<Item = u64> + use<> {
    let text = String::from_utf8(text.into()).unwrap();
    let numbers = text
        .split_whitespace()
        .map(|number| number.parse().unwrap());
    numbers.collect::<Vec<u64>>().into_iter()
}

pub fn commands(mut body: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut commands = vec![];
    while !body.is_empty() {
        let (command, len) = decode(body).unwrap();
        let Value::Array(words) = command else {
            panic!("{command:?}")
        };
        let words = words.into_iter().map(|word| match word {
            Value::Bulk(bytes) => bytes,
            other => panic!("{other:?}"),
        });
        commands.push(words.collect());
        body = &body[len..];
    }
    commands
}
