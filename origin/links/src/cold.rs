//! Answers gateways when Redis does not have a link: reads the cold store, then writes the link to Redis.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::debug;
use weir_base::breaker::{self, Breaker, Outcome, Permit};
use weir_link::agent::{Agent, Language, agent_hash};
use weir_link::click::{BatchId, ClickId, MINUTE_MS, Row, encode, referrer_host};
use weir_link::code::LinkId;
use weir_link::record::Link;
use weir_link::redis::keys::LinkKeys;
use weir_link::redis::link_read::{self, MARK_MS, Purpose, Read};
use weir_link::redis::{link_back, link_clicks};
use weir_scripts::ReplyError;

use super::find::Finder;
use super::metrics::LinkMetrics;
use super::numbers::Clock;
use super::records::{LinkRecords, Record};
use super::store::{LinkStore, StoredLink, ends_at};
use crate::jobs::publish::Publisher;
use weir_origin_core::redis::{CallError, Redis};
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// Distinguishes this origin's clicks and batches from those of other origins.
static COUNTER: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// The pause before a click refund is retried, in milliseconds.
const BACK_PAUSE_MS: u64 = 1_000;

/// Opens early, because each failed Redis call takes up to a second.
const BREAKER: breaker::Settings = breaker::Settings {
    window_ms: 10_000,
    min_requests: 3,
    failure_percent: 50,
    open_ms: 1_000,
    probes: 2,
};

/// Creates the circuit breaker of [`ColdLinks`].
pub(super) fn new_breaker() -> Arc<Mutex<Breaker>> {
    Arc::new(Mutex::new(Breaker::new(BREAKER)))
}

/// An access renews a link after a tenth of its life, in permille. Gateways use the same value.
const RENEW_PERMILLE: u32 = 100;

/// A link to answer with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColdLink {
    /// The link.
    pub link: Link,
    /// Remaining life without further clicks, in milliseconds; `None`: permanent; 0: it has ended.
    pub left_ms: Option<u64>,
    /// Remaining clicks before this one; `None`: unlimited.
    pub clicks_left: Option<u64>,
}

impl ColdLink {
    /// A link that has ended.
    fn ended(link: Link) -> Self {
        Self {
            link,
            left_ms: Some(0),
            clicks_left: None,
        }
    }

    /// Whether all clicks were used before this one.
    pub fn is_used_up(&self) -> bool {
        self.clicks_left == Some(0)
    }

    /// The equivalent result of a Redis lookup.
    pub fn to_read(&self) -> Read {
        Read {
            record: self.link.for_gateways(),
            left_ms: self.left_ms,
            clicks_left: self.clicks_left,
        }
    }
}

/// Why the lookup of a link failed.
#[derive(Debug, thiserror::Error)]
pub enum ColdError {
    /// The cold store failed.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Redis failed, and the link cannot be answered without it.
    #[error(transparent)]
    Redis(#[from] CallError),
    /// The circuit breaker of Redis is open.
    #[error("Redis does not answer; pausing Redis lookups")]
    NotAsked,
    /// Redis holds a malformed record.
    #[error("Redis: {0}")]
    Record(String),
}

impl From<ReplyError> for ColdError {
    fn from(error: ReplyError) -> Self {
        Self::Redis(error.into())
    }
}

impl From<Unavailable> for ColdError {
    fn from(error: Unavailable) -> Self {
        match error {
            Unavailable::Sql(error) => Self::Store(error),
            Unavailable::Redis(error) => Self::Redis(error),
        }
    }
}

/// The client that clicked.
#[derive(Clone, Debug)]
pub struct Clicker<'a> {
    /// The client's address, if known.
    pub address: Option<IpAddr>,
    /// Its `User-Agent`.
    pub user_agent: &'a [u8],
    /// Its `Referer`.
    pub referer: &'a [u8],
    /// Its `Accept-Language`.
    pub accept_language: &'a [u8],
}

/// Answers gateways from the cold store. Cloning is cheap.
#[derive(Clone)]
pub struct ColdLinks {
    pub(super) store: LinkStore,
    pub(super) redis: Redis,
    pub(super) records: LinkRecords,
    pub(super) finder: Finder,
    pub(super) publisher: Publisher,
    pub(super) metrics: LinkMetrics,
    /// The circuit breaker of Redis.
    pub(super) breaker: Arc<Mutex<Breaker>>,
    pub(super) clock: Clock,
}

impl ColdLinks {
    /// Looks up a link for this purpose and writes it to Redis; `None`: the link does not exist. If the link has a
    /// click limit, Redis counts this click exactly once.
    ///
    /// # Errors
    /// See [`ColdError`].
    pub async fn visit(
        &self,
        id: &LinkId,
        purpose: Purpose,
    ) -> Result<Option<ColdLink>, ColdError> {
        let stored = self.finder.find_here(id).await?;
        let now_ms = (self.clock)();
        let is_over = |link: &StoredLink| link.expires_at_ms.is_some_and(|end| end <= now_ms);
        let found = match stored {
            // The link's own end has passed, so the answer is final.
            Some(link) if has_own_end_come(&link.link, now_ms) => Some(ColdLink::ended(link.link)),
            Some(link) if !is_over(&link) => Some(self.warm(id, link, purpose).await?),
            // Gateways may have renewed it in Redis, or it is in another origin's log.
            stored => {
                let read = self.read(id, purpose).await?;
                read.or(stored.map(|link| ColdLink::ended(link.link)))
            }
        };
        self.metrics.cold_lookup(found.is_some());
        Ok(found)
    }

    async fn warm(
        &self,
        id: &LinkId,
        stored: StoredLink,
        purpose: Purpose,
    ) -> Result<ColdLink, ColdError> {
        let now_ms = (self.clock)();
        let end_ms = match purpose {
            Purpose::Look => stored.expires_at_ms,
            Purpose::Renew | Purpose::Click(_) => {
                ends_at(stored.link.life_ms, stored.link.expires_at_ms, now_ms)
            }
        };
        let left_ms = end_ms.map(|end_ms| end_ms.saturating_sub(now_ms));
        let warmed = self.guarded(self.write_warm(id, &stored, left_ms)).await;
        if stored.link.max_clicks > 0 && !stored.link.is_disabled {
            warmed?;
            // Redis is authoritative now; the link may have been edited since.
            if let Some(found) = self.read(id, purpose).await? {
                return Ok(found);
            }
        } else if let Err(error) = warmed {
            debug!(%error, link = %id, "cannot write a link to Redis");
        }
        Ok(ColdLink {
            link: stored.link,
            left_ms,
            clicks_left: None,
        })
    }

    /// Runs a call that needs Redis. Fails immediately while the circuit breaker is open.
    async fn guarded<T>(
        &self,
        call: impl Future<Output = Result<T, ColdError>>,
    ) -> Result<T, ColdError> {
        let Permit::Pass(pass) = self.breaker().permit((self.clock)()) else {
            return Err(ColdError::NotAsked);
        };
        let result = call.await;
        let outcome = match &result {
            Err(ColdError::Redis(_)) => Outcome::Failure,
            _ => Outcome::Success,
        };
        self.breaker().record((self.clock)(), pass, outcome);
        result
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        // The breaker is consistent even after a panic.
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes with NX, because an entry in Redis is newer. A second read of the cold store finds edits and deletions
    /// since the first read.
    async fn write_warm(
        &self,
        id: &LinkId,
        stored: &StoredLink,
        life_ms: Option<u64>,
    ) -> Result<(), ColdError> {
        let record = String::from_utf8(stored.link.for_gateways()).unwrap_or_default();
        let record = Record {
            id,
            record: &record,
            life_ms,
        };
        if stored.link.max_clicks > 0 {
            let used = self.store.clicks().clicks_used(id).await?;
            self.records.seed_clicks(id, used, life_ms).await?;
        }
        if !self.records.create(record).await? {
            return Ok(());
        }
        let now = self.store.link(id).await?;
        if now.map(|link| link.link.version) != Some(stored.link.version) {
            self.publisher.publish(id).await?;
        }
        Ok(())
    }

    /// Reads the link from Redis like a gateway.
    async fn read(&self, id: &LinkId, purpose: Purpose) -> Result<Option<ColdLink>, ColdError> {
        self.guarded(self.read_now(id, purpose)).await
    }

    async fn read_now(&self, id: &LinkId, purpose: Purpose) -> Result<Option<ColdLink>, ColdError> {
        let redis = &self.redis;
        let keys = LinkKeys::new(redis.prefix(), id);
        let call = link_read::call(&keys, RENEW_PERMILLE, purpose);
        let Some(read) = link_read::parse(&redis.run(&call).await?)? else {
            return Ok(None);
        };
        let link =
            Link::decode(&read.record).map_err(|error| ColdError::Record(error.to_string()))?;
        Ok(Some(ColdLink {
            link,
            left_ms: read.left_ms,
            clicks_left: read.clicks_left,
        }))
    }

    /// Creates an id for a click that has none.
    pub fn new_click() -> ClickId {
        ClickId {
            counter: *COUNTER,
            sequence: SEQUENCE.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Refunds an unused click in the background, for as long as its mark is stored.
    pub fn give_back(&self, id: &LinkId, click: ClickId) {
        let (redis, keys) = (self.redis.clone(), LinkKeys::new(self.redis.prefix(), id));
        tokio::spawn(async move {
            let call = link_back::call(&keys, click);
            for _ in 0..MARK_MS / BACK_PAUSE_MS {
                if redis.run(&call).await.is_ok() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(BACK_PAUSE_MS)).await;
            }
        });
    }

    /// Sends a click to the statistics in the background. If this fails, one click is lost.
    pub fn count_click(&self, id: &LinkId, clicker: &Clicker<'_>) {
        let now_ms = (self.clock)();
        let row = Row {
            link: id.clone(),
            minute_ms: now_ms - now_ms % MINUTE_MS,
            last_ms: now_ms,
            clicks: 1,
            address: clicker.address,
            agent_hash: agent_hash(clicker.user_agent),
            agent: Agent::read(clicker.user_agent),
            referrer: referrer_host(clicker.referer),
            language: Language::preferred(clicker.accept_language).unwrap_or_default(),
        };
        let batch = BatchId {
            counter: *COUNTER,
            sequence: SEQUENCE.fetch_add(1, Ordering::Relaxed),
        };
        let redis = self.redis.clone();
        tokio::spawn(async move {
            let call = link_clicks::call(redis.prefix(), batch, encode(&[row]));
            if let Err(error) = redis.run(&call).await {
                debug!(%error, "cannot count a click");
            }
        });
    }
}

fn has_own_end_come(link: &Link, now_ms: u64) -> bool {
    link.expires_at_ms > 0 && link.expires_at_ms <= now_ms
}
