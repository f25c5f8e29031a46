//! Links in Redis: one record each, the counter of numbers, and what gateways poll.

use redis::{Cmd, Value, cmd};
use weir_link::code::{Length, LinkId};
use weir_scripts::keys::{self, CHANGED_LINK, CHANGES_LEN, LinkKeys};
use weir_scripts::link_segment;

use crate::ledger::{Ledger, LedgerError};

/// Commands of one pipeline: each side holds that many replies.
const PIPELINE: usize = 1_000;

/// How long a round's opener may take before another origin tries.
const WRAP_LOCK_MS: u64 = 5_000;

/// A link's key in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// There is none.
    Gone,
    /// For ever.
    Ever,
    /// For so many milliseconds, if nobody clicks.
    Ms(u64),
}

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Whose.
    pub id: &'a LinkId,
    /// See [`weir_link::record::Link::encode`].
    pub record: &'a str,
    /// How long it lives, in milliseconds; `None`: for ever.
    pub life_ms: Option<u64>,
}

/// Redis, as far as links go. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct LinkRecords {
    ledger: Ledger,
}

impl LinkRecords {
    /// Over the origin's Redis.
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger }
    }

    /// The Redis that it is over.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn keys(&self, id: &LinkId) -> LinkKeys {
        LinkKeys::new(self.ledger.prefix(), id)
    }

    fn set(&self, record: Record<'_>) -> Cmd {
        let mut set = cmd("SET");
        set.arg(self.keys(record.id).record()).arg(record.record);
        if let Some(life_ms) = record.life_ms {
            // Redis refuses 0; what is about to end may end at once.
            set.arg("PX").arg(life_ms.max(1));
        }
        set
    }

    /// Writes a new link. False if there is one of its name. A write of which it is not known whether it
    /// reached Redis is made again, and may meet itself: then this is false, too.
    ///
    /// # Errors
    /// When Redis does not answer; so for all that follow.
    pub async fn create(&self, record: Record<'_>) -> Result<bool, LedgerError> {
        let reply = self.ledger.send(self.set(record).arg("NX")).await?;
        Ok(reply != Value::Nil)
    }

    /// Writes new links, in one pipeline; says of each what [`LinkRecords::create`] says.
    pub async fn create_all(&self, records: &[Record<'_>]) -> Result<Vec<bool>, LedgerError> {
        let mut written = Vec::with_capacity(records.len());
        for chunk in records.chunks(PIPELINE) {
            let sets = chunk.iter().map(|record| {
                let mut set = self.set(*record);
                set.arg("NX");
                set
            });
            let replies = self.ledger.send_all(sets.collect()).await?;
            written.extend(replies.into_iter().map(|reply| reply != Value::Nil));
        }
        Ok(written)
    }

    /// Writes a link, whatever is there, and tells gateways that it changed.
    pub async fn write(&self, record: Record<'_>) -> Result<(), LedgerError> {
        self.ledger.send(&self.set(record)).await?;
        let clicks = self.keys(record.id).clicks();
        let expiry = match record.life_ms {
            Some(life_ms) => cmd("PEXPIRE").arg(clicks).arg(life_ms.max(1)).to_owned(),
            None => cmd("PERSIST").arg(clicks).to_owned(),
        };
        self.ledger.send(&expiry).await?;
        self.tell(record.id).await
    }

    /// Takes a link away, and tells gateways so.
    pub async fn forget(&self, id: &LinkId) -> Result<(), LedgerError> {
        let keys = self.keys(id);
        let mut unlink = cmd("UNLINK");
        self.ledger
            .send(unlink.arg(keys.record()).arg(keys.clicks()))
            .await?;
        self.tell(id).await
    }

    async fn tell(&self, id: &LinkId) -> Result<(), LedgerError> {
        let mut add = cmd("XADD");
        add.arg(keys::link_changes(self.ledger.prefix()));
        add.arg("MAXLEN").arg("~").arg(CHANGES_LEN).arg("*");
        add.arg(CHANGED_LINK).arg(id.to_string());
        self.ledger.send(&add).await.map(drop)
    }

    /// How long each of these still lives.
    pub async fn lives(&self, ids: &[&LinkId]) -> Result<Vec<Life>, LedgerError> {
        let mut lives = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(PIPELINE) {
            let ask = |id: &&LinkId| cmd("PTTL").arg(self.keys(id).record()).to_owned();
            let replies = self
                .ledger
                .send_all(chunk.iter().map(ask).collect())
                .await?;
            lives.extend(replies.iter().map(life));
        }
        Ok(lives)
    }

    /// Whether there is any of these.
    pub async fn has_any(&self, ids: &[LinkId]) -> Result<bool, LedgerError> {
        for chunk in ids.chunks(PIPELINE) {
            let ask = |id: &LinkId| cmd("EXISTS").arg(self.keys(id).record()).to_owned();
            let replies = self
                .ledger
                .send_all(chunk.iter().map(ask).collect())
                .await?;
            if replies.iter().any(|reply| *reply != Value::Int(0)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Raises the counter of numbers of `length` by `by`, from `at_least` on; tells where it stands now.
    pub async fn raise(&self, length: Length, by: u64, at_least: u64) -> Result<u64, LedgerError> {
        let call = link_segment::call(self.ledger.prefix(), length, by, at_least);
        Ok(link_segment::parse(&self.ledger.run(&call).await?)?)
    }

    /// Whether it is this caller who may open the next round through the numbers of `length`.
    pub async fn lock_wrap(&self, length: Length) -> Result<bool, LedgerError> {
        let mut set = cmd("SET");
        set.arg(keys::link_wrap(self.ledger.prefix(), length));
        set.arg("1").arg("NX").arg("PX").arg(WRAP_LOCK_MS);
        Ok(self.ledger.send(&set).await? != Value::Nil)
    }

    /// The round is open: the next one may follow at once. A lock that has run out meanwhile may be another
    /// origin's by now, which does no harm: two may open one round.
    pub async fn unlock_wrap(&self, length: Length) -> Result<(), LedgerError> {
        let key = keys::link_wrap(self.ledger.prefix(), length);
        self.ledger.send(cmd("DEL").arg(key)).await.map(drop)
    }

    /// Gives gateways the domains, as JSON.
    pub async fn publish_domains(&self, json: &[u8]) -> Result<(), LedgerError> {
        let key = keys::link_domains(self.ledger.prefix());
        self.ledger
            .send(cmd("SET").arg(key).arg(json))
            .await
            .map(drop)
    }

    /// What an `Idempotency-Key` holds; if nothing, `ours` from now on, for so long.
    pub async fn idempotency(
        &self,
        hash: [u8; 16],
        ours: &[u8],
        life_ms: u64,
    ) -> Result<Option<Vec<u8>>, LedgerError> {
        let key = keys::link_idempotency(self.ledger.prefix(), hash);
        let mut set = cmd("SET");
        set.arg(&key).arg(ours).arg("NX").arg("PX").arg(life_ms);
        if self.ledger.send(&set).await? != Value::Nil {
            return Ok(None);
        }
        match self.ledger.send(cmd("GET").arg(&key)).await? {
            Value::BulkString(held) => Ok(Some(held)),
            // It has ended in between: as if it were held, the client asks again.
            _ => Ok(Some(Vec::new())),
        }
    }

    /// What an `Idempotency-Key` holds from now on; `None`: nothing.
    pub async fn set_idempotency(
        &self,
        hash: [u8; 16],
        held: Option<(&[u8], u64)>,
    ) -> Result<(), LedgerError> {
        let key = keys::link_idempotency(self.ledger.prefix(), hash);
        let command = match held {
            Some((held, life_ms)) => {
                let mut set = cmd("SET");
                set.arg(key).arg(held).arg("PX").arg(life_ms).to_owned()
            }
            None => cmd("DEL").arg(key).to_owned(),
        };
        self.ledger.send(&command).await.map(drop)
    }
}

fn life(reply: &Value) -> Life {
    match reply {
        Value::Int(-2) => Life::Gone,
        Value::Int(ms) => u64::try_from(*ms).map_or(Life::Ever, Life::Ms),
        _ => Life::Ever,
    }
}
