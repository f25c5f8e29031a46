//! Background loops: rounds that repeat until the origin stops.
//!
//! ```text
//! let mut interval = Interval::every(PERIOD, "reconciling", stop);
//! while interval.next().await {
//!     let outcome = self.round().await;
//!     interval.ended(&outcome);
//! }
//! ```
//!
//! A loop logs when it starts to fail and when it recovers, not in each round.

use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Pauses of a loop after failed rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Pause after the first failure; it doubles with each consecutive one.
    pub first: Duration,
    /// Maximum pause.
    pub max: Duration,
}

impl Backoff {
    /// The same pause after each failure.
    pub const fn constant(pause: Duration) -> Self {
        Self {
            first: pause,
            max: pause,
        }
    }

    /// The pause after `failures` consecutive failures.
    pub fn pause(self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(doubled).min(self.max)
    }
}

/// Time of a loop's last heartbeat. Cloning it is cheap: clones share it.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<Mutex<Option<Instant>>>);

impl Heartbeat {
    /// Records a heartbeat.
    pub fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Time since the last heartbeat; `None` if there was none yet.
    pub fn silence(&self) -> Option<Duration> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|last| last.elapsed())
    }
}

/// Schedules the rounds of one loop.
#[derive(Debug)]
pub struct Interval {
    what: &'static str,
    stop: CancellationToken,
    period: Duration,
    backoff: Backoff,
    failures: u32,
    /// Time until the next round.
    pause: Duration,
}

impl Interval {
    /// Runs a round every `period`, the first one at once. `subject` names the loop in the log.
    pub fn every(period: Duration, subject: &'static str, stop: CancellationToken) -> Self {
        Self {
            what: subject,
            stop,
            period,
            backoff: Backoff::constant(period),
            failures: 0,
            pause: Duration::ZERO,
        }
    }

    /// Sets the pauses after failed rounds.
    #[must_use]
    pub fn backing_off(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Delays the first round by one period.
    #[must_use]
    pub fn delayed(mut self) -> Self {
        self.pause = self.period;
        self
    }

    /// Waits until the next round is due; false once the origin stops.
    pub async fn next(&mut self) -> bool {
        self.wait(tokio::time::sleep(self.pause)).await
    }

    /// Waits for `event` instead of a time; false once the origin stops.
    pub async fn wait(&self, event: impl Future<Output = ()>) -> bool {
        tokio::select! {
            // A shutdown takes precedence over a due round.
            biased;
            () = self.stop.cancelled() => false,
            () = event => true,
        }
    }

    /// Records the outcome of a round. The next round starts after the period, or after the back-off if it failed.
    pub fn ended<T, E: Display>(&mut self, outcome: &Result<T, E>) {
        match outcome {
            Ok(_) => self.succeeded(),
            Err(error) => self.failed(error),
        }
    }

    fn succeeded(&mut self) {
        if self.failures > 0 {
            info!(failures = self.failures, "{}: works again", self.what);
        }
        self.failures = 0;
        self.pause = self.period;
    }

    fn failed(&mut self, error: &dyn Display) {
        if self.failures == 0 {
            warn!(%error, "{}: failed; retrying", self.what);
        }
        self.failures = self.failures.saturating_add(1);
        self.pause = self.backoff.pause(self.failures);
    }

    /// Starts the next round after `pause` instead of the period.
    pub fn next_after(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Starts the next round at once.
    pub fn next_at_once(&mut self) {
        self.pause = Duration::ZERO;
    }

    /// Whether the last round failed.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Whether the origin is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use super::*;

    const PERIOD: Duration = Duration::from_millis(500);

    fn interval(stop: &CancellationToken) -> Interval {
        Interval::every(PERIOD, "counting", stop.clone())
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Captures this thread's log lines while the guard lives.
    fn captured() -> (Lines, tracing::subscriber::DefaultGuard) {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    #[test]
    fn failing_loop_is_logged_once_and_again_on_recovery() {
        let (lines, _guard) = captured();
        let mut interval = interval(&CancellationToken::new());
        for outcome in [
            Ok(()),
            Err("down"),
            Err("down"),
            Err("down"),
            Ok(()),
            Ok(()),
        ] {
            interval.ended(&outcome);
            assert_eq!(interval.is_failing(), outcome.is_err());
        }
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let [failed, recovered] = lines[..] else {
            panic!("{text}");
        };
        assert!(failed.contains("WARN") && failed.contains("counting: failed"));
        assert!(failed.contains("error=down"), "{failed}");
        assert!(recovered.contains("INFO") && recovered.contains("failures=3"));
    }

    #[test]
    fn pauses_double_up_to_their_limit() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            max: Duration::from_secs(5),
        };
        let pauses = [1, 2, 3, 7, u32::MAX].map(|failures| backoff.pause(failures).as_millis());
        assert_eq!(pauses, [100, 200, 400, 5_000, 5_000]);
    }

    #[test]
    fn next_round_starts_after_the_period_or_the_backoff() {
        let mut interval = interval(&CancellationToken::new()).backing_off(Backoff {
            first: Duration::from_millis(100),
            max: Duration::from_millis(150),
        });
        let mut pauses = vec![interval.pause.as_millis()];
        for outcome in [Ok(()), Err("down"), Err("down"), Ok(())] {
            interval.ended(&outcome);
            pauses.push(interval.pause.as_millis());
        }
        assert_eq!(pauses, [0, 500, 100, 150, 500]);
        interval.next_after(Duration::from_millis(7));
        assert_eq!(interval.pause.as_millis(), 7);
        interval.next_at_once();
        assert_eq!(interval.pause, Duration::ZERO);
    }

    #[tokio::test]
    async fn loop_waits_its_period_and_ends_when_the_origin_stops() {
        let stop = CancellationToken::new();
        let mut interval = interval(&stop).delayed();
        let before = Instant::now();
        assert!(interval.next().await);
        assert!(before.elapsed() >= PERIOD);
        stop.cancel();
        assert!(interval.is_stopping());
        interval.next_at_once();
        assert!(!interval.next().await);
    }
}
