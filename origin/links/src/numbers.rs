//! Allocates numbers for generated codes: reserves them in segments ahead of time, and hands them out without a lock.
//!
//! For each length, a task keeps a queue of codes filled. A new link takes the next code in one atomic step. Only the
//! background task calls Redis and SQL. A creation therefore waits for neither, unless they are down for longer than
//! the queue lasts.
//!
//! Two origins never hand out the same number. A number belongs to the origin that inserted its segment into the cold
//! store, for one round through all numbers. The counter in Redis only prevents origins from trying the same segment. A
//! number of an earlier round is reused only if [`SegmentUse`] permits it. If a process dies, the numbers in its queue
//! stay unused until the next round.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::info;
use weir_link::code::{Code, DomainId, Length, LinkId};
use weir_link::scramble::Numbering;
use weir_link::segment::{Plan, Segment, SegmentUse, Times};
use weir_link::spelling::CodeOptions;

use super::metrics::LinkMetrics;
use super::records::LinkRecords;
use super::store::LinkStore;
use weir_origin_core::background::{Backoff, Interval};
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// Minimum number of queued numbers, regardless of the segment length. At 10,000 links per second they last 0.4 s,
/// enough to fetch many segments.
const AHEAD: u64 = 4_000;

/// Codes computed per turn: other tasks on this thread wait for about a millisecond.
const CODES_A_TURN: usize = 32;

/// How long a creation waits for numbers before it is refused.
const WAIT_LIMIT: Duration = Duration::from_secs(2);

/// Backoff after Redis or SQL failed.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(50),
    max: Duration::from_secs(2),
};

/// The pause after segments that must not be reused, of which many may follow.
const SKIP_PAUSE: Duration = Duration::from_millis(5);

/// After this many consecutive fetches without a number, the pause is the longest of [`BACKOFF`]: no numbers may be
/// left.
const SKIPS_MAX: u32 = 1_000;

/// How long an origin waits for another one to open a round.
const WRAP_PAUSE: Duration = Duration::from_millis(50);

/// Reads the clock, in milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Dependencies of an allocator.
#[derive(Clone)]
pub struct AllocatorDeps {
    /// Stores the owners of segments.
    pub store: LinkStore,
    /// The counters in Redis.
    pub records: LinkRecords,
    /// How numbers become codes.
    pub numbering: Numbering,
    /// How the numbers of each length are divided into segments.
    pub plans: [Plan; Length::ALL.len()],
    /// Cooldowns of numbers.
    pub times: Times,
    /// Returns all domains that may have links.
    pub domains: Arc<dyn Fn() -> Arc<[DomainId]> + Send + Sync>,
    /// Metrics of links.
    pub metrics: LinkMetrics,
    /// Reads the clock.
    pub clock: Clock,
}

impl fmt::Debug for AllocatorDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocatorDeps").finish_non_exhaustive()
    }
}

/// No number was available in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no free number within {WAIT_LIMIT:?}")]
pub struct NoNumber;

#[derive(Debug)]
struct ReadyNumber {
    code: Code,
    use_by_ms: u64,
}

/// Ready codes of one length.
#[derive(Debug)]
struct Queue {
    plan: Plan,
    ready: ArrayQueue<ReadyNumber>,
    /// At this number of codes or fewer, the next segment is fetched.
    low: usize,
    requested: Notify,
    filled: Notify,
    /// End of the last segment in the cold store, as far as this origin has read it.
    floor: AtomicU64,
}

/// Hands out codes. Cloning is cheap.
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
            requested: Notify::new(),
            filled: Notify::new(),
            floor: AtomicU64::new(0),
        }
    }

    /// Number of segments that fit into the queue.
    fn room(&self) -> u64 {
        let free = self.ready.capacity().saturating_sub(self.ready.len());
        let segments = free as u64 / self.plan.segment_len();
        // A reservation never contains a segment twice.
        segments.min(self.plan.range().div_ceil(self.plan.segment_len()))
    }

    fn raise_floor(&self, last: Option<Segment>) {
        let position = last.map_or(0, |segment| self.plan.position_after(&segment));
        self.floor.fetch_max(position, Ordering::Relaxed);
    }
}

impl Allocator {
    /// Creates an allocator without numbers: [`Allocator::run`] fetches them.
    pub fn new(deps: AllocatorDeps) -> Self {
        let queues = Arc::new(deps.plans.map(Queue::new));
        let deps = Arc::new(deps);
        Self { deps, queues }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "there are as many queues as lengths"
    )]
    fn queue(&self, length: Length) -> &Queue {
        &self.queues[length.position()]
    }

    /// The segment plan of a length.
    pub fn plan(&self, length: Length) -> Plan {
        self.queue(length).plan
    }

    /// Takes a unique code, if one is ready.
    pub fn take(&self, length: Length) -> Option<Code> {
        let queue = self.queue(length);
        let mut code = None;
        while code.is_none()
            && let Some(ready) = queue.ready.pop()
        {
            // Later another origin may have the number.
            let is_fresh = (self.deps.clock)() < ready.use_by_ms;
            code = is_fresh.then_some(ready.code);
        }
        if queue.ready.len() <= queue.low {
            queue.requested.notify_one();
        }
        code
    }

    /// Takes a unique code; waits if none is ready.
    ///
    /// # Errors
    /// If none is available for 2 s.
    pub async fn next(&self, length: Length) -> Result<Code, NoNumber> {
        if let Some(code) = self.take(length) {
            return Ok(code);
        }
        self.deps.metrics.waited.inc();
        let wait = async {
            loop {
                // Register before the check, so that codes added in between also wake this task.
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

    /// Whether the number of this code may be handed out now or soon, or was recently.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn is_reserved(&self, length: Length, index: u64) -> Result<bool, SqlError> {
        let since_ms = (self.deps.clock)().saturating_sub(self.deps.times.hold_ms);
        let reserved = self
            .deps
            .store
            .segments()
            .is_reserved(length, index, since_ms);
        reserved.await
    }

    /// The number of a code in a domain with these options; `None` if it cannot be generated.
    pub fn index(&self, options: CodeOptions, code: &Code) -> Option<(Length, u64)> {
        let code = options.as_generated(code)?;
        let (length, _) = code.number()?;
        let range = self.plan(length).range();
        let index = self.deps.numbering.index(length, range, &code)?;
        Some((length, index))
    }

    /// Takes this code from the ready ones, so that no other link gets it. Returns false if it is not ready here.
    pub fn claim(&self, options: CodeOptions, code: &Code) -> bool {
        let Some(code) = options.as_generated(code) else {
            return false;
        };
        let Some((length, _)) = code.number() else {
            return false;
        };
        let queue = self.queue(length);
        let mut is_ours = false;
        for _ in 0..queue.ready.len() {
            let Some(ready) = queue.ready.pop() else {
                break;
            };
            if ready.code == code {
                is_ours = (self.deps.clock)() < ready.use_by_ms;
                continue;
            }
            // A code that does not fit stays unused until the next round.
            let _ = queue.ready.push(ready);
        }
        // Tasks that came meanwhile may have found the queue empty.
        queue.filled.notify_waiters();
        is_ours
    }

    /// Keeps the queue of one length filled until `stop`.
    pub async fn run(self, length: Length, stop: CancellationToken) {
        let queue = self.queue(length);
        let interval = Interval::every(Duration::ZERO, "reserving numbers for links", stop);
        let mut interval = interval.backing_off(BACKOFF);
        let mut skips = 0_u32;
        while interval.next().await {
            let filled = self.fill(queue).await;
            interval.ended(&filled);
            skips = match filled {
                Ok(FillOutcome::Skipped) => skips.saturating_add(1),
                Ok(_) => 0,
                Err(_) => skips,
            };
            match filled {
                Ok(FillOutcome::Already) => {
                    if !interval.wait(self.until_wanted(queue)).await {
                        return;
                    }
                }
                Ok(FillOutcome::Skipped) if skips < SKIPS_MAX => interval.next_after(SKIP_PAUSE),
                Ok(FillOutcome::Skipped) => interval.next_after(BACKOFF.max),
                Ok(FillOutcome::Some) | Err(_) => {}
            }
        }
    }

    /// Waits until numbers are needed. Drops numbers that expire meanwhile.
    async fn until_wanted(&self, queue: &Queue) {
        let old = Duration::from_millis(self.deps.times.hold_ms / 4);
        tokio::select! {
            () = queue.requested.notified() => {}
            () = tokio::time::sleep(old) => self.renew(queue),
        }
    }

    /// Drops numbers that expire soon. Otherwise a creation after a quiet day would have to wait.
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

    /// Fetches as many segments as fit.
    async fn fill(&self, queue: &Queue) -> Result<FillOutcome, Unavailable> {
        let room = queue.room();
        if room == 0 {
            return Ok(FillOutcome::Already);
        }
        let AllocatorDeps { store, records, .. } = &*self.deps;
        let length = queue.plan.length();
        if queue.floor.load(Ordering::Relaxed) == 0 {
            queue.raise_floor(store.segments().last_segment(length).await?);
        }
        let segment_len = queue.plan.segment_len();
        let floor = queue.floor.load(Ordering::Relaxed);
        let end = records.raise(length, room * segment_len, floor).await?;
        let position = |n: u64| end.saturating_sub((room - n) * segment_len);
        let segments: Vec<Segment> = (0..room)
            .map(|n| queue.plan.segment_at(position(n)))
            .collect();
        match self.reserve(queue, &segments).await? {
            0 => Ok(FillOutcome::Skipped),
            _ => Ok(FillOutcome::Some),
        }
    }

    /// Reserves segments and returns the number of added codes.
    async fn reserve(&self, queue: &Queue, segments: &[Segment]) -> Result<u64, Unavailable> {
        let AllocatorDeps { store, metrics, .. } = &*self.deps;
        let now_ms = (self.deps.clock)();
        let reserved = store.segments().reserve(segments, now_ms).await?;
        let mut added = 0;
        for (segment, is_ours) in segments.iter().zip(&reserved) {
            metrics.segment(*is_ours);
            if *is_ours {
                added += self.take_over(queue, segment, now_ms).await?;
                // Waiting creations need not wait for the other segments.
                queue.filled.notify_waiters();
            }
        }
        if reserved.contains(&false) {
            // The counter in Redis is behind: Redis lost its data.
            queue.raise_floor(store.segments().last_segment(queue.plan.length()).await?);
        }
        Ok(added)
    }

    /// Adds the numbers of an owned segment to the queue, if it may be handed out.
    async fn take_over(
        &self,
        queue: &Queue,
        segment: &Segment,
        now_ms: u64,
    ) -> Result<u64, Unavailable> {
        let codes = self.codes(&queue.plan, segment).await?;
        if segment.round > 0 {
            self.open_round(segment).await?;
            if !self.may_reuse(segment, &codes, now_ms).await? {
                self.deps.store.segments().release(segment).await?;
                return Ok(0);
            }
        }
        let use_by_ms = now_ms.saturating_add(self.deps.times.hold_ms);
        let mut added = 0;
        for code in codes {
            // It always fits: only this task adds codes.
            added += u64::from(queue.ready.push(ReadyNumber { code, use_by_ms }).is_ok());
        }
        Ok(added)
    }

    /// All codes of a segment except custom ones. Call it after the segment is reserved: later custom codes then find
    /// it reserved.
    async fn codes(&self, plan: &Plan, segment: &Segment) -> Result<Vec<Code>, Unavailable> {
        let customs = self.deps.store.segments().customs(segment).await?;
        let is_free = |index: &u64| customs.binary_search(index).is_err();
        let numbering = &self.deps.numbering;
        let mut codes = Vec::new();
        for (n, index) in segment.indexes().filter(is_free).enumerate() {
            if n % CODES_A_TURN == 0 {
                tokio::task::yield_now().await;
            }
            codes.extend(numbering.code(segment.length, plan.range(), index));
        }
        Ok(codes)
    }

    async fn may_reuse(
        &self,
        segment: &Segment,
        codes: &[Code],
        now_ms: u64,
    ) -> Result<bool, Unavailable> {
        let AllocatorDeps { store, records, .. } = &*self.deps;
        let reserved_at_ms = store
            .segments()
            .reserved_before(segment)
            .await?
            .unwrap_or(0);
        let mut held = SegmentUse {
            reserved_at_ms,
            is_in_store: false,
            is_in_redis: false,
        };
        let times = &self.deps.times;
        if held.may_be_reused(times, now_ms).is_ok() {
            // A domain may ignore case now, or may have done so before.
            let lower = codes.iter().filter_map(Code::in_lower_case);
            let codes: Vec<Code> = codes.iter().cloned().chain(lower).collect();
            for domain in (self.deps.domains)().iter() {
                held.is_in_store |= store.has_any(domain, &codes).await?;
                let id = |code: &Code| LinkId {
                    domain: domain.clone(),
                    code: code.clone(),
                };
                let ids: Vec<LinkId> = codes.iter().map(id).collect();
                held.is_in_redis |= records.has_any(&ids).await?;
            }
        }
        let decided = held.may_be_reused(times, now_ms);
        if let Err(skip) = decided {
            self.deps.metrics.segment_skipped(skip);
        }
        Ok(decided.is_ok())
    }

    /// Waits until the segment's round is open. The origin that holds the lock in Redis opens it.
    async fn open_round(&self, segment: &Segment) -> Result<(), Unavailable> {
        let AllocatorDeps { store, records, .. } = &*self.deps;
        let (length, round) = (segment.length, segment.round);
        while !store.segments().is_round_open(length, round).await? {
            if records.lock_wrap(length).await? {
                store
                    .segments()
                    .open_round(length, round, (self.deps.clock)())
                    .await?;
                records.unlock_wrap(length).await?;
                info!(%length, round, "all numbers are used; starting again at the first");
            } else {
                tokio::time::sleep(WRAP_PAUSE).await;
            }
        }
        Ok(())
    }
}

/// Result of filling a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FillOutcome {
    /// The queue was full.
    Already,
    /// Codes were added.
    Some,
    /// No codes were added: other origins own the segments, or they must not be reused yet.
    Skipped,
}
