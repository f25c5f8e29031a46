//! Sends what waits for one receiver: leases subjects, sends their changes in turn, notes what became of them.

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

/// Subjects that are told of at the same time. While a receiver is away, one is enough to notice that it is back.
const AT_ONCE: usize = 16;

/// The pause between two tries while a receiver is away, in periods.
const OUTAGE_PERIODS: u32 = 4;

/// The most changes of one subject that are read at once.
const CHANGES_MAX: usize = 100;

/// How often is counted what waits, and pruned what was sent.
const MEASURE_PERIOD: Duration = Duration::from_secs(5);

/// How often is pruned then, at most: what is to be sent waits meanwhile.
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

/// What is under way.
struct Work {
    /// Who leases: another number for each start, so that what an earlier one left is not taken for this one's.
    holder: u32,
    tasks: JoinSet<SendOutcome>,
    /// What has ended and is not noted.
    ended: Vec<SendOutcome>,
    /// Subjects that have failed since one was sent.
    failures: usize,
}

impl Work {
    /// Whether so many have failed in a row that the receiver is away, rather than a change bad.
    fn is_outage(&self) -> bool {
        self.failures >= AT_ONCE
    }
}

impl Outbox {
    /// Sends what waits in `queue` for the receiver of this name.
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

    /// Works until `stop`. What is under way then is broken off, and given to other origins at once.
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

    /// Waits until something is to be done: a task has ended, or a round is due. False once the origin stops.
    async fn next(&self, interval: &mut Interval, work: &mut Work) -> bool {
        if work.tasks.is_empty() || interval.is_failing() {
            return interval.next().await;
        }
        let Work { tasks, ended, .. } = work;
        let first = async {
            tokio::select! {
                // One that panicked is not noted: its lease runs out.
                one = tasks.join_next() => ended.extend(one.and_then(Result::ok)),
                () = tokio::time::sleep(self.times.period) => {}
            }
        };
        interval.wait(first).await
    }

    /// Notes what has ended, and begins as much anew.
    async fn round(&self, work: &mut Work) -> Result<(), SqlError> {
        let settled = self.settle(work).await?;
        let room_max = match work.is_outage() {
            // After a pause.
            true if settled > 0 => 0,
            true => 1,
            false => AT_ONCE,
        };
        match room_max.saturating_sub(work.tasks.len()) {
            0 => Ok(()),
            room => self.begin(work, room).await,
        }
    }

    /// Notes what has ended; how many subjects that were.
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
        // Half of it: a request that begins in time has ended before others may begin.
        let until = Instant::now() + self.times.lease / 2;
        for one in leased {
            let (outbox, holder) = (self.clone(), work.holder);
            work.tasks
                .spawn(async move { outbox.send(one, holder, until).await });
        }
        Ok(())
    }

    /// Sends a subject's changes in turn, up to the first that fails.
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

    /// Notes each delivered change before it sends the next one: if the origin dies, at most one is sent again, and none after a
    /// later one.
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
                let noted = self.queue.advance(self.name, holder, leased, *next_seq);
                if !noted.await.map_err(|error| error.to_string())? {
                    // Another origin has it.
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

/// A number that no other origin has, as good as surely; never 0, which is nobody's.
fn holder() -> u32 {
    let mut bytes = [0; 4];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u32::from_ne_bytes(bytes).max(1),
        // Without random numbers, the process' own. Origins of one machine still differ.
        Err(_) => std::process::id().max(1),
    }
}
