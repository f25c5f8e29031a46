//! Reads the catalogue and the epochs of empty shards from Redis on ticks.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::redis::{catalogue, keys};
use crate::sale::Catalogue;
use crate::sold_out::SoldOutMemory;
use weir_base::id::SaleId;
use weir_base::resp::{Value, encode_command};
use weir_engine::poll::Schedule;
use weir_engine::{BatchId, Effects};

use crate::engine::job::ClaimPlan;

/// The maximum number of epochs per poll. Later polls read the others: with more empty shards, sales reopen somewhat
/// later.
const EPOCHS_MAX: usize = 1_000;

/// The maximum poll interval in milliseconds while a sale has no free unit but is not sold out: its buyers retry until
/// either changes.
const UNDECIDED_POLL_MS: u64 = 50;

/// A due or pending poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Poll {
    /// The shards whose epochs it reads, in order.
    pub(crate) watched: Vec<(SaleId, u32)>,
}

/// Schedules polls and stores their results.
#[derive(Debug)]
pub(crate) struct Poller {
    schedule: Schedule,
    interval_ms: u64,
    under_way: Option<Poll>,
    cursor: usize,
    /// The catalogue's bytes from the last read: most polls return the same.
    observed: Vec<u8>,
    /// Its version: earlier versions are ignored.
    version: u64,
    has_answered: bool,
}

/// Why a poll failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PollError {
    #[error("no catalogue in Redis: start the origin, and check key_prefix")]
    NoCatalogue,
    #[error("invalid catalogue: {0}")]
    Catalogue(String),
    #[error("unexpected reply of Redis: {0}")]
    Reply(String),
}

impl Poller {
    pub(crate) fn new(interval_ms: u64) -> Self {
        Self {
            schedule: Schedule::new(interval_ms),
            interval_ms,
            under_way: None,
            cursor: 0,
            observed: Vec::new(),
            version: 0,
            has_answered: false,
        }
    }

    /// Whether Redis has ever returned the catalogue's key, even an empty one.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Makes a poll due soon, at the first request.
    pub(crate) fn poll_soon(&mut self) {
        self.schedule.poll_soon();
    }

    /// Polls more often while a sale without a free unit may or may not be sold out.
    pub(crate) fn set_undecided(&mut self, is_undecided: bool) {
        let undecided_ms = UNDECIDED_POLL_MS.min(self.interval_ms);
        self.schedule.set_interval(match is_undecided {
            true => undecided_ms,
            false => self.interval_ms,
        });
    }

    /// The interval between ticks in milliseconds.
    pub(crate) fn tick_ms(&self) -> u64 {
        self.schedule.tick_ms()
    }

    /// Sends a poll if one is due and none is pending.
    pub(crate) fn poll(
        &mut self,
        memory: &SoldOutMemory,
        plan: &ClaimPlan,
        timeout_ms: u64,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if !self.schedule.is_due(now_ms) {
            return;
        }
        let poll = self.next(memory);
        let batch = effects.call(timeout_ms, now_ms, |body| poll.encode(plan, body));
        self.schedule.sent(batch);
        self.under_way = Some(poll);
    }

    /// The content of the next poll.
    fn next(&mut self, memory: &SoldOutMemory) -> Poll {
        let total = memory.watched().count();
        self.cursor = if self.cursor < total { self.cursor } else { 0 };
        let watched: Vec<_> = memory
            .watched()
            .skip(self.cursor)
            .take(EPOCHS_MAX)
            .map(|(sale, shard)| (sale.clone(), shard))
            .collect();
        self.cursor += watched.len();
        Poll { watched }
    }

    /// The poll of the ended call `batch`, if it was one.
    pub(crate) fn completed(&mut self, batch: BatchId) -> Option<Poll> {
        let is_poll = self.schedule.completed(batch);
        self.under_way.take_if(|_| is_poll)
    }

    /// As [`Schedule::succeeded`].
    pub(crate) fn succeeded(&mut self) -> bool {
        self.schedule.succeeded()
    }

    /// As [`Schedule::failed`].
    pub(crate) fn failed(&mut self) -> bool {
        self.schedule.failed()
    }

    /// Reads a poll's replies: stores epochs in `memory`, and returns a changed catalogue.
    pub(crate) fn read(
        &mut self,
        poll: &Poll,
        replies: &[Value],
        memory: &mut SoldOutMemory,
    ) -> Result<Option<Catalogue>, PollError> {
        let (catalogue, epochs) = replies.split_first().ok_or(PollError::NoCatalogue)?;
        for ((sale, shard), epoch) in poll.watched.iter().zip(epochs) {
            // A missing or unreadable key counts as a different epoch: the shard has changed.
            memory.observe_epoch(sale, *shard, epoch_of(epoch));
        }
        self.read_catalogue(catalogue)
    }

    fn read_catalogue(&mut self, value: &Value) -> Result<Option<Catalogue>, PollError> {
        self.has_answered |= matches!(value, Value::Bulk(_) | Value::Null);
        let bytes = match value {
            Value::Bulk(bytes) => bytes,
            Value::Null => return Err(PollError::NoCatalogue),
            other => return Err(unexpected(other)),
        };
        if *bytes == self.observed {
            return Ok(None);
        }
        let catalogue =
            catalogue::read(bytes).map_err(|error| PollError::Catalogue(error.to_string()))?;
        if catalogue.version < self.version {
            // Redis has lost its last writes, and the origin will write the later version again.
            return Ok(None);
        }
        self.version = catalogue.version;
        self.observed.clone_from(bytes);
        Ok(Some(catalogue))
    }
}

/// An epoch that no shard has.
const NO_EPOCH: i64 = -1;

fn epoch_of(value: &Value) -> i64 {
    let digits = match value {
        Value::Bulk(digits) => core::str::from_utf8(digits).ok(),
        _ => None,
    };
    let epoch = digits.and_then(|digits| digits.parse().ok());
    epoch.unwrap_or(NO_EPOCH)
}

fn unexpected(value: &Value) -> PollError {
    match value {
        Value::Error(error) => PollError::Reply(String::from_utf8_lossy(error).into_owned()),
        other => PollError::Reply(format!("{other:?}")),
    }
}

impl Poll {
    /// Appends the poll's commands to `body`.
    fn encode(&self, plan: &ClaimPlan, body: &mut Vec<u8>) {
        encode_command(
            body,
            [b"GET".as_slice(), &keys::catalogue(&plan.key_prefix)],
        );
        for (sale, shard) in &self.watched {
            let epoch = plan.keys(sale, *shard).epoch();
            encode_command(body, [b"GET".as_slice(), &epoch]);
        }
    }

    /// The number of the poll's commands.
    pub(crate) fn count(&self) -> usize {
        1 + self.watched.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ShardProbe;
    use alloc::vec;

    const EMPTY: ShardProbe = ShardProbe {
        stock: Some(0),
        epoch: 5,
        open_claims: 0,
        moving: 0,
    };

    const CATALOGUE: &[u8] = br#"{"sales":[{"id":"s","starts_at_ms":1,"ends_at_ms":2,"shards":4,"user_cap":1,"state":"open"}]}"#;

    fn memory_of(shards: usize) -> (SoldOutMemory, SaleId) {
        let (mut memory, sale) = (SoldOutMemory::default(), SaleId::new("s").unwrap());
        memory.learn_probe(&sale, 0, &vec![EMPTY; shards]);
        (memory, sale)
    }

    fn bulk(bytes: &[u8]) -> Value {
        Value::Bulk(bytes.to_vec())
    }

    #[test]
    fn changed_epoch_reopens_its_sale() {
        for moved in [bulk(b"6"), Value::Null, Value::Error(b"WRONGTYPE".to_vec())] {
            let (mut memory, sale) = memory_of(3);
            let mut poller = Poller::new(500);
            let poll = poller.next(&memory);
            assert_eq!(poll.count(), 4);
            let still = [bulk(CATALOGUE), bulk(b"5"), bulk(b"5"), bulk(b"5")];
            assert!(poller.read(&poll, &still, &mut memory).unwrap().is_some());
            assert!(memory.is_empty_for(&sale, 2));
            let replies = [bulk(CATALOGUE), bulk(b"5"), moved, bulk(b"5")];
            poller.read(&poll, &replies, &mut memory).unwrap();
            assert!(!memory.is_empty_for(&sale, 2));
        }
    }

    #[test]
    fn missing_epoch_matches_no_shard_and_reopens_the_sale() {
        for epoch in [0, 1] {
            let (mut memory, sale) = (SoldOutMemory::default(), SaleId::new("s").unwrap());
            memory.learn_probe(&sale, 0, &[ShardProbe { epoch, ..EMPTY }]);
            let mut poller = Poller::new(500);
            let poll = poller.next(&memory);
            assert!(memory.is_empty_for(&sale, 0));
            let replies = [bulk(CATALOGUE), Value::Null];
            poller.read(&poll, &replies, &mut memory).unwrap();
            assert!(!memory.is_empty_for(&sale, 0), "{epoch}");
        }
    }

    #[test]
    fn unchanged_catalogue_is_not_read_again() {
        let (mut poller, mut memory) = (Poller::new(500), SoldOutMemory::default());
        let mut read = |bytes: &[u8]| poller.read(&Poll::default(), &[bulk(bytes)], &mut memory);
        assert!(read(CATALOGUE).unwrap().is_some());
        assert!(read(CATALOGUE).unwrap().is_none());
        assert!(matches!(read(b"{}"), Err(PollError::Catalogue(_))));
        assert!(
            read(CATALOGUE).unwrap().is_none(),
            "the good one still stands"
        );
    }

    #[test]
    fn older_catalogue_never_replaces_a_newer_one() {
        let (mut poller, mut memory) = (Poller::new(500), SoldOutMemory::default());
        let mut read = |version: u64| {
            let text = format!(r#"{{"version":{version},"switch":"closed","sales":[]}}"#);
            let replies = [bulk(text.as_bytes())];
            let read = poller.read(&Poll::default(), &replies, &mut memory);
            read.unwrap().map(|catalogue| catalogue.version)
        };
        assert_eq!(read(7), Some(7));
        assert_eq!(read(6), None, "Redis has lost a write");
        assert_eq!(read(8), Some(8));
    }

    #[test]
    fn unexpected_catalogue_reply_of_redis_is_an_error() {
        let (mut poller, mut memory) = (Poller::new(500), SoldOutMemory::default());
        let mut read = |value| {
            poller
                .read(&Poll::default(), &[value], &mut memory)
                .unwrap_err()
        };
        assert_eq!(read(Value::Null), PollError::NoCatalogue);
        let error = read(Value::Error(b"no upstream host".to_vec()));
        assert_eq!(error, PollError::Reply("no upstream host".into()));
        assert!(matches!(read(Value::Integer(1)), PollError::Reply(_)));
    }

    #[test]
    fn more_empty_shards_than_fit_in_one_poll_take_turns() {
        let mut memory = SoldOutMemory::default();
        for sale in 0..30 {
            let sale = SaleId::new(format!("s{sale:02}")).unwrap();
            memory.learn_probe(&sale, 0, &[EMPTY; 50]);
        }
        let mut poller = Poller::new(500);
        let mut sizes = Vec::new();
        for _ in 0..4 {
            sizes.push(poller.next(&memory).watched.len());
        }
        assert_eq!(sizes, [1_000, 500, 1_000, 500]);
    }
}
