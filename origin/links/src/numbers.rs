//! Numbers of generated codes: reserved ahead of time, in segments, and handed out without a lock.
//!
//! For each length a task keeps a queue of codes filled. Making a link takes the next code from it in one atomic step;
//! Redis and SQL are asked in the background only. So a creation waits for neither, unless they have been down for as
//! long as the queue lasts.
//!
//! Two origins never hand out the same number: a number belongs to the origin that inserted its segment into the cold
//! store, in a round through all numbers; the counter in Redis only keeps origins from trying the same segment. A
//! number of an earlier round is handed out again only as [`SegmentUse`] allows. What a process has in
//! its queue when it dies is left for the next round.

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

/// The least numbers that are kept ready, whatever the segments' length: at 10,000 links a second they last 0.4 s,
/// in which many segments can be fetched.
const AHEAD: u64 = 4_000;

/// Codes that are computed in one turn: others on this thread wait for about a millisecond.
const CODES_A_TURN: usize = 32;

/// How long a creation waits for numbers before it is refused.
const WAIT_LIMIT: Duration = Duration::from_secs(2);

/// The pause after Redis or SQL failed.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(50),
    max: Duration::from_secs(2),
};

/// The pause after segments that may not be reused, of which there may be very many.
const SKIP_PAUSE: Duration = Duration::from_millis(5);

/// After so many fetches in a row without a number the pause is the longest of [`BACKOFF`]: there may be none left.
const SKIPS_MAX: u32 = 1_000;

/// How long an origin waits for another one to open a round.
const WRAP_PAUSE: Duration = Duration::from_millis(50);

/// Reads the clock, in milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What an allocator needs.
#[derive(Clone)]
pub struct AllocatorDeps {
    /// Who owns which segment.
    pub store: LinkStore,
    /// The counters.
    pub records: LinkRecords,
    /// How numbers become codes.
    pub numbering: Numbering,
    /// How the numbers of each length are parted.
    pub plans: [Plan; Length::ALL.len()],
    /// For how long numbers are kept from others.
    pub times: Times,
    /// Tells every domain that may have links.
    pub domains: Arc<dyn Fn() -> Arc<[DomainId]> + Send + Sync>,
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
#[error("no free number within {WAIT_LIMIT:?}")]
pub struct NoNumber;

#[derive(Debug)]
struct ReadyNumber {
    code: Code,
    use_by_ms: u64,
}

/// Codes of one length that are ready.
#[derive(Debug)]
struct Queue {
    plan: Plan,
    ready: ArrayQueue<ReadyNumber>,
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

    #[expect(
        clippy::indexing_slicing,
        reason = "there are as many queues as lengths"
    )]
    fn queue(&self, length: Length) -> &Queue {
        &self.queues[length.position()]
    }

    /// The plan of a length.
    pub fn plan(&self, length: Length) -> Plan {
        self.queue(length).plan
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
    pub async fn is_reserved(&self, length: Length, index: u64) -> Result<bool, SqlError> {
        let since_ms = (self.deps.clock)().saturating_sub(self.deps.times.hold_ms);
        let reserved = self
            .deps
            .store
            .segments()
            .is_reserved(length, index, since_ms);
        reserved.await
    }

    /// Which number a code has under a domain with these options, if it is one that may be generated.
    pub fn index(&self, options: CodeOptions, code: &Code) -> Option<(Length, u64)> {
        let code = options.as_generated(code)?;
        let (length, _) = code.number()?;
        let range = self.plan(length).range();
        let index = self.deps.numbering.index(length, range, &code)?;
        Some((length, index))
    }

    /// Takes this very code from those that are ready: then nobody else gets it. False if it is none of them.
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
            // One that finds no place is left for the next round.
            let _ = queue.ready.push(ready);
        }
        // Who has come meanwhile may have found none.
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

    /// Returns when numbers were taken. Those that get old meanwhile are dropped.
    async fn until_wanted(&self, queue: &Queue) {
        let old = Duration::from_millis(self.deps.times.hold_ms / 4);
        tokio::select! {
            () = queue.wanted.notified() => {}
            () = tokio::time::sleep(old) => self.renew(queue),
        }
    }

    /// Drops numbers that soon expire: otherwise a creation after a quiet day would have to wait.
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

    /// How many numbers there are more.
    async fn reserve(&self, queue: &Queue, segments: &[Segment]) -> Result<u64, Unavailable> {
        let AllocatorDeps { store, metrics, .. } = &*self.deps;
        let now_ms = (self.deps.clock)();
        let reserved = store.segments().reserve(segments, now_ms).await?;
        let mut added = 0;
        for (segment, is_ours) in segments.iter().zip(&reserved) {
            metrics.segment(*is_ours);
            if *is_ours {
                added += self.take_over(queue, segment, now_ms).await?;
                // Who waits need not wait for the other segments.
                queue.filled.notify_waiters();
            }
        }
        if reserved.contains(&false) {
            // Redis' counter is behind: it lost its data.
            queue.raise_floor(store.segments().last_segment(queue.plan.length()).await?);
        }
        Ok(added)
    }

    /// Puts the numbers of a segment that is ours into the queue, if it may be handed out.
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
            // There is room: only this task adds.
            added += u64::from(queue.ready.push(ReadyNumber { code, use_by_ms }).is_ok());
        }
        Ok(added)
    }

    /// All codes of a segment except those that people have chosen. To be called after the segment was reserved:
    /// whoever chooses one from now on finds it reserved.
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

    /// Returns once the segment's round is open. The origin with the lock in Redis opens it.
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

/// What came of filling a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FillOutcome {
    /// It is full.
    Already,
    /// There are more numbers than before.
    Some,
    /// No number that was asked for may be handed out.
    Skipped,
}
