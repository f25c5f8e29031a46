//! Links in Redis: one record per link, the counters of numbers, and the stream that gateways poll.

use redis::{Cmd, Value, cmd};
use weir_link::code::{Length, LinkId};
use weir_link::redis::keys::{self, LinkKeys};
use weir_link::redis::link_changes;
use weir_link::redis::link_segment;

use weir_origin_core::redis::{CallError, Redis};

/// Commands in one pipeline: client and server buffer this many replies.
const PIPELINE: usize = 1_000;

/// Number of checkpoints in a cluster, in random slots. Even with sixteen nodes, a node has none only once in ten
/// million cases.
const MARKS: u16 = 256;

/// How long an origin may take to open a round before another one tries, in milliseconds.
const WRAP_LOCK_MS: u64 = 5_000;

/// Remaining life of a link's key in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The key does not exist.
    Gone,
    /// Permanent.
    Ever,
    /// Milliseconds until it expires without further clicks.
    Ms(u64),
}

/// A record to write.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The link.
    pub id: &'a LinkId,
    /// See [`weir_link::record::Link::encode`].
    pub record: &'a str,
    /// Its life in milliseconds; `None`: permanent.
    pub life_ms: Option<u64>,
}

/// A lookup about a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordLookup<'a> {
    /// 1 if Redis has it, otherwise 0.
    IsThere(&'a LinkId),
    /// Number of used clicks.
    ClicksUsed(&'a LinkId),
}

/// The id of a change in the stream that gateways read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeId(Vec<u8>);

/// Links in Redis. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct LinkRecords {
    redis: Redis,
}

impl LinkRecords {
    /// Creates the records on a Redis.
    pub fn new(redis: Redis) -> Self {
        Self { redis }
    }

    fn keys(&self, id: &LinkId) -> LinkKeys {
        LinkKeys::new(self.redis.prefix(), id)
    }

    fn set(&self, record: Record<'_>) -> Cmd {
        let mut set = cmd("SET");
        set.arg(self.keys(record.id).record()).arg(record.record);
        if let Some(life_ms) = record.life_ms {
            // Redis refuses 0. A link that is about to end may end immediately.
            set.arg("PX").arg(life_ms.max(1));
        }
        set
    }

    /// Writes a new link. Returns false if its key exists. A write with an unknown result is repeated and may find its
    /// own key; then this also returns false.
    ///
    /// # Errors
    /// If Redis is unavailable.
    pub async fn create(&self, record: Record<'_>) -> Result<bool, CallError> {
        let reply = self.redis.send(self.set(record).arg("NX")).await?;
        Ok(reply != Value::Nil)
    }

    /// Writes new links in one pipeline, each like [`LinkRecords::create`].
    pub async fn create_all(&self, records: &[Record<'_>]) -> Result<Vec<bool>, CallError> {
        let mut written = Vec::with_capacity(records.len());
        for chunk in records.chunks(PIPELINE) {
            let sets = chunk.iter().map(|record| {
                let mut set = self.set(*record);
                set.arg("NX");
                set
            });
            let replies = self.redis.send_all(sets.collect()).await?;
            written.extend(replies.into_iter().map(|reply| reply != Value::Nil));
        }
        Ok(written)
    }

    /// Stores the number of used clicks of a link, unless Redis has one. Call it before the link is written, so that no
    /// click comes in between.
    pub async fn seed_clicks(
        &self,
        id: &LinkId,
        used: u64,
        life_ms: Option<u64>,
    ) -> Result<(), CallError> {
        if used == 0 {
            return Ok(());
        }
        let mut set = cmd("SET");
        set.arg(self.keys(id).clicks()).arg(used).arg("NX");
        if let Some(life_ms) = life_ms {
            set.arg("PX").arg(life_ms.max(1));
        }
        self.redis.send(&set).await.map(drop)
    }

    /// Writes a link unconditionally and notifies gateways. Returns the change's id. `used`: number of used clicks,
    /// stored if Redis has none; `None`: clicks are not counted.
    pub async fn write(
        &self,
        record: Record<'_>,
        used: Option<u64>,
    ) -> Result<ChangeId, CallError> {
        if let Some(used) = used {
            self.seed_clicks(record.id, used, record.life_ms).await?;
        }
        self.redis.send(&self.set(record)).await?;
        let clicks = self.keys(record.id).clicks();
        let expiry = match record.life_ms {
            // A click limit set later starts with its full number of clicks.
            _ if used.is_none() => cmd("UNLINK").arg(clicks).to_owned(),
            Some(life_ms) => cmd("PEXPIRE").arg(clicks).arg(life_ms.max(1)).to_owned(),
            None => cmd("PERSIST").arg(clicks).to_owned(),
        };
        self.redis.send(&expiry).await?;
        self.publish_change(record.id).await
    }

    /// The record of a link in Redis, if there is one.
    pub async fn record(&self, id: &LinkId) -> Result<Option<Vec<u8>>, CallError> {
        let get = cmd("GET").arg(self.keys(id).record()).to_owned();
        match self.redis.send(&get).await? {
            Value::BulkString(record) => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    /// The time up to which Redis has all edits, in milliseconds since the Unix epoch; `None`: unknown.
    pub async fn mark(&self) -> Result<Option<u64>, CallError> {
        let gets = self.marks().map(|key| cmd("GET").arg(key).to_owned());
        let replies = self.redis.send_all(gets.collect()).await?;
        let number = |reply| redis::from_redis_value::<Option<u64>>(reply).ok().flatten();
        Ok(replies.into_iter().filter_map(number).min())
    }

    /// Records that Redis has all edits up to this time.
    pub async fn set_mark(&self, at_ms: u64) -> Result<(), CallError> {
        let set = |key| cmd("SET").arg(key).arg(at_ms).to_owned();
        let sets = self.marks().map(set);
        self.redis.send_all(sets.collect()).await.map(drop)
    }

    fn marks(&self) -> impl Iterator<Item = Vec<u8>> {
        let count = if self.redis.is_cluster() { MARKS } else { 1 };
        (0..count).map(|number| keys::link_mark(self.redis.prefix(), number))
    }

    /// Deletes a link and notifies gateways. Returns the change's id.
    pub async fn forget(&self, id: &LinkId) -> Result<ChangeId, CallError> {
        let keys = self.keys(id);
        let mut unlink = cmd("UNLINK");
        self.redis
            .send(unlink.arg(keys.record()).arg(keys.clicks()))
            .await?;
        self.publish_change(id).await
    }

    async fn publish_change(&self, id: &LinkId) -> Result<ChangeId, CallError> {
        let mut add = Cmd::new();
        for word in link_changes::add(self.redis.prefix(), id) {
            add.arg(word);
        }
        match self.redis.send(&add).await? {
            Value::BulkString(change) => Ok(ChangeId(change)),
            other => Err(CallError::unexpected(
                "invalid reply of XADD",
                format!("{other:?}"),
            )),
        }
    }

    /// Whether gateways can still read a change.
    pub async fn is_told(&self, change: &ChangeId) -> Result<bool, CallError> {
        let key = keys::link_changes(self.redis.prefix());
        let mut range = cmd("XRANGE");
        range.arg(key).arg(&change.0).arg(&change.0);
        let found = self.redis.send(&range).await?;
        Ok(matches!(found, Value::Array(changes) if !changes.is_empty()))
    }

    /// The remaining lives of these links.
    pub async fn remaining_lives(&self, ids: &[&LinkId]) -> Result<Vec<Life>, CallError> {
        let mut lives = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(PIPELINE) {
            let ask = |id: &&LinkId| cmd("PTTL").arg(self.keys(id).record()).to_owned();
            let replies = self.redis.send_all(chunk.iter().map(ask).collect()).await?;
            lives.extend(replies.iter().map(life));
        }
        Ok(lives)
    }

    /// Runs these lookups; `None`: Redis has no value.
    pub async fn ask(&self, lookups: &[RecordLookup<'_>]) -> Result<Vec<Option<u64>>, CallError> {
        let mut reply = Vec::with_capacity(lookups.len());
        for chunk in lookups.chunks(PIPELINE) {
            let commands = chunk.iter().map(|lookups| match lookups {
                RecordLookup::IsThere(id) => cmd("EXISTS").arg(self.keys(id).record()).to_owned(),
                RecordLookup::ClicksUsed(id) => cmd("GET").arg(self.keys(id).clicks()).to_owned(),
            });
            let replies = self.redis.send_all(commands.collect()).await?;
            reply.extend(replies.iter().map(number));
        }
        Ok(reply)
    }

    /// Whether any of these links exists.
    pub async fn has_any(&self, ids: &[LinkId]) -> Result<bool, CallError> {
        for chunk in ids.chunks(PIPELINE) {
            let ask = |id: &LinkId| cmd("EXISTS").arg(self.keys(id).record()).to_owned();
            let replies = self.redis.send_all(chunk.iter().map(ask).collect()).await?;
            if replies.iter().any(|reply| *reply != Value::Int(0)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Raises the counter of `length` by `by`, to at least `at_least` plus `by`. Returns the new value.
    pub async fn raise(&self, length: Length, by: u64, at_least: u64) -> Result<u64, CallError> {
        let call = link_segment::call(self.redis.prefix(), length, by, at_least);
        Ok(link_segment::parse(&self.redis.run(&call).await?)?)
    }

    /// Whether this caller may open the next round of `length`.
    pub async fn lock_wrap(&self, length: Length) -> Result<bool, CallError> {
        let mut set = cmd("SET");
        set.arg(keys::link_wrap(self.redis.prefix(), length));
        set.arg("1").arg("NX").arg("PX").arg(WRAP_LOCK_MS);
        Ok(self.redis.send(&set).await? != Value::Nil)
    }

    /// Releases the lock after the round is open, so that the next round can follow immediately. An expired lock may
    /// belong to another origin by now. That is harmless: two origins may open the same round.
    pub async fn unlock_wrap(&self, length: Length) -> Result<(), CallError> {
        let key = keys::link_wrap(self.redis.prefix(), length);
        self.redis.send(cmd("DEL").arg(key)).await.map(drop)
    }

    /// Publishes the domains to gateways, as JSON.
    pub async fn publish_domains(&self, json: &[u8]) -> Result<(), CallError> {
        let key = keys::link_domains(self.redis.prefix());
        self.redis
            .send(cmd("SET").arg(key).arg(json))
            .await
            .map(drop)
    }

    /// Reads the value of an `Idempotency-Key`. If there is none, stores `ours` with this lifetime.
    pub async fn idempotency(
        &self,
        hash: [u8; 16],
        ours: &[u8],
        life_ms: u64,
    ) -> Result<Option<Vec<u8>>, CallError> {
        let key = keys::link_idempotency(self.redis.prefix(), hash);
        let mut set = cmd("SET");
        set.arg(&key).arg(ours).arg("NX").arg("PX").arg(life_ms);
        if self.redis.send(&set).await? != Value::Nil {
            return Ok(None);
        }
        match self.redis.send(cmd("GET").arg(&key)).await? {
            Value::BulkString(held) => Ok(Some(held)),
            // It expired in between: answer as if it were held, so that the client retries.
            _ => Ok(Some(Vec::new())),
        }
    }

    /// Sets the value of an `Idempotency-Key`; `None` deletes it.
    pub async fn set_idempotency(
        &self,
        hash: [u8; 16],
        held: Option<(&[u8], u64)>,
    ) -> Result<(), CallError> {
        let key = keys::link_idempotency(self.redis.prefix(), hash);
        let command = match held {
            Some((held, life_ms)) => {
                let mut set = cmd("SET");
                set.arg(key).arg(held).arg("PX").arg(life_ms).to_owned()
            }
            None => cmd("DEL").arg(key).to_owned(),
        };
        self.redis.send(&command).await.map(drop)
    }
}

fn number(reply: &Value) -> Option<u64> {
    match reply {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

fn life(reply: &Value) -> Life {
    match reply {
        Value::Int(-2) => Life::Gone,
        Value::Int(ms) => u64::try_from(*ms).map_or(Life::Ever, Life::Ms),
        _ => Life::Ever,
    }
}
