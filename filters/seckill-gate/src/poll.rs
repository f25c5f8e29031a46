//! The catalogue and the epochs of empty shards, read from Redis on ticks.

use weir_base::id::SaleId;
use weir_resp::{Value, encode_command};
use weir_sale::sale::Catalogue;
use weir_sale::sold_out::SoldOutMemory;
use weir_scripts::{documents, keys};

use crate::job::ClaimPlan;

/// Until the first catalogue has come, polls start this far apart, in milliseconds, and then twice
/// as far each time: a gateway is ready soon after Redis is, and does not spin while it is not.
const FIRST_POLL_MS: u64 = 50;

/// How far apart the polls of a VM become that has neither found a catalogue nor seen a request.
/// Envoy runs such a VM on its main thread: nothing can be reached from there, and nothing comes.
const IDLE_POLL_MS: u64 = 30_000;

/// The longest between ticks of a VM that has seen requests: what a lost wake-up costs them.
const TICK_MS_MAX: u64 = 500;

/// By how much a tick may come before its poll is due.
const EARLY_MS_MAX: u64 = 20;

/// The most epochs read in one poll. What is beyond has its turn in the next: with more empty shards
/// than this, sales reopen somewhat later.
const EPOCHS_MAX: usize = 1_000;

/// A poll that is to be sent, or is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Poll {
    /// The shards whose epochs are asked for, in order.
    pub(crate) watched: Vec<(SaleId, u32)>,
}

/// When polls are due, and what they have found.
#[derive(Debug)]
pub(crate) struct Poller {
    interval_ms: u64,
    backoff_ms: u64,
    backoff_max_ms: u64,
    due_ms: u64,
    under_way: Option<(u32, Poll)>,
    cursor: usize,
    /// The catalogue's bytes as last read: most polls find them unchanged.
    seen: Vec<u8>,
}

/// Why a poll was of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PollError {
    #[error("there is no catalogue in Redis: has the origin been started?")]
    NoCatalogue,
    #[error("the catalogue is not what the origin writes: {0}")]
    Catalogue(String),
    #[error("Redis answered otherwise than asked: {0}")]
    Reply(String),
}

impl Poller {
    pub(crate) fn new(interval_ms: u64) -> Self {
        Self {
            interval_ms,
            backoff_ms: FIRST_POLL_MS.min(interval_ms),
            backoff_max_ms: interval_ms.max(IDLE_POLL_MS),
            due_ms: 0,
            under_way: None,
            cursor: 0,
            seen: Vec::new(),
        }
    }

    /// The first request has come: what is not known yet is looked for soon.
    pub(crate) fn hurry(&mut self) {
        self.backoff_max_ms = self.interval_ms;
        if self.seen.is_empty() {
            self.backoff_ms = FIRST_POLL_MS.min(self.interval_ms);
            self.due_ms = 0;
        }
    }

    /// How far apart ticks should be, in milliseconds.
    pub(crate) fn tick_ms(&self) -> u64 {
        let is_idle = self.backoff_max_ms > self.interval_ms;
        self.backoff_ms
            .min(if is_idle { IDLE_POLL_MS } else { TICK_MS_MAX })
    }

    /// The next poll, if one is due and none is under way.
    pub(crate) fn next(&mut self, memory: &SoldOutMemory, now_ms: u64) -> Option<Poll> {
        // A clock that was set back must not put polls off.
        let is_due = now_ms >= self.due_ms || self.due_ms - now_ms > self.backoff_max_ms;
        if self.under_way.is_some() || !is_due {
            return None;
        }
        // Ticks are that far apart, too: one that comes a little early must not miss its poll.
        self.due_ms = now_ms + self.backoff_ms - (self.backoff_ms / 8).min(EARLY_MS_MAX);
        self.backoff_ms = (self.backoff_ms * 2).min(self.backoff_max_ms);
        let total = memory.watched().count();
        self.cursor = if self.cursor < total { self.cursor } else { 0 };
        let watched: Vec<_> = memory
            .watched()
            .skip(self.cursor)
            .take(EPOCHS_MAX)
            .map(|(sale, shard)| (sale.clone(), shard))
            .collect();
        self.cursor += watched.len();
        Some(Poll { watched })
    }

    /// `poll` was sent as the call `token`.
    pub(crate) fn sent(&mut self, token: u32, poll: Poll) {
        self.under_way = Some((token, poll));
    }

    /// The poll that the call `token` was, if it was one.
    pub(crate) fn completed(&mut self, token: u32) -> Option<Poll> {
        self.under_way
            .take_if(|(sent, _)| *sent == token)
            .map(|(_, poll)| poll)
    }

    /// Reads a poll's replies: epochs go into `memory`; a catalogue that has changed is returned.
    pub(crate) fn read(
        &mut self,
        poll: &Poll,
        replies: &[Value],
        memory: &mut SoldOutMemory,
    ) -> Result<Option<Catalogue>, PollError> {
        let (catalogue, epochs) = replies.split_first().ok_or(PollError::NoCatalogue)?;
        for ((sale, shard), epoch) in poll.watched.iter().zip(epochs) {
            // A key that is gone is an epoch of its own: the shard is not what it was.
            let epoch = epoch_of(epoch)?;
            memory.observe_epoch(sale, *shard, epoch);
        }
        self.read_catalogue(catalogue)
    }

    fn read_catalogue(&mut self, value: &Value) -> Result<Option<Catalogue>, PollError> {
        let bytes = match value {
            Value::Bulk(bytes) => bytes,
            Value::Null => return Err(PollError::NoCatalogue),
            other => return Err(unexpected(other)),
        };
        if *bytes == self.seen {
            return Ok(None);
        }
        let catalogue = documents::catalogue::read(bytes)
            .map_err(|error| PollError::Catalogue(error.to_string()))?;
        self.seen.clone_from(bytes);
        self.backoff_ms = self.interval_ms;
        self.backoff_max_ms = self.interval_ms;
        Ok(Some(catalogue))
    }
}

fn epoch_of(value: &Value) -> Result<i64, PollError> {
    match value {
        Value::Bulk(digits) => std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| unexpected(value)),
        Value::Null => Ok(-1),
        other => Err(unexpected(other)),
    }
}

fn unexpected(value: &Value) -> PollError {
    match value {
        Value::Error(error) => PollError::Reply(String::from_utf8_lossy(error).into_owned()),
        other => PollError::Reply(format!("{other:?}")),
    }
}

impl Poll {
    /// The poll's commands.
    pub(crate) fn commands(&self, plan: &ClaimPlan) -> Vec<u8> {
        let mut body = Vec::new();
        encode_command(
            &mut body,
            [b"GET".as_slice(), &keys::catalogue(&plan.key_prefix)],
        );
        for (sale, shard) in &self.watched {
            let epoch = plan.keys(sale, *shard).epoch();
            encode_command(&mut body, [b"GET".as_slice(), &epoch]);
        }
        body
    }

    /// How many commands the poll is.
    pub(crate) fn count(&self) -> usize {
        1 + self.watched.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sale::ledger::ShardProbe;

    const EMPTY: ShardProbe = ShardProbe {
        stock: Some(0),
        epoch: 5,
        open_claims: 0,
        moving: 0,
    };

    const CATALOGUE: &[u8] = br#"{"sales":[{"id":"s","starts_at_ms":1,"ends_at_ms":2,"shards":4,"user_cap":1,"state":"open"}]}"#;

    fn memory_of(shards: usize) -> (SoldOutMemory, SaleId) {
        let (mut memory, sale) = (SoldOutMemory::default(), SaleId::new("s").unwrap());
        memory.learn_probe(&sale, &vec![EMPTY; shards]);
        (memory, sale)
    }

    fn bulk(bytes: &[u8]) -> Value {
        Value::Bulk(bytes.to_vec())
    }

    #[test]
    fn polls_come_quickly_at_first_and_then_at_the_interval() {
        let mut poller = Poller::new(500);
        poller.hurry();
        assert_eq!(
            polls(&mut poller, 1_000..3_500),
            [1_000, 1_050, 1_150, 1_350, 1_750, 2_250, 2_750, 3_250]
        );
        poller
            .read(
                &Poll::default(),
                &[bulk(CATALOGUE)],
                &mut SoldOutMemory::default(),
            )
            .unwrap();
        assert_eq!(polls(&mut poller, 3_750..5_000), [3_750, 4_250, 4_750]);
    }

    fn polls(poller: &mut Poller, times_ms: std::ops::Range<u64>) -> Vec<u64> {
        let memory = SoldOutMemory::default();
        let is_due = |now_ms: &u64| poller.next(&memory, *now_ms).is_some();
        times_ms.step_by(50).filter(is_due).collect()
    }

    #[test]
    fn a_vm_that_nobody_needs_calms_down_until_the_first_request() {
        let mut poller = Poller::new(500);
        let idle = polls(&mut poller, 0..600_000);
        assert_eq!(
            idle.last_chunk::<2>().map(|[a, b]| b - a),
            Some(IDLE_POLL_MS)
        );
        assert_eq!(poller.tick_ms(), IDLE_POLL_MS);
        poller.hurry();
        assert_eq!(poller.tick_ms(), FIRST_POLL_MS);
        assert_eq!(polls(&mut poller, 600_000..600_100), [600_000, 600_050]);
    }

    #[test]
    fn one_poll_at_a_time_and_a_clock_set_back_stops_none() {
        let (memory, mut poller) = (SoldOutMemory::default(), Poller::new(500));
        let poll = poller.next(&memory, 1_000_000).unwrap();
        poller.sent(7, poll);
        assert_eq!(poller.next(&memory, 2_000_000), None);
        assert_eq!(poller.completed(8), None);
        assert!(poller.completed(7).is_some());
        assert!(poller.next(&memory, 1_000).is_some());
    }

    #[test]
    fn an_epoch_that_moved_reopens_its_sale() {
        for moved in [bulk(b"6"), Value::Null] {
            let (mut memory, sale) = memory_of(3);
            let mut poller = Poller::new(500);
            let poll = poller.next(&memory, 0).unwrap();
            assert_eq!(poll.count(), 4);
            let still = [bulk(CATALOGUE), bulk(b"5"), bulk(b"5"), bulk(b"5")];
            assert!(poller.read(&poll, &still, &mut memory).unwrap().is_some());
            assert!(memory.is_sold_out(&sale, 2));
            let replies = [bulk(CATALOGUE), bulk(b"5"), moved, bulk(b"5")];
            poller.read(&poll, &replies, &mut memory).unwrap();
            assert!(!memory.is_sold_out(&sale, 2));
        }
    }

    #[test]
    fn a_catalogue_that_did_not_change_is_not_read_again() {
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
    fn what_redis_should_not_answer_is_an_error_and_no_catalogue() {
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
            memory.learn_probe(&sale, &[EMPTY; 50]);
        }
        let mut poller = Poller::new(500);
        let mut sizes = Vec::new();
        for turn in 0..4 {
            sizes.push(poller.next(&memory, turn * 1_000).unwrap().watched.len());
        }
        assert_eq!(sizes, [1_000, 500, 1_000, 500]);
    }
}
