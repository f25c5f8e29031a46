//! Numbers of generated codes: reserved in segments, ahead of time, and handed out without a lock.
//!
//! A task a length keeps a queue of codes filled. Whoever makes a link takes the next code from it, which is
//! one atomic step; Redis and SQL are asked in the background only. So a creation waits for neither, unless
//! they have been away for as long as the queue lasts.
//!
//! Two origins never hand out one number: a number belongs to whoever has inserted its segment into the cold
//! store, in a round through all numbers; the counter in Redis only keeps origins from asking for the same
//! segment. A number of an earlier round is handed out again only as [`SegmentUse`] allows. What a process has in
//! its queue when it dies is left for the next round.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use weir_link::code::{Code, DomainId, Length, LinkId};
use weir_link::scramble::Numbering;
use weir_link::segment::{Plan, Segment, SegmentUse, Times};

use super::metrics::LinkMetrics;
use super::redis::LinkRecords;
use super::store::LinkStore;
use crate::ledger::LedgerError;
use crate::store::StoreError;

/// How many numbers are held ready at least, whatever the segments' length: at 10,000 links a second they
/// last 0.4 s, in which a segment is fetched many times over.
const AHEAD: u64 = 4_000;

/// How long a creation waits for numbers before it is refused.
const WAIT_LIMIT: Duration = Duration::from_secs(2);

/// The pause after Redis or SQL failed, doubled up to [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE: Duration = Duration::from_millis(50);

const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The pause after segments that may not be handed out again, of which there may be very many.
const SKIP_PAUSE: Duration = Duration::from_millis(5);

/// After so many fetches in a row without a number the pause is [`RETRY_PAUSE_MAX`]: there may be none left.
const SKIPS_MAX: u32 = 1_000;

/// How long an origin waits for another one to open a round.
const WRAP_PAUSE: Duration = Duration::from_millis(50);

/// Reads the clock, in milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What an allocator stands on.
#[derive(Clone)]
pub struct AllocatorDeps {
    /// Who owns which segment.
    pub store: Arc<dyn LinkStore>,
    /// The counters.
    pub redis: LinkRecords,
    /// How numbers become codes.
    pub numbering: Numbering,
    /// How the numbers of each length are parted.
    pub plans: [Plan; Length::ALL.len()],
    /// For how long numbers are kept from others.
    pub times: Times,
    /// Every domain that may have links.
    pub domains: Vec<DomainId>,
    /// What is counted.
    pub metrics: LinkMetrics,
    /// Reads the clock.
    pub clock: Clock,
}

impl fmt::Debug for AllocatorDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocatorDeps").finish_non_exhaustive()
    }
}

/// There was no number in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no number within {WAIT_LIMIT:?}")]
pub struct NoNumber;

/// Why a segment could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Redis(#[from] LedgerError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug)]
struct Ready {
    code: Code,
    use_by_ms: u64,
}

/// Codes of one length that are ready.
#[derive(Debug)]
struct Queue {
    plan: Plan,
    ready: ArrayQueue<Ready>,
    /// With so many or fewer the next segment is fetched.
    low: usize,
    wanted: Notify,
    filled: Notify,
    /// Where the cold store's last segment ends, as far as it is known here.
    floor: AtomicU64,
}

/// Hands out codes. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Allocator {
    deps: Arc<AllocatorDeps>,
    queues: Arc<[Queue; Length::ALL.len()]>,
}

impl Queue {
    fn new(plan: Plan) -> Self {
        let segments = AHEAD.div_ceil(plan.segment_len()).clamp(2, 64);
        let capacity = segments.saturating_mul(plan.segment_len());
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        let segment_len = usize::try_from(plan.segment_len()).unwrap_or(usize::MAX);
        Self {
            plan,
            ready: ArrayQueue::new(capacity),
            low: capacity.saturating_sub(segment_len),
            wanted: Notify::new(),
            filled: Notify::new(),
            floor: AtomicU64::new(0),
        }
    }

    /// Segments that it has room for.
    fn room(&self) -> u64 {
        let free = self.ready.capacity().saturating_sub(self.ready.len());
        let segments = free as u64 / self.plan.segment_len();
        // Never a segment twice in one reservation.
        segments.min(self.plan.range().div_ceil(self.plan.segment_len()))
    }

    fn raise_floor(&self, last: Option<Segment>) {
        let position = last.map_or(0, |segment| self.plan.position_after(&segment));
        self.floor.fetch_max(position, Ordering::Relaxed);
    }
}

impl Allocator {
    /// An allocator without numbers: [`Allocator::run`] fetches them.
    pub fn new(deps: AllocatorDeps) -> Self {
        let queues = Arc::new(deps.plans.map(Queue::new));
        let deps = Arc::new(deps);
        Self { deps, queues }
    }

    fn queue(&self, length: Length) -> &Queue {
        // As many queues as there are lengths.
        &self.queues[length.position()]
    }

    /// The plan of a length.
    pub fn plan(&self, length: Length) -> Plan {
        self.queue(length).plan
    }

    /// How numbers become codes.
    pub fn numbering(&self) -> &Numbering {
        &self.deps.numbering
    }

    /// A code that nobody else gets; at once, if any is ready.
    pub fn take(&self, length: Length) -> Option<Code> {
        let queue = self.queue(length);
        let mut code = None;
        while code.is_none()
            && let Some(ready) = queue.ready.pop()
        {
            // Later another origin may have it.
            let is_fresh = (self.deps.clock)() < ready.use_by_ms;
            code = is_fresh.then_some(ready.code);
        }
        if queue.ready.len() <= queue.low {
            queue.wanted.notify_one();
        }
        code
    }

    /// A code that nobody else gets.
    ///
    /// # Errors
    /// When there is none for 2 s.
    pub async fn next(&self, length: Length) -> Result<Code, NoNumber> {
        if let Some(code) = self.take(length) {
            return Ok(code);
        }
        self.deps.metrics.waited.inc();
        let wait = async {
            loop {
                // Before the look: what comes in between wakes this one, too.
                let filled = self.queue(length).filled.notified();
                if let Some(code) = self.take(length) {
                    return code;
                }
                filled.await;
            }
        };
        let code = tokio::time::timeout(WAIT_LIMIT, wait).await;
        code.map_err(|_| NoNumber)
    }

    /// Whether the number of this code may be handed out, now or soon, or was lately.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn is_reserved(&self, length: Length, index: u64) -> Result<bool, StoreError> {
        let since_ms = (self.deps.clock)().saturating_sub(self.deps.times.hold_ms);
        let reserved = self.deps.store.is_reserved(length, index, since_ms);
        reserved.await
    }

    /// Keeps the queue of one length filled until `stop`.
    pub async fn run(self, length: Length, stop: CancellationToken) {
        let queue = self.queue(length);
        let (mut pause, mut skips) = (RETRY_PAUSE, 0_u32);
        while !stop.is_cancelled() {
            let rest = match self.fill(queue).await {
                Ok(filled) => {
                    pause = RETRY_PAUSE;
                    skips = if filled == Filled::Skipped {
                        skips.saturating_add(1)
                    } else {
                        0
                    };
                    filled.rest(skips)
                }
                Err(error) => {
                    if pause == RETRY_PAUSE {
                        warn!(%error, %length, "no numbers for links; trying again");
                    }
                    let rest = pause;
                    pause = (pause * 2).min(RETRY_PAUSE_MAX);
                    Rest::For(rest)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.rest(queue, rest) => {}
            }
        }
    }

    async fn rest(&self, queue: &Queue, rest: Rest) {
        let old = Duration::from_millis(self.deps.times.hold_ms / 4);
        match rest {
            Rest::For(pause) => tokio::time::sleep(pause).await,
            Rest::UntilWanted => tokio::select! {
                () = queue.wanted.notified() => {}
                () = tokio::time::sleep(old) => self.renew(queue),
            },
        }
    }

    /// Drops what is not fresh for long: a creation after a quiet day would have to wait.
    fn renew(&self, queue: &Queue) {
        let soon_ms = (self.deps.clock)().saturating_add(self.deps.times.hold_ms / 2);
        for _ in 0..queue.ready.len() {
            let Some(ready) = queue.ready.pop() else {
                return;
            };
            if ready.use_by_ms > soon_ms {
                let _ = queue.ready.push(ready);
            }
        }
    }

    /// Fetches as many segments as there is room for.
    async fn fill(&self, queue: &Queue) -> Result<Filled, FetchError> {
        let room = queue.room();
        if room == 0 {
            return Ok(Filled::Already);
        }
        let AllocatorDeps { store, redis, .. } = &*self.deps;
        let length = queue.plan.length();
        if queue.floor.load(Ordering::Relaxed) == 0 {
            queue.raise_floor(store.last_segment(length).await?);
        }
        let segment_len = queue.plan.segment_len();
        let floor = queue.floor.load(Ordering::Relaxed);
        let end = redis.raise(length, room * segment_len, floor).await?;
        let position = |n: u64| end.saturating_sub((room - n) * segment_len);
        let segments: Vec<Segment> = (0..room)
            .map(|n| queue.plan.segment_at(position(n)))
            .collect();
        let added = self.reserve(queue, &segments).await?;
        queue.filled.notify_waiters();
        match added {
            0 => Ok(Filled::Skipped),
            _ => Ok(Filled::Some),
        }
    }

    /// How many numbers there are more.
    async fn reserve(&self, queue: &Queue, segments: &[Segment]) -> Result<u64, FetchError> {
        let AllocatorDeps { store, metrics, .. } = &*self.deps;
        let now_ms = (self.deps.clock)();
        let reserved = store.reserve(segments, now_ms).await?;
        let mut added = 0;
        for (segment, is_ours) in segments.iter().zip(&reserved) {
            metrics.segment(*is_ours);
            if *is_ours {
                added += self.take_over(queue, segment, now_ms).await?;
            }
        }
        if reserved.contains(&false) {
            // Redis' counter is behind: it lost its data.
            queue.raise_floor(store.last_segment(queue.plan.length()).await?);
        }
        Ok(added)
    }

    /// Puts the numbers of a segment that is ours into the queue, if it may be handed out.
    async fn take_over(
        &self,
        queue: &Queue,
        segment: &Segment,
        now_ms: u64,
    ) -> Result<u64, FetchError> {
        let codes = self.codes(&queue.plan, segment).await?;
        if segment.round > 0 {
            self.open_round(segment).await?;
            if !self.may_reuse(segment, &codes, now_ms).await? {
                self.deps.store.release(segment).await?;
                return Ok(0);
            }
        }
        let use_by_ms = now_ms.saturating_add(self.deps.times.hold_ms);
        let mut added = 0;
        for code in codes {
            // There is room: only this task adds.
            added += u64::from(queue.ready.push(Ready { code, use_by_ms }).is_ok());
        }
        Ok(added)
    }

    /// All codes of a segment, but those that people have chosen. Asked for after the segment was reserved:
    /// whoever chooses one from now on finds it reserved.
    async fn codes(&self, plan: &Plan, segment: &Segment) -> Result<Vec<Code>, FetchError> {
        let customs = self.deps.store.customs(segment).await?;
        let is_free = |index: &u64| customs.binary_search(index).is_err();
        let numbering = &self.deps.numbering;
        let code = |index| numbering.code(segment.length, plan.range(), index);
        Ok(segment.indexes().filter(is_free).filter_map(code).collect())
    }

    async fn may_reuse(
        &self,
        segment: &Segment,
        codes: &[Code],
        now_ms: u64,
    ) -> Result<bool, FetchError> {
        let AllocatorDeps { store, redis, .. } = &*self.deps;
        let reserved_at_ms = store.reserved_before(segment).await?.unwrap_or(0);
        let mut held = SegmentUse {
            reserved_at_ms,
            is_in_store: false,
            is_in_redis: false,
        };
        let times = &self.deps.times;
        if held.may_be_reused(times, now_ms).is_ok() {
            for domain in &self.deps.domains {
                held.is_in_store |= store.has_any(domain, codes).await?;
                let id = |code: &Code| LinkId {
                    domain: domain.clone(),
                    code: code.clone(),
                };
                let ids: Vec<LinkId> = codes.iter().map(id).collect();
                held.is_in_redis |= redis.has_any(&ids).await?;
            }
        }
        let decided = held.may_be_reused(times, now_ms);
        if let Err(skip) = decided {
            self.deps.metrics.segment_skipped(skip);
        }
        Ok(decided.is_ok())
    }

    /// Returns once the segment's round is open. One origin opens it: who gets the lock in Redis.
    async fn open_round(&self, segment: &Segment) -> Result<(), FetchError> {
        let AllocatorDeps { store, redis, .. } = &*self.deps;
        let (length, round) = (segment.length, segment.round);
        while !store.is_round_open(length, round).await? {
            if redis.lock_wrap(length).await? {
                store.open_round(length, round, (self.deps.clock)()).await?;
                redis.unlock_wrap(length).await?;
                info!(%length, round, "all numbers were gone through; they begin again");
            } else {
                tokio::time::sleep(WRAP_PAUSE).await;
            }
        }
        Ok(())
    }
}

/// What came of filling a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    /// It is full.
    Already,
    /// There are more numbers than before.
    Some,
    /// No number that was asked for may be handed out.
    Skipped,
}

/// What a filler does next.
enum Rest {
    /// Nothing for so long.
    For(Duration),
    /// Nothing until numbers are taken.
    UntilWanted,
}

impl Filled {
    fn rest(self, skips: u32) -> Rest {
        match self {
            Self::Already => Rest::UntilWanted,
            Self::Some => Rest::For(Duration::ZERO),
            Self::Skipped if skips < SKIPS_MAX => Rest::For(SKIP_PAUSE),
            Self::Skipped => Rest::For(RETRY_PAUSE_MAX),
        }
    }
}
