//! Sends changes to one receiver: leases subjects, sends their changes in order, stores the outcomes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{LeasedSubject, Meter, OutboxTimes, Queue, SendOutcome, Sink, SinkName};
use crate::background::Interval;
use crate::clock::now_ms;
use crate::sql::SqlError;
use crate::tenants::NameRange;

/// Maximum number of subjects sent concurrently. While a receiver is down, one is enough to detect its recovery.
const AT_ONCE: usize = 16;

/// Pause between two tries while a receiver is down, in periods.
const OUTAGE_PERIODS: u32 = 4;

/// Maximum number of changes of one subject read at once.
const CHANGES_MAX: usize = 100;

/// Interval between two measurements of the backlog, each followed by pruning.
const MEASURE_PERIOD: Duration = Duration::from_secs(5);

/// Maximum number of prune transactions per measurement, because changes to send wait meanwhile.
const PRUNED_MAX: usize = 50;

/// Sends changes to one receiver.
#[derive(Clone, Debug)]
pub struct Outbox {
    name: SinkName,
    sink: Arc<dyn Sink>,
    queue: Queue,
    meter: Arc<dyn Meter>,
    times: OutboxTimes,
}

/// Subjects in progress and their outcomes.
struct Work {
    /// Lease holder: a new number per start, so that leases of an earlier start are not mistaken for this one's.
    holder: u32,
    tasks: JoinSet<SendOutcome>,
    /// Outcomes that are not stored yet.
    ended: Vec<SendOutcome>,
    /// Number of failed subjects since the last sent change.
    failures: usize,
}

impl Work {
    /// Whether so many subjects failed in a row that the receiver is down, rather than one change invalid.
    fn is_outage(&self) -> bool {
        self.failures >= AT_ONCE
    }
}

impl Outbox {
    /// Sends the changes in `queue` to this receiver.
    pub fn new(
        name: SinkName,
        sink: Arc<dyn Sink>,
        queue: Queue,
        meter: Arc<dyn Meter>,
        times: OutboxTimes,
    ) -> Self {
        Self {
            name,
            sink,
            queue,
            meter,
            times,
        }
    }

    /// Runs until `stop`. Then cancels running deliveries, and ends their leases so that other origins can continue at
    /// once.
    pub async fn run(self, stop: CancellationToken) {
        let mut work = Work {
            holder: holder(),
            tasks: JoinSet::new(),
            ended: Vec::new(),
            failures: 0,
        };
        let mut interval = Interval::every(self.times.period, "sending changes", stop);
        let mut measured: Option<Instant> = None;
        while self.next(&mut interval, &mut work).await {
            let outcome = self.round(&mut work).await;
            interval.ended(&outcome);
            if work.is_outage() {
                interval.next_after(self.times.period * OUTAGE_PERIODS);
            }
            if measured.is_none_or(|at| at.elapsed() >= MEASURE_PERIOD) {
                measured = Some(Instant::now());
                if let Err(error) = self.measure().await {
                    warn!(%error, "cannot count undelivered changes");
                }
            }
        }
        if let Err(error) = self.stop(work).await {
            warn!(%error, "cannot release outbox leases; they expire");
        }
    }

    async fn stop(&self, mut work: Work) -> Result<(), SqlError> {
        self.settle(&mut work).await?;
        work.tasks.shutdown().await;
        let release = self.queue.release(self.name, work.holder, now_ms());
        release.await
    }

    /// Waits until a delivery has ended or a round is due. Returns false once the origin stops.
    async fn next(&self, interval: &mut Interval, work: &mut Work) -> bool {
        if work.tasks.is_empty() || interval.is_failing() {
            return interval.next().await;
        }
        let Work { tasks, ended, .. } = work;
        let first = async {
            tokio::select! {
                // A panicked delivery has no outcome; its lease expires.
                one = tasks.join_next() => ended.extend(one.and_then(Result::ok)),
                () = tokio::time::sleep(self.times.period) => {}
            }
        };
        interval.wait(first).await
    }

    /// Stores outcomes, and starts as many new deliveries as allowed.
    async fn round(&self, work: &mut Work) -> Result<(), SqlError> {
        let settled = self.settle(work).await?;
        let room_max = match work.is_outage() {
            // Pause first.
            true if settled > 0 => 0,
            true => 1,
            false => AT_ONCE,
        };
        match room_max.saturating_sub(work.tasks.len()) {
            0 => Ok(()),
            room => self.begin(work, room).await,
        }
    }

    /// Stores outcomes. Returns the number of subjects.
    async fn settle(&self, work: &mut Work) -> Result<usize, SqlError> {
        let mut sent = std::mem::take(&mut work.ended);
        while let Some(ended) = work.tasks.try_join_next() {
            sent.extend(ended);
        }
        if sent.is_empty() {
            return Ok(0);
        }
        for one in &sent {
            self.note(work, one);
        }
        let settled = self.queue.settle(self.name, work.holder, &sent);
        settled.await?;
        Ok(sent.len())
    }

    async fn begin(&self, work: &mut Work, room: usize) -> Result<(), SqlError> {
        let now_ms = now_ms();
        let until_ms = now_ms.saturating_add(ms(self.times.lease));
        let leased = self
            .queue
            .lease(self.name, work.holder, now_ms, until_ms, room);
        let leased = leased.await?;
        // Half the lease: a request that starts in time ends before another origin can lease the subject.
        let until = Instant::now() + self.times.lease / 2;
        for one in leased {
            let (outbox, holder) = (self.clone(), work.holder);
            work.tasks
                .spawn(async move { outbox.send(one, holder, until).await });
        }
        Ok(())
    }

    /// Sends a subject's changes in order, up to the first that fails.
    async fn send(self, mut leased: LeasedSubject, holder: u32, until: Instant) -> SendOutcome {
        let (first_seq, mut next_seq) = (leased.next_seq, leased.next_seq);
        let sent = self.send_from(&mut leased, &mut next_seq, holder, until);
        let error = sent.await.err();
        let tries = match next_seq > first_seq {
            true => 1,
            false => leased.tries.saturating_add(1),
        };
        let pause = match error {
            Some(_) => self.times.backoff.pause(tries),
            None => Duration::ZERO,
        };
        SendOutcome {
            leased,
            next_seq,
            error,
            due_at_ms: now_ms().saturating_add(ms(pause)),
        }
    }

    /// Stores each delivered change before it sends the next one. If the origin crashes, at most one change is
    /// repeated, and none after a later one.
    async fn send_from(
        &self,
        leased: &mut LeasedSubject,
        next_seq: &mut u64,
        holder: u32,
        until: Instant,
    ) -> Result<(), String> {
        let changes = self.queue.changes(&leased.subject, *next_seq, CHANGES_MAX);
        let changes = changes.await.map_err(|error| error.to_string())?;
        for change in changes {
            if Instant::now() >= until {
                return Ok(());
            }
            if *next_seq > leased.next_seq {
                let recorded = self.queue.advance(self.name, holder, leased, *next_seq);
                if !recorded.await.map_err(|error| error.to_string())? {
                    // Another origin has leased the subject.
                    return Ok(());
                }
                (leased.next_seq, leased.tries) = (*next_seq, 0);
            }
            self.sink.deliver(&change).await?;
            *next_seq = change.seq + 1;
            self.meter.count_delivery(self.name, "sent");
        }
        Ok(())
    }

    fn note(&self, work: &mut Work, sent: &SendOutcome) {
        let Some(error) = &sent.error else {
            if work.is_outage() {
                info!(
                    receiver = self.name.label(),
                    "the receiver accepts changes again"
                );
            }
            work.failures = 0;
            return;
        };
        self.meter.count_delivery(self.name, "failed");
        work.failures += 1;
        if work.failures == 1 || work.failures == AT_ONCE {
            let (receiver, subject) = (self.name.label(), &sent.leased.subject);
            warn!(receiver, %subject, error, "cannot deliver a change; retrying");
        }
    }

    async fn measure(&self) -> Result<(), SqlError> {
        let all = NameRange::default();
        let backlog = self.queue.backlog(self.name, &all).await?;
        let now_ms = now_ms();
        self.meter.backlog(self.name, backlog, now_ms);
        let before_ms = now_ms.saturating_sub(ms(self.times.retention));
        for _ in 0..PRUNED_MAX {
            if !self.queue.prune(before_ms).await? {
                break;
            }
        }
        Ok(())
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A random number that is unique among origins with high probability; never 0, which means no holder.
fn holder() -> u32 {
    let mut bytes = [0; 4];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u32::from_ne_bytes(bytes).max(1),
        // Without random numbers use the process id, which is unique on one machine.
        Err(_) => std::process::id().max(1),
    }
}
