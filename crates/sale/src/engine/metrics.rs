//! The gate's counters.

use alloc::format;

use crate::challenge::SolutionError;
use crate::rebalance::End;
use crate::token::TokenError;
use crate::verdict::Verdict;
use weir_engine::Metrics as Registry;
use weir_engine::metrics::{Counter, Counters};

/// The prefix of all metric names.
pub(crate) const PREFIX: &str = "weir_seckill_gate";

/// All counters of one worker.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Requests by verdict, answered or forwarded.
    pub(crate) requests: Counters<Verdict>,
    /// Dry-run requests by verdict, which continued in any case.
    pub(crate) shadow: Counters<Verdict>,
    /// Status answers.
    pub(crate) statuses: Counter,
    /// Invalid order tokens.
    pub(crate) tokens_refused: Counters<TokenError>,
    /// Challenges by outcome.
    pub(crate) challenges: Counters<ChallengeOutcome>,
    /// Requests whose Redis call failed before anything ran.
    pub(crate) failed_definite: Counter,
    /// Requests whose Redis call failed with an unknown result.
    pub(crate) failed_unknown: Counter,
    /// Released deliveries of claims: they never left the gateway, or the origin refused them.
    pub(crate) handed_back: Counter,
    /// Ended rebalances.
    pub(crate) rebalances: Counters<End>,
    /// Order requests on another host route than the configured one: they passed without a claim.
    pub(crate) misrouted: Counter,
    /// Failed polls.
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

    /// Counts requests whose Redis call failed.
    pub(crate) fn failed(&self, is_definite: bool, requests: usize) {
        match is_definite {
            true => self.failed_definite.add(requests),
            false => self.failed_unknown.add(requests),
        }
    }
}

/// The outcome of a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ChallengeOutcome {
    /// Sent to a client without a solution.
    Asked,
    /// It was solved.
    Solved,
    /// A client sent an accepted solution again, and got the same token.
    Again,
    /// An invalid proof of work.
    Failed(SolutionError),
    /// The CAPTCHA provider rejected the response, or the response is malformed.
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
