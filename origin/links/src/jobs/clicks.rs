//! Reads click batches from the stream that gateways write, and counts each click once.
//!
//! The stream has one consumer group, and each origin is a consumer. A batch goes through the following steps. If the
//! origin crashes in between, this origin or another one reads the batch again.
//!
//! 1. Redis counts visitors, see [`uniques`](crate::model::uniques). This is idempotent.
//! 2. SQL counts the clicks and stores the batch's id in one transaction, which detects repeated batches.
//! 3. The cold store records the last click of each link, so that links are renewed there as in Redis.
//! 4. The batch is acknowledged and deleted, and with it the last copy of the addresses.
//!
//! Malformed batches go to a dead-letter stream for a day, and are counted.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Cmd, Value, cmd};
use ring::rand::{SecureRandom, SystemRandom};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use weir_link::agent::Device;
use weir_link::click::{BATCH_ROWS_MAX, BatchId, ClickError, Row};
use weir_link::code::LinkId;
use weir_link::redis::{keys, link_clicks};

use super::stream::{Entry, StreamError, claimed, consumers, read};
use crate::geo::Geo;
use crate::metrics::LinkMetrics;
use crate::model::stats::{Batch, Breakdown, Clicks, DAY_MS};
use crate::model::uniques::UniqueCounter;
use crate::store::LinkStore;
use weir_origin_core::background::{Backoff, Interval};
use weir_origin_core::clock::now_ms;
use weir_origin_core::redis::{CallError, Redis};
use weir_origin_core::sql::SqlError;

/// The consumer group of all origins.
const GROUP: &str = "stats";

/// Maximum number of batches in one round. It limits the size of a transaction, because others wait for it.
const BATCHES_MAX: usize = 4_096 / BATCH_ROWS_MAX;

/// The pause after an empty round.
const PAUSE: Duration = Duration::from_millis(250);

/// The pause after a failed round.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// Interval between checks for batches of dead origins, and counts of waiting batches, in milliseconds.
const LOOK_PERIOD_MS: u64 = 10_000;

/// Interval between deletions of expired counts, in milliseconds.
const CLEAN_PERIOD_MS: u64 = 600_000;

/// An origin that holds a batch for this long counts as dead, and another one takes the batch over.
const DEAD_AFTER: Duration = Duration::from_secs(60);

/// An empty consumer that was idle for this long is removed, in milliseconds.
const FORGOTTEN_AFTER_MS: u64 = 3_600_000;

/// Maximum number of malformed batches stored for inspection.
const REFUSED_MAX: usize = 100;

/// Retention of malformed batches, in milliseconds: they may contain addresses.
const REFUSED_KEPT_MS: u64 = DAY_MS;

/// Maximum stored bytes of a malformed batch.
const REFUSED_LEN_MAX: usize = 64 * 1024;

/// No consumer name could be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no random numbers from the operating system")]
pub struct NoName;

/// Generates a unique consumer name.
pub(crate) fn consumer_name() -> Result<String, NoName> {
    let mut bytes = [0; 8];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| NoName)?;
    Ok(format!("origin-{:016x}", u64::from_be_bytes(bytes)))
}

/// Counts clicks. [Run](ClickCounter::run) it once per origin.
pub struct ClickCounter {
    store: LinkStore,
    redis: Redis,
    uniques: UniqueCounter,
    geo: Geo,
    metrics: LinkMetrics,
    name: String,
    dead_after: Duration,
    has_group: bool,
    /// Whether batches were read but not finished. They are read again before new ones.
    has_unfinished: bool,
    looked_at_ms: u64,
    cleaned_at_ms: u64,
}

/// Why a round failed. The next round reads its batches again.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// A Redis call failed.
    #[error(transparent)]
    Redis(#[from] CallError),
    /// A SQL call failed.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Redis sent an unexpected reply.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

/// A batch that was read.
struct ReadBatch {
    id: BatchId,
    rows: Vec<Row>,
}

impl ClickCounter {
    pub(crate) fn new(
        store: LinkStore,
        redis: Redis,
        geo: Geo,
        metrics: LinkMetrics,
        name: String,
    ) -> Self {
        Self {
            uniques: UniqueCounter::new(redis.clone()),
            store,
            redis,
            geo,
            metrics,
            name,
            dead_after: DEAD_AFTER,
            has_group: false,
            has_unfinished: true,
            looked_at_ms: 0,
            cleaned_at_ms: 0,
        }
    }

    /// Sets how long another origin may hold a batch before it is taken over; default: a minute.
    #[must_use]
    pub fn dead_after(mut self, dead_after: Duration) -> Self {
        self.dead_after = dead_after;
        self
    }

    /// Counts clicks until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let interval = Interval::every(PAUSE, "counting clicks", stop);
        let mut interval = interval.backing_off(Backoff::constant(FAILED_PAUSE));
        while interval.next().await {
            let outcome = self.round().await;
            interval.ended(&outcome);
            if outcome.is_ok_and(|batches| batches > 0) {
                interval.next_at_once();
            }
        }
        self.leave().await;
    }

    /// Reads and counts some batches. Returns their number.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable.
    pub async fn round(&mut self) -> Result<usize, CountError> {
        let counted = self.try_round().await;
        if let Err(CountError::Redis(error)) = &counted
            && error.code() == Some("NOGROUP")
        {
            // Redis has lost its data, and the group with it.
            self.has_group = false;
        }
        counted
    }

    async fn try_round(&mut self) -> Result<usize, CountError> {
        if !self.has_group {
            self.make_group().await?;
        }
        let now_ms = now_ms();
        if now_ms >= self.cleaned_at_ms + CLEAN_PERIOD_MS {
            self.store.clicks().clean_clicks(now_ms).await?;
            self.cleaned_at_ms = now_ms;
        }
        if now_ms >= self.looked_at_ms + LOOK_PERIOD_MS {
            self.look().await?;
            self.looked_at_ms = now_ms;
            // If this fails, batches already assigned to this consumer are read with the unfinished ones.
            let had_unfinished = std::mem::replace(&mut self.has_unfinished, true);
            let accepted = self.take_over().await?;
            self.count(&accepted, now_ms).await?;
            self.has_unfinished = had_unfinished;
        }
        if self.has_unfinished {
            let unfinished = self.read("0").await?;
            if !unfinished.is_empty() {
                self.count(&unfinished, now_ms).await?;
                return Ok(unfinished.len());
            }
        }
        // Set until the batches are known to be finished: the reply may get lost.
        self.has_unfinished = true;
        let entries = self.read(">").await?;
        self.count(&entries, now_ms).await?;
        self.has_unfinished = false;
        Ok(entries.len())
    }

    async fn make_group(&mut self) -> Result<(), CallError> {
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(self.stream()).arg(GROUP);
        // Start at the first batch, including those from before the group existed.
        let created = self.redis.send(create.arg("0").arg("MKSTREAM")).await;
        match created {
            Err(error) if error.code() != Some("BUSYGROUP") => return Err(error),
            _ => self.has_group = true,
        }
        Ok(())
    }

    /// Reads batches after `id`: `>` for new ones, `0` for those assigned to this origin before.
    async fn read(&self, id: &str) -> Result<Vec<Entry>, CountError> {
        let mut command = cmd("XREADGROUP");
        command.arg("GROUP").arg(GROUP).arg(&self.name);
        command.arg("COUNT").arg(BATCHES_MAX);
        command.arg("STREAMS").arg(self.stream()).arg(id);
        Ok(read(self.redis.send(&command).await?)?)
    }

    /// Takes over batches of origins that appear to be dead.
    async fn take_over(&self) -> Result<Vec<Entry>, CountError> {
        let idle_ms = u64::try_from(self.dead_after.as_millis()).unwrap_or(u64::MAX);
        let mut command = cmd("XAUTOCLAIM");
        command.arg(self.stream()).arg(GROUP).arg(&self.name);
        command.arg(idle_ms).arg("0-0");
        command.arg("COUNT").arg(BATCHES_MAX);
        let entries = claimed(self.redis.send(&command).await?)?;
        if !entries.is_empty() {
            info!(
                batches = entries.len(),
                "took over click batches of a stopped origin"
            );
        }
        Ok(entries)
    }

    /// Records how many batches wait, and removes dead consumers.
    async fn look(&self) -> Result<(), CountError> {
        if let Value::Int(waiting) = self.redis.send(cmd("XLEN").arg(self.stream())).await? {
            self.metrics.click_batches_waiting.set(waiting);
        }
        let mut list = cmd("XINFO");
        list.arg("CONSUMERS").arg(self.stream()).arg(GROUP);
        for consumer in consumers(self.redis.send(&list).await?)? {
            let is_gone = consumer.pending == 0 && consumer.idle_ms >= FORGOTTEN_AFTER_MS;
            if is_gone && consumer.name != self.name {
                self.redis.send(&self.forget(&consumer.name)).await?;
            }
        }
        Ok(())
    }

    /// Removes this origin from the consumers, unless it holds batches.
    async fn leave(&self) {
        if !self.has_unfinished && self.has_group {
            // If this fails, another origin removes the consumer later.
            let _ = self.redis.send(&self.forget(&self.name)).await;
        }
    }

    fn forget(&self, consumer: &str) -> Cmd {
        let mut forget = cmd("XGROUP");
        forget.arg("DELCONSUMER").arg(self.stream()).arg(GROUP);
        forget.arg(consumer);
        forget
    }

    async fn count(&self, entries: &[Entry], now_ms: u64) -> Result<(), CountError> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut batches = Vec::new();
        for entry in entries {
            match read_batch(entry, now_ms) {
                Ok(batch) => batches.extend(batch),
                Err(error) => self.put_aside(entry, &error).await?,
            }
        }
        self.count_read(&batches, now_ms).await?;
        self.finish(entries).await
    }

    async fn count_read(&self, batches: &[ReadBatch], now_ms: u64) -> Result<(), CountError> {
        if batches.is_empty() {
            return Ok(());
        }
        let rows: Vec<Row> = batches
            .iter()
            .flat_map(|batch| batch.rows.clone())
            .collect();
        // Bots are not visitors and do not renew links.
        let people = rows.iter().filter(|row| !is_bot(row)).cloned();
        let people: Vec<Row> = people.collect();
        let uniques = self.uniques.count(&people, now_ms).await?;
        let stored: Vec<Batch> = batches.iter().map(|batch| self.stored(batch)).collect();
        let counted = self
            .store
            .clicks()
            .count_clicks(&stored, &uniques, now_ms)
            .await?;
        // Repeat this even for known batches: it may have failed last time.
        self.store
            .ends()
            .touch(&last_clicks(&people, now_ms))
            .await?;
        for (batch, is_new) in stored.iter().zip(counted) {
            let clicks = batch.clicks.iter().map(|clicks| u64::from(clicks.count));
            self.metrics.click_batch(is_new, clicks.sum());
        }
        Ok(())
    }

    fn stored(&self, batch: &ReadBatch) -> Batch {
        // Many clicks come from one address, and database lookups are slow compared to a map.
        let mut places = BTreeMap::new();
        let clicks = batch.rows.iter().map(|row| {
            let place = places.entry(row.address).or_insert_with(|| {
                let address = row.address?;
                Some((self.geo.region(address), self.geo.operator(address)))
            });
            let (region, operator) = place.clone().unwrap_or_default();
            clicks(row, region.as_deref(), operator.as_deref())
        });
        Batch {
            id: batch.id.to_string(),
            clicks: clicks.collect(),
        }
    }

    /// Moves a malformed batch to the dead-letter stream.
    async fn put_aside(&self, entry: &Entry, error: &ClickError) -> Result<(), CallError> {
        error!(entry = %entry.id, %error, "malformed click batch moved to the dead-letter stream");
        self.metrics.click_batches_refused();
        let stream = keys::link_clicks_refused(self.redis.prefix());
        let mut add = cmd("XADD");
        add.arg(&stream).arg("MAXLEN").arg(REFUSED_MAX).arg("*");
        add.arg("entry")
            .arg(&entry.id)
            .arg("error")
            .arg(error.to_string());
        for (name, value) in entry.fields.iter().flatten() {
            let end = value.len().min(REFUSED_LEN_MAX);
            add.arg(name).arg(value.get(..end));
        }
        self.redis.send(&add).await?;
        let mut expire = cmd("PEXPIRE");
        self.redis
            .send(expire.arg(&stream).arg(REFUSED_KEPT_MS))
            .await?;
        Ok(())
    }

    /// Deletes and acknowledges finished batches.
    async fn finish(&self, entries: &[Entry]) -> Result<(), CountError> {
        let (mut acknowledge, mut delete) = (cmd("XACK"), cmd("XDEL"));
        acknowledge.arg(self.stream()).arg(GROUP);
        delete.arg(self.stream());
        for entry in entries {
            acknowledge.arg(&entry.id);
            delete.arg(&entry.id);
        }
        // Delete first: an entry that is acknowledged but not deleted would stay permanently.
        self.redis.send(&delete).await?;
        self.redis.send(&acknowledge).await?;
        Ok(())
    }

    fn stream(&self) -> Vec<u8> {
        keys::link_clicks(self.redis.prefix())
    }
}

/// The last click of each link. Redis has renewed the link then or recently.
fn last_clicks(rows: &[Row], now_ms: u64) -> Vec<(LinkId, u64)> {
    let mut last: BTreeMap<&LinkId, u64> = BTreeMap::new();
    for row in rows {
        let known_ms = last.entry(&row.link).or_default();
        *known_ms = row.last_ms.min(now_ms).max(*known_ms);
    }
    let last = last.into_iter();
    last.map(|(link, at_ms)| (link.clone(), at_ms)).collect()
}

/// Decodes a batch; `None` if the entry was deleted before it was read.
fn read_batch(entry: &Entry, now_ms: u64) -> Result<Option<ReadBatch>, ClickError> {
    let Some(fields) = &entry.fields else {
        return Ok(None);
    };
    let field = |name: &[u8]| fields.get(name).map(Vec::as_slice);
    let (id, mut rows) = link_clicks::read_entry(field)?;
    for row in &mut rows {
        // A gateway's clock may be ahead, so cap the time.
        row.minute_ms = row.minute_ms.min(now_ms);
    }
    Ok(Some(ReadBatch { id, rows }))
}

fn is_bot(row: &Row) -> bool {
    row.agent.device == Device::Bot
}

fn clicks(row: &Row, region: Option<&str>, operator: Option<&str>) -> Clicks {
    let agent = row.agent;
    let value = |part: Breakdown| {
        part.value(match part {
            Breakdown::Device => agent.device.label(),
            Breakdown::System => agent.os.label(),
            Breakdown::Browser => agent.browser.label(),
            Breakdown::Referrer => &row.referrer,
            Breakdown::Region => region.unwrap_or_default(),
            Breakdown::Operator => operator.unwrap_or_default(),
            Breakdown::Language => row.language.as_str(),
            Breakdown::Link => row.link.code.as_str(),
        })
    };
    Clicks {
        link: row.link.clone(),
        at_ms: row.minute_ms,
        count: row.clicks,
        is_bot: is_bot(row),
        values: Breakdown::ALL.map(value),
    }
}
