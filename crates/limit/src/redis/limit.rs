//! `limit.lua`: checks rate limits for many requests at once, with the algorithms of [`crate`].

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::{Algorithm, Check, Quota};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::LimitKey;
use weir_scripts::call::decimal;
use weir_scripts::reply::{array, unsigned};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "limit",
    source: with_limit_states!("limit"),
};

/// One limit of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRequest {
    /// The key.
    pub key: LimitKey,
    /// The quota.
    pub quota: Quota,
    /// The request's cost. A cost above the quota's burst counts as the burst; 0 charges nothing and passes.
    pub cost: u32,
    /// For leases: the maximum of additional units to charge from the rest after all costs of the request are paid.
    /// Normally 0.
    pub extra: u32,
}

/// The result of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The quota's check. If earlier limits of the request have the same key, `wait_ms` covers them together. The
    /// remaining quota is that after the request.
    pub check: Check,
    /// The number of charged units: the cost and the granted extra; 0 if any limit refused the request.
    pub used: u32,
}

/// The call that decides `requests` in order, on Redis' own clock. It charges all limits of a request if all allow it,
/// otherwise none. Each request sees the charges of the earlier ones. Limits of one request with the same key count
/// together, as one with the sum of their costs.
///
/// There must be at least one limit. On Redis Cluster, all keys of a call must be in one slot: a request with keys in
/// several slots cannot be decided atomically.
pub fn call<R: AsRef<[LimitRequest]>>(requests: &[R]) -> Call {
    call_at(requests, 0)
}

/// [`call`] at `now_ms` instead of Redis' clock, which tests cannot set; 0 is Redis' clock. Only for tests: gateways
/// with different clocks would corrupt each other's counts.
pub fn call_at<R: AsRef<[LimitRequest]>>(requests: &[R], now_ms: u64) -> Call {
    let mut terms = Terms::default();
    for request in requests {
        let asks = request.as_ref();
        terms.push(asks.len() as u64);
        for ask in asks {
            terms.push_limit(&ask.key, ask.quota);
            terms.push(ask.cost.into());
            terms.push(ask.extra.into());
        }
    }
    terms.into_call(&SCRIPT, now_ms)
}

/// Reads the answers, one per limit. `shape` is the number of limits of each request, in order.
///
/// # Errors
/// When the reply does not match the script and the requests.
pub fn parse(
    value: &Value,
    shape: impl IntoIterator<Item = usize>,
) -> Result<Vec<Vec<Answer>>, ReplyError> {
    parse_all(value, shape).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

/// The number of fields in an answer.
const FIELDS: usize = 5;

fn parse_all(value: &Value, shape: impl IntoIterator<Item = usize>) -> Option<Vec<Vec<Answer>>> {
    let mut rest = array(value)?;
    let requests = shape.into_iter().map(|asks| {
        let (numbers, after) = rest.split_at_checked(asks.checked_mul(FIELDS)?)?;
        rest = after;
        parse_request(numbers)
    });
    let requests: Option<Vec<_>> = requests.collect();
    requests.filter(|_| rest.is_empty())
}

/// Checks that a refused request was not charged.
fn parse_request(numbers: &[Value]) -> Option<Vec<Answer>> {
    let answers = numbers.as_chunks::<FIELDS>().0.iter().map(parse_one);
    let answers: Vec<Answer> = answers.collect::<Option<_>>()?;
    let is_allowed = answers.iter().all(|answer| answer.check.is_allowed());
    let is_charged = answers.iter().any(|answer| answer.used > 0);
    (is_allowed || !is_charged).then_some(answers)
}

fn parse_one([wait_ms, remaining, reset_ms, mark, accepted]: &[Value; FIELDS]) -> Option<Answer> {
    Some(Answer {
        check: Check {
            wait_ms: unsigned(wait_ms)?,
            remaining: unsigned(remaining)?,
            reset_ms: unsigned(reset_ms)?,
            mark: unsigned(mark)?,
        },
        used: unsigned(accepted)?,
    })
}

/// The arguments of a call. Each key and each quota is contained once, regardless of the number of references.
#[derive(Default)]
pub(crate) struct Terms<'a> {
    places: BTreeMap<&'a LimitKey, u64>,
    keys: Arguments,
    quotas: Vec<Quota>,
    numbers: String,
}

impl<'a> Terms<'a> {
    /// Adds a number.
    pub(crate) fn push(&mut self, number: u64) {
        // Writing to a string cannot fail.
        let _ = write!(self.numbers, "{number} ");
    }

    /// Adds the indices of a key and a quota.
    pub(crate) fn push_limit(&mut self, key: &'a LimitKey, quota: Quota) {
        let keys = &mut self.keys;
        let key_place = *self.places.entry(key).or_insert_with(|| {
            keys.push(key.as_bytes());
            keys.len() as u64
        });
        let existing = self.quotas.iter().position(|existing| *existing == quota);
        let quota_place = existing.unwrap_or_else(|| {
            self.quotas.push(quota);
            self.quotas.len() - 1
        });
        self.push(key_place);
        self.push(quota_place as u64 + 1);
    }

    pub(crate) fn into_call(self, script: &'static Script, now_ms: u64) -> Call {
        let mut quotas = String::new();
        for quota in &self.quotas {
            let letter = letter(quota.algorithm());
            let (rate, per_ms, burst) = (quota.rate(), quota.per_ms(), quota.burst());
            let _ = write!(quotas, "{letter} {rate} {per_ms} {burst} ");
        }
        Call {
            script,
            keys: self.keys,
            args: [
                decimal(now_ms),
                quotas.into_bytes(),
                self.numbers.into_bytes(),
            ]
            .into(),
        }
    }
}

/// The letter of an algorithm in the scripts.
fn letter(algorithm: Algorithm) -> char {
    match algorithm {
        Algorithm::Gcra => 'g',
        Algorithm::SlidingWindow => 's',
        Algorithm::FixedWindow => 'f',
        Algorithm::Concurrency => 'c',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn key(rule: &str) -> LimitKey {
        LimitKey::new("weir", rule, [0; 16])
    }

    fn integers(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().copied().map(Value::Integer).collect())
    }

    #[test]
    fn redis_call_contains_each_key_and_quota_once() {
        let small = Quota::new(Algorithm::FixedWindow, 5, 1_000, 5).unwrap();
        let large = Quota::new(Algorithm::Gcra, 100, 60_000, 50).unwrap();
        let ask = |rule, quota, cost, extra| LimitRequest {
            key: key(rule),
            quota,
            cost,
            extra,
        };
        let requests = [
            vec![ask("all", large, 1, 9), ask("a", small, 2, 0)],
            vec![ask("all", large, 1, 0)],
        ];
        let call = call(&requests);
        let keys = ["all", "a"].map(|rule| key(rule).as_bytes().to_vec());
        assert_eq!(call.keys, keys.into());
        let args = [
            "0",
            "g 100 60000 50 f 5 1000 5 ",
            "2 1 1 1 9 2 2 2 0 1 1 1 1 0 ",
        ];
        assert_eq!(call.args, args.into());
    }

    #[test]
    fn batch_reply_is_split_by_request() {
        let reply = integers(&[0, 9, 5, 0, 1, 0, 8, 6, 7, 1, 20, 0, 30, 7, 0]);
        let answers = parse(&reply, [2, 0, 1]).unwrap();
        let lens: Vec<usize> = answers.iter().map(Vec::len).collect();
        assert_eq!(lens, [2, 0, 1]);
        let Answer {
            check,
            used: accepted,
        } = answers[2][0];
        assert_eq!((check.wait_ms, check.remaining, accepted), (20, 0, 0));
        assert_eq!((check.reset_ms, check.mark), (30, 7));
    }

    #[test]
    fn reply_that_does_not_match_the_requests_is_rejected() {
        let one = [0, 9, 5, 0, 1];
        assert!(parse(&integers(&one), [1]).is_ok());
        assert!(parse(&integers(&one), [1, 1]).is_err());
        assert!(parse(&integers(&one), [0]).is_err());
        assert!(parse(&integers(&one), [usize::MAX]).is_err());
        assert!(parse(&integers(&one[..4]), [1]).is_err());
        assert!(parse(&integers(&[0, -1, 5, 0, 1]), [1]).is_err());
        assert!(parse(&integers(&[0, 1 << 32, 5, 0, 1]), [1]).is_err());
        let charged_though_refused = [0, 9, 5, 0, 1, 4, 0, 5, 0, 0];
        assert!(parse(&integers(&charged_though_refused), [2]).is_err());
        assert!(parse(&integers(&charged_though_refused), [1, 1]).is_ok());
        assert!(parse(&Value::Integer(0), []).is_err());
    }
}
