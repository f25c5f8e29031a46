//! Numbers are never handed out twice, even if origins die and Redis loses data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};
use weir_link::code::{Code, DomainId, Length, LinkId};
use weir_link::record::Link;
use weir_link::scramble::{Numbering, Scramble};
use weir_link::segment::{Plan, Times};
use weir_origin::links::metrics::LinkMetrics;
use weir_origin::links::model::labels::Labels;
use weir_origin::links::numbers::{Allocator, AllocatorDeps};
use weir_origin::links::records::{LinkRecords, Record};
use weir_origin::links::store::{LinkStore, NewLink};
use weir_origin::metrics::Metrics;
use weir_origin::origin::open_database;
use weir_origin::redis::Redis;
use weir_stack::redis::RedisServer;

use crate::support;

/// Time limit of a wait: other tests run at the same time.
const LIMIT: Duration = Duration::from_secs(60);

const TIMES: Times = Times {
    hold_ms: 1_000,
    quarantine_ms: 100,
};

/// A separate Redis that may be flushed, a database, and a clock that only moves when the test sets it.
struct NumberFixture {
    _dir: TempDir,
    server: RedisServer,
    store: LinkStore,
    clock: Arc<AtomicU64>,
    metrics: Metrics,
    plan: Plan,
    numbering: Numbering,
}

/// An origin's allocator; dropping it simulates a crash with all queued numbers.
struct Origin {
    allocator: Allocator,
    _stop: DropGuard,
}

fn domain() -> DomainId {
    DomainId::new("s").unwrap()
}

impl NumberFixture {
    async fn new(url: Option<String>, plan: Plan, numbering: Numbering) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sqlite = || format!("sqlite://{}/weir.db", dir.path().display());
        let url = url.unwrap_or_else(sqlite);
        Self {
            server: support::redis(&dir).await,
            store: LinkStore::new(open_database(&url).await.unwrap()),
            clock: Arc::new(AtomicU64::new(1_000_000)),
            metrics: Metrics::default(),
            plan,
            numbering,
            _dir: dir,
        }
    }

    fn redis(&self) -> LinkRecords {
        LinkRecords::new(Redis::new(&self.server.url(), "numbers").unwrap())
    }

    fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn later(&self, ms: u64) {
        self.clock.fetch_add(ms, Ordering::Relaxed);
    }

    fn origin(&self) -> Origin {
        let clock = self.clock.clone();
        let mut plans = Length::ALL.map(Plan::standard);
        plans[self.plan.length().position()] = self.plan;
        let allocator = Allocator::new(AllocatorDeps {
            store: self.store.clone(),
            records: self.redis(),
            numbering: self.numbering.clone(),
            plans,
            times: TIMES,
            domains: Arc::new(|| [domain()].into()),
            metrics: LinkMetrics::register(&self.metrics),
            clock: Arc::new(move || clock.load(Ordering::Relaxed)),
        });
        let stop = CancellationToken::new();
        tokio::spawn(allocator.clone().run(self.plan.length(), stop.clone()));
        let _stop = stop.drop_guard();
        Origin { allocator, _stop }
    }

    async fn flush(&self) {
        let mut redis = weir_stack::redis::connect(&self.server.url())
            .await
            .unwrap();
        let flush = redis::cmd("FLUSHALL");
        let (): () = flush.query_async(&mut redis).await.unwrap();
    }

    /// Stores a link with this code in the cold store; it ends at `ends_at_ms`.
    async fn store_link(&self, code: &Code, ends_at_ms: u64) {
        let link = NewLink {
            id: link_id(code),
            record: String::from_utf8(Link::to("https://example.com/").encode()).unwrap(),
            labels: Labels::default(),
            life_ms: 0,
            ends_at_ms,
            created_at_ms: self.now_ms(),
        };
        assert!(
            self.store.log().insert(&link).await.unwrap(),
            "{code} twice"
        );
    }

    async fn put_into_redis(&self, code: &Code) {
        let id = link_id(code);
        let record = Record {
            id: &id,
            record: "0 0 {\"t\":\"https://example.com/\"}",
            life_ms: None,
        };
        assert!(self.redis().create(record).await.unwrap());
    }
}

impl Origin {
    async fn next(&self, length: Length) -> Code {
        let next = async {
            loop {
                if let Ok(code) = self.allocator.next(length).await {
                    return code;
                }
            }
        };
        tokio::time::timeout(LIMIT, next).await.unwrap()
    }
}

fn link_id(code: &Code) -> LinkId {
    LinkId {
        domain: domain(),
        code: code.clone(),
    }
}

fn small(range: u64, segment_len: u64) -> Plan {
    Plan::new(Length::MIN, range, segment_len).unwrap()
}

fn scrambled() -> Numbering {
    Numbering::scrambled(Scramble::new(&[3; 32]).unwrap())
}

/// Eight origins at once, one of which dies every few turns; Redis loses all data in the middle.
async fn eight_origins(place: NumberFixture) {
    let mut origins: Vec<Arc<Origin>> = (0..8).map(|_| Arc::new(place.origin())).collect();
    let mut observed: BTreeMap<Code, usize> = BTreeMap::new();
    for turn in 0..40 {
        if turn == 20 {
            place.flush().await;
        }
        let takes = origins.iter().cloned().map(|origin| {
            let take = async move {
                let mut codes = Vec::new();
                for _ in 0..250 {
                    codes.push(origin.next(Length::MIN).await);
                }
                codes
            };
            tokio::spawn(take)
        });
        for accepted in takes.collect::<Vec<_>>() {
            for code in accepted.await.unwrap() {
                let earlier = observed.insert(code.clone(), turn);
                assert_eq!(earlier, None, "{code} in turn {turn}, too");
            }
        }
        // Knuth's multiplicative hash: a pseudorandom choice that is the same in each run.
        let dies = (turn.wrapping_mul(2_654_435_761) >> 16) % origins.len();
        origins[dies] = Arc::new(place.origin());
    }
    assert_eq!(observed.len(), 40 * 8 * 250);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_origins_get_unique_numbers_on_sqlite() {
    eight_origins(NumberFixture::new(None, Plan::standard(Length::MIN), scrambled()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_origins_get_unique_numbers_on_mysql() {
    let url = support::mysql_url().await;
    let plain = Numbering::plain();
    eight_origins(NumberFixture::new(Some(url), small(1_000_000, 100), plain).await).await;
}

mod postgres {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn eight_origins_get_unique_numbers() {
        let url = support::postgres_url().await;
        let plain = Numbering::plain();
        eight_origins(NumberFixture::new(Some(url), small(1_000_000, 100), plain).await).await;
    }
}

#[tokio::test]
async fn generated_codes_skip_chosen_codes() {
    let place = NumberFixture::new(None, small(40, 10), Numbering::plain()).await;
    for index in [0, 5, 19, 39] {
        let s = domain();
        let added = place.store.segments().add_custom(Length::MIN, index, &s);
        assert!(added.await.unwrap());
    }
    let origin = place.origin();
    let mut codes = Vec::new();
    for _ in 0..36 {
        codes.push(origin.next(Length::MIN).await.number().unwrap().1);
    }
    codes.sort_unstable();
    let expected: Vec<u64> = (0..40).filter(|n| ![0, 5, 19, 39].contains(n)).collect();
    assert_eq!(codes, expected);
    // All numbers are used, and none can be reused yet.
    assert!(origin.allocator.next(Length::MIN).await.is_err());
}

/// A range of 30 numbers, used twice. The second round only reuses numbers whose links have ended in the cold store and
/// in Redis, after hold and cooldown are over.
#[tokio::test]
async fn range_is_reused_only_after_all_its_links_end() {
    let place = NumberFixture::new(None, small(30, 10), scrambled()).await;
    let origin = place.origin();
    let mut codes = Vec::new();
    for _ in 0..30 {
        codes.push(origin.next(Length::MIN).await);
    }
    let of = |index: u64| {
        let code = place.numbering.code(Length::MIN, 30, index).unwrap();
        assert!(codes.contains(&code));
        code
    };
    // The first segment has a link in the cold store, the second one in Redis only.
    place.store_link(&of(3), place.now_ms() + 5_000).await;
    place.put_into_redis(&of(15)).await;

    // Nothing is reused while an origin may still hand numbers out.
    place.later(TIMES.hold_ms + TIMES.quarantine_ms - 1);
    assert!(origin.allocator.next(Length::MIN).await.is_err());
    place.later(1);
    let mut again = Vec::new();
    for _ in 0..10 {
        again.push(origin.next(Length::MIN).await);
    }
    again.sort();
    let mut third: Vec<Code> = (20..30).map(of).collect();
    third.sort();
    assert_eq!(again, third);
    assert!(origin.allocator.next(Length::MIN).await.is_err());

    // The link in Redis is deleted: its segment is reused.
    place.redis().forget(&link_id(&of(15))).await.unwrap();
    let next = origin.next(Length::MIN).await;
    assert!((10..20).map(of).any(|code| code == next), "{next}");
    for _ in 0..9 {
        origin.next(Length::MIN).await;
    }
    // The link in the cold store has ended but is not deleted: its segment stays.
    place.later(5_000);
    let free = origin.next(Length::MIN).await;
    assert!(!(0..10).map(of).any(|code| code == free), "{free}");
}

/// The link's domain ignores case: its code is another spelling of a number.
#[tokio::test]
async fn segment_with_a_lower_case_link_is_not_reused() {
    let place = NumberFixture::new(None, small(20, 10), Numbering::plain()).await;
    let origin = place.origin();
    for _ in 0..20 {
        origin.next(Length::MIN).await;
    }
    let code = place.numbering.code(Length::MIN, 20, 3).unwrap();
    let lower = code.in_lower_case().unwrap();
    place.store_link(&lower, place.now_ms() + 86_400_000).await;
    place.later(TIMES.hold_ms + TIMES.quarantine_ms);
    let mut again = Vec::new();
    for _ in 0..10 {
        again.push(origin.next(Length::MIN).await.number().unwrap().1);
    }
    assert!(again.iter().all(|index| *index >= 10), "{again:?}");
    assert!(origin.allocator.next(Length::MIN).await.is_err());
}

#[tokio::test]
async fn numbers_held_for_too_long_are_discarded() {
    let place = NumberFixture::new(None, small(1_000_000, 10), Numbering::plain()).await;
    let origin = place.origin();
    assert_eq!(origin.next(Length::MIN).await.as_str(), "00000");
    let quiet = place.origin();
    let first = quiet.next(Length::MIN).await.number().unwrap().1;
    place.later(TIMES.hold_ms);
    // All its queued numbers are too old; the next one comes from a newly reserved segment.
    let next = quiet.next(Length::MIN).await.number().unwrap().1;
    assert!(next >= first + 639, "{next} after {first}");
}

/// Four origins reach the end of the range at the same time, and all continue.
#[tokio::test]
async fn origin_at_the_end_of_the_range_opens_the_next_round() {
    let place = NumberFixture::new(None, small(20, 10), Numbering::plain()).await;
    let origins: Vec<Origin> = (0..4).map(|_| place.origin()).collect();
    let wait = async {
        while !place
            .store
            .segments()
            .is_round_open(Length::MIN, 1)
            .await
            .unwrap()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.unwrap();
    let takes = async || {
        let takes = origins
            .iter()
            .map(|origin| origin.allocator.take(Length::MIN));
        takes.flatten().count()
    };
    let first = async {
        while takes().await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, first).await.unwrap();
    place.later(TIMES.hold_ms + TIMES.quarantine_ms);
    let second = async {
        while takes().await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, second).await.unwrap();
}
