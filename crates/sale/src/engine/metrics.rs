//! What the gate counts, each named here once.

use alloc::format;

use crate::challenge::SolutionError;
use crate::rebalance::End;
use crate::token::TokenError;
use crate::verdict::Verdict;
use weir_engine::Metrics as Registry;
use weir_engine::metrics::{Counter, Counters};

/// What the names of all metrics begin with.
pub(crate) const PREFIX: &str = "weir_seckill_gate";

/// All counters of one worker.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Requests that were answered, or went on.
    pub(crate) requests: Counters<Verdict>,
    /// Requests that went on to the origin whatever was decided.
    pub(crate) shadow: Counters<Verdict>,
    /// Answers that told how a sale stands.
    pub(crate) statuses: Counter,
    /// Order tokens that did not count.
    pub(crate) tokens_refused: Counters<TokenError>,
    /// Challenges that were set, and what came of them.
    pub(crate) challenges: Counters<ChallengeOutcome>,
    /// Requests without a reply of Redis, of which nothing has run.
    pub(crate) failed_definite: Counter,
    /// Requests without a reply of Redis, which may have run.
    pub(crate) failed_unknown: Counter,
    /// Deliveries of claims that go back: the client has gone, or the origin is to be spared.
    pub(crate) handed_back: Counter,
    /// Rebalances that have ended.
    pub(crate) rebalances: Counters<End>,
    /// Requests to buy that the host sends by another route than that of orders: they passed without a claim.
    pub(crate) misrouted: Counter,
    /// Polls that could not be read.
    pub(crate) polls_failed: Counter,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let by_verdict = |registry: &mut Registry, what: &str| {
            Counters::new(registry, Verdict::ALL, |verdict: Verdict| {
                format!("{PREFIX}_{what}_total.verdict.{}", verdict.label())
            })
        };
        let total =
            |registry: &mut Registry, what: &str| registry.counter(format!("{PREFIX}_{what}"));
        Self {
            requests: by_verdict(registry, "requests"),
            shadow: by_verdict(registry, "shadow"),
            statuses: total(registry, "statuses_total"),
            tokens_refused: Counters::new(registry, TokenError::ALL, |reason| {
                format!("{PREFIX}_tokens_refused_total.reason.{}", reason.label())
            }),
            challenges: Counters::new(registry, ChallengeOutcome::ALL, |outcome| {
                format!("{PREFIX}_challenges_total.outcome.{}", outcome.label())
            }),
            failed_definite: total(registry, "redis_failed_total.outcome.definite"),
            failed_unknown: total(registry, "redis_failed_total.outcome.unknown"),
            handed_back: total(registry, "claims_handed_back_total"),
            rebalances: Counters::new(registry, ENDS, |end| {
                format!("{PREFIX}_rebalances_total.outcome.{}", end_label(end))
            }),
            misrouted: total(registry, "misrouted_total"),
            polls_failed: total(registry, "polls_failed_total"),
        }
    }

    /// Requests got no reply from Redis.
    pub(crate) fn failed(&self, is_definite: bool, requests: usize) {
        match is_definite {
            true => self.failed_definite.add(requests),
            false => self.failed_unknown.add(requests),
        }
    }
}

/// What came of a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ChallengeOutcome {
    /// It was set, to somebody who came without a solution.
    Asked,
    /// It was solved.
    Solved,
    /// Somebody came again with a solution, and got the token that it had led to.
    Again,
    /// A proof of work does not count.
    Failed(SolutionError),
    /// The captcha's provider says no, or what should be asked of it is none of its own.
    CaptchaRefused,
    /// The captcha's provider did not answer.
    CaptchaUnreachable,
}

impl ChallengeOutcome {
    const ALL: [Self; 13] = {
        let [a, b, c, d, e, f, g, h] = SolutionError::ALL;
        [
            Self::Asked,
            Self::Solved,
            Self::Again,
            Self::CaptchaRefused,
            Self::CaptchaUnreachable,
            Self::Failed(a),
            Self::Failed(b),
            Self::Failed(c),
            Self::Failed(d),
            Self::Failed(e),
            Self::Failed(f),
            Self::Failed(g),
            Self::Failed(h),
        ]
    };

    const fn label(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Solved => "solved",
            Self::Again => "again",
            Self::Failed(error) => error.label(),
            Self::CaptchaRefused => "captcha_refused",
            Self::CaptchaUnreachable => "captcha_unreachable",
        }
    }
}

const ENDS: [End; 5] = [
    End::Filled,
    End::SoldOut,
    End::TooFew,
    End::Moving,
    End::Unknown,
];

const fn end_label(end: End) -> &'static str {
    match end {
        End::Filled => "filled",
        End::SoldOut => "sold_out",
        End::TooFew => "too_few",
        End::Moving => "moving",
        End::Unknown => "unknown",
    }
}
