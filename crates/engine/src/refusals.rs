//! Counts and logs commands that Redis refuses.
//!
//! Each refusal counts by its kind. The first of a kind in a minute produces a log line: the command, the cluster, the
//! error from Redis, and what to do.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::resp::Value;
use weir_scripts::RefusalKind;

use crate::effect::{Effects, Level};
use crate::metrics::{Counters, Metrics};
use crate::redis::Failure;

/// The minimum interval between log lines of one kind, in milliseconds.
const LOG_INTERVAL_MS: u64 = 60_000;

/// More unknown scripts in a minute than a restart of Redis explains: each node loses each script once.
const UNKNOWN_SCRIPTS_MIN: u32 = 50;

/// The refusals of one Redis.
#[derive(Debug)]
pub struct Refusals {
    cluster: String,
    counts: Counters<RefusalKind>,
    /// When each kind was last logged.
    logged_at_ms: Vec<(RefusalKind, u64)>,
    /// The number of unknown scripts, and the start of the count.
    unknown_scripts: (u32, u64),
}

impl Refusals {
    /// The counters are `<name>_redis_refused_total.reason.<kind>`. `cluster` is the name of this Redis in the
    /// configuration.
    pub fn new(metrics: &mut Metrics, name: &str, cluster: &str) -> Self {
        let counts = Counters::new(metrics, RefusalKind::ALL, |kind| {
            format!("{name}_redis_refused_total.reason.{}", kind.label())
        });
        Self {
            cluster: cluster.into(),
            counts,
            logged_at_ms: Vec::new(),
            unknown_scripts: (0, 0),
        }
    }

    /// Records `error`, the reply to `command` with `requests` requests. Ignores errors that are not refusals.
    pub fn note(
        &mut self,
        error: &str,
        command: &str,
        requests: usize,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Some(kind) = RefusalKind::from_error(error) else {
            return;
        };
        self.counts.add(kind, requests);
        self.log(kind, error, command, now_ms, effects);
    }

    /// Records that Redis does not know `script` by its digest, so that the pump resends it. Logs only frequent cases.
    pub fn note_unknown_script(
        &mut self,
        error: &str,
        script: &str,
        requests: usize,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let kind = RefusalKind::UnknownScript;
        self.counts.add(kind, requests);
        let (count, since_ms) = &mut self.unknown_scripts;
        if now_ms.abs_diff(*since_ms) >= LOG_INTERVAL_MS {
            (*count, *since_ms) = (0, now_ms);
        }
        *count += 1;
        if *count == UNKNOWN_SCRIPTS_MIN {
            self.log(kind, error, script, now_ms, effects);
        }
    }

    fn log(
        &mut self,
        kind: RefusalKind,
        error: &str,
        command: &str,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if !self.is_due(kind, now_ms) {
            return;
        }
        let level = match kind.is_passing() {
            true => Level::Warn,
            false => Level::Error,
        };
        let (cluster, remedy) = (&self.cluster, kind.remedy());
        let text =
            format!("Redis refuses \"{command}\" on cluster \"{cluster}\": \"{error}\": {remedy}");
        effects.log(level, text);
    }

    /// Like [`Refusals::note`], for the first refusal among a call's replies. The call counts as one request.
    pub fn note_replies(
        &mut self,
        replies: &Result<Vec<Value>, Failure>,
        command: &str,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        match replies {
            Ok(replies) => {
                let error = replies.iter().find_map(|reply| match reply {
                    Value::Error(error) => Some(String::from_utf8_lossy(error)),
                    _ => None,
                });
                if let Some(error) = error {
                    self.note(&error, command, 1, now_ms, effects);
                }
            }
            Err(failure) => {
                if let Some(error) = failure.refusal() {
                    self.note(error, command, 1, now_ms, effects);
                }
            }
        }
    }

    /// Whether to log a refusal of this kind. If so, the next line is possible a minute later.
    fn is_due(&mut self, kind: RefusalKind, now_ms: u64) -> bool {
        let mut logged = self.logged_at_ms.iter_mut();
        match logged.find(|(existing, _)| *existing == kind) {
            // A clock that was set back must not suppress log lines.
            Some((_, at_ms)) if now_ms.abs_diff(*at_ms) < LOG_INTERVAL_MS => false,
            Some((_, at_ms)) => {
                *at_ms = now_ms;
                true
            }
            None => {
                self.logged_at_ms.push((kind, now_ms));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effect;
    use crate::redis::{DefiniteFailure, UnknownFailure};
    use alloc::string::ToString;
    use alloc::vec;

    struct Bench {
        metrics: Metrics,
        refusals: Refusals,
        effects: Effects,
    }

    impl Bench {
        fn new() -> Self {
            let mut metrics = Metrics::new();
            Self {
                refusals: Refusals::new(&mut metrics, "t", "weir_redis"),
                metrics,
                effects: Effects::new(),
            }
        }

        fn note(&mut self, error: &str, requests: usize, now_ms: u64) {
            self.refusals
                .note(error, "claim", requests, now_ms, &mut self.effects);
        }

        fn logged(&mut self) -> Vec<(Level, String)> {
            let mut list = Vec::new();
            self.effects.take_into(&mut list);
            let line = |effect| match effect {
                Effect::Log(level, text) => (level, text),
                other => panic!("{other:?}"),
            };
            list.into_iter().map(line).collect()
        }

        fn counted(&mut self) -> Vec<(String, u64)> {
            let names: Vec<String> = self.metrics.counters().map(ToString::to_string).collect();
            let mut counted = vec![];
            self.metrics
                .collect(|index, count| counted.push((names[index].clone(), count)));
            counted
        }
    }

    #[test]
    fn first_refusal_of_a_kind_in_a_minute_is_logged() {
        let mut bench = Bench::new();
        for now_ms in [100_000, 100_001, 159_999] {
            bench.note("OOM full", 2, now_ms);
        }
        bench.note("LOADING soon", 1, 100_002);
        let expected = [
            (
                Level::Error,
                "Redis refuses \"claim\" on cluster \"weir_redis\": \"OOM full\": \
                 Redis is full; free memory or raise maxmemory"
                    .to_string(),
            ),
            (
                Level::Warn,
                "Redis refuses \"claim\" on cluster \"weir_redis\": \"LOADING soon\": \
                 Redis is loading its data; wait until it has finished"
                    .to_string(),
            ),
        ];
        assert_eq!(bench.logged(), expected);
        bench.note("OOM full", 1, 160_000);
        assert_eq!(bench.logged().len(), 1, "a minute later");
        bench.note("OOM full", 1, 1_000);
        assert_eq!(bench.logged().len(), 1, "the clock was set back");
    }

    #[test]
    fn each_refusal_counts_by_kind() {
        let mut bench = Bench::new();
        bench.note("OOM full", 2, 1_000);
        bench.note("OOM full", 3, 1_000);
        bench.note("NOPERM no", 1, 1_000);
        bench.note("WRONGTYPE no refusal", 1, 1_000);
        let expected = [
            ("t_redis_refused_total.reason.oom".to_string(), 5),
            ("t_redis_refused_total.reason.noperm".to_string(), 1),
        ];
        assert_eq!(bench.counted(), expected);
    }

    #[test]
    fn persistent_unknown_script_errors_are_logged() {
        let mut bench = Bench::new();
        let note = |bench: &mut Bench, now_ms| {
            let (error, effects) = ("NOSCRIPT no", &mut bench.effects);
            bench
                .refusals
                .note_unknown_script(error, "claim", 1, now_ms, effects);
        };
        for n in 0..u64::from(UNKNOWN_SCRIPTS_MIN) {
            note(&mut bench, 100_000 + n * 2_000);
        }
        assert_eq!(bench.logged(), [], "few in a minute");
        for n in 0..2 * u64::from(UNKNOWN_SCRIPTS_MIN) {
            note(&mut bench, 300_000 + n);
        }
        let logged = bench.logged();
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert!(logged[0].1.contains("SCRIPT FLUSH"), "{logged:?}");
        let count = 3 * u64::from(UNKNOWN_SCRIPTS_MIN);
        let expected = [("t_redis_refused_total.reason.noscript".to_string(), count)];
        assert_eq!(bench.counted(), expected);
    }

    #[test]
    fn refusal_is_found_among_replies_and_in_a_failed_login() {
        let mut bench = Bench::new();
        let error = |text: &str| Value::Error(text.as_bytes().to_vec());
        for replies in [
            Ok(vec![Value::Null, error("NOPERM no"), error("OOM full")]),
            Ok(vec![Value::Null]),
            Err(UnknownFailure::Login("WRONGPASS no".into()).into()),
            Err(DefiniteFailure::NotSent.into()),
        ] {
            let effects = &mut bench.effects;
            bench.refusals.note_replies(&replies, "GET", 1_000, effects);
        }
        let expected = [
            ("t_redis_refused_total.reason.noperm".to_string(), 1),
            ("t_redis_refused_total.reason.wrongpass".to_string(), 1),
        ];
        assert_eq!(bench.counted(), expected);
    }
}
