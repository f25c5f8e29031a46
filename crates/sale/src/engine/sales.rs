//! What a worker knows of sales: the catalogue as last polled, and which shards are empty.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use crate::admission::{Rejection, without_units};
use crate::challenge::Challenge;
use crate::ledger::{ClaimReply, ShardProbe};
use crate::sale::{Band, Catalogue, Sale, SaleState};
use crate::sold_out::SoldOutMemory;
use crate::verdict::Verdict;
use weir_base::id::SaleId;
use weir_engine::redis::{Reply, read};
use weir_engine::{BatchId, Effects};

use crate::engine::config::Checked;
use crate::engine::job::ClaimPlan;
use crate::engine::poll::{Poll, Poller};

/// How long the result of a poll counts as current: longer than a few polls, which may be lost.
const CURRENT_MS: u64 = 2_000;
const CURRENT_POLLS: u64 = 4;

/// What one worker knows of sales.
#[derive(Debug)]
pub(crate) struct Sales {
    poller: Poller,
    /// How long the result of a poll counts as current.
    current_ms: u64,
    /// When the last poll came back.
    polled_at_ms: Option<u64>,
    /// `None` until the first poll has found one: nothing is known of any sale.
    catalogue: Option<Catalogue>,
    memory: SoldOutMemory,
}

/// A sale, with the switch that counts for it, or why a request for it is refused.
pub(crate) type Lookup<'a> = Result<(SaleState, &'a Sale), Rejection>;

/// What a poll has changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollResult {
    /// Whether polls before it had failed.
    pub(crate) has_recovered: bool,
    /// Whether there is another catalogue than before.
    pub(crate) has_changed: bool,
}

impl Sales {
    pub(crate) fn new(poll_interval_ms: u64) -> Self {
        Self {
            poller: Poller::new(poll_interval_ms),
            current_ms: CURRENT_MS.max(CURRENT_POLLS.saturating_mul(poll_interval_ms)),
            polled_at_ms: None,
            catalogue: None,
            memory: SoldOutMemory::default(),
        }
    }

    pub(crate) fn catalogue(&self) -> Option<&Catalogue> {
        self.catalogue.as_ref()
    }

    pub(crate) fn memory(&self) -> &SoldOutMemory {
        &self.memory
    }

    /// The sale that a path names, with the switch that counts for it.
    pub(crate) fn find(&self, sale: &[u8]) -> Lookup<'_> {
        let catalogue = self.catalogue.as_ref().ok_or(Verdict::Unavailable)?;
        let sale = catalogue.find(sale).ok_or(Verdict::UnknownSale)?;
        Ok((catalogue.switch_of(sale), sale))
    }

    /// Whether the switch for all sales is at shadow.
    pub(crate) fn is_all_shadow(&self) -> bool {
        let catalogue = self.catalogue.as_ref();
        catalogue.is_some_and(|catalogue| catalogue.switch == SaleState::Shadow)
    }

    /// Whether a request for what was found goes on whatever is decided. With all sales in shadow, this includes a request
    /// for an unknown sale.
    pub(crate) fn is_shadow(&self, found: &Lookup<'_>) -> bool {
        match found {
            Ok((switch, _)) => *switch == SaleState::Shadow,
            Err(_) => self.is_all_shadow(),
        }
    }

    /// The answer when no unit of `sale` is left in Redis. It is final only while polls are current: a gateway that has not
    /// read the catalogue for a while does not know that SQL has none left.
    pub(crate) fn without_units(&self, sale: &Sale, now_ms: u64) -> Verdict {
        let age_ms = self
            .polled_at_ms
            .and_then(|polled_at_ms| now_ms.checked_sub(polled_at_ms));
        match age_ms {
            Some(age_ms) if age_ms <= self.current_ms => without_units(sale),
            _ => Verdict::Restocking,
        }
    }

    /// The answer for a sale without units, if this is one as far as is known.
    pub(crate) fn if_empty(&self, sale: &SaleId, now_ms: u64) -> Option<Verdict> {
        if !self.memory.is_empty(sale) {
            return None;
        }
        let found = self.find(sale.as_str().as_bytes());
        Some(found.map_or(Verdict::Restocking, |(_, sale)| {
            self.without_units(sale, now_ms)
        }))
    }

    /// As [`SoldOutMemory::learn`].
    pub(crate) fn learn(&mut self, sale: &SaleId, shard: u32, reply: &ClaimReply) {
        self.memory.learn(sale, shard, reply);
    }

    /// As [`SoldOutMemory::learn_probe`].
    pub(crate) fn learn_probe(&mut self, sale: &SaleId, shards: &[ShardProbe]) {
        self.memory.learn_probe(sale, shards);
    }

    /// Remembers every sale as empty of which SQL has nothing left, as if a probe had found it so: for a host that reads only
    /// the catalogue and asks no shard.
    pub(crate) fn trust_bands(&mut self) {
        let empty = ShardProbe {
            stock: Some(0),
            moving: 0,
            epoch: 0,
            open_claims: 0,
        };
        for sale in self.catalogue.iter().flat_map(|known| &known.sales) {
            if sale.band == Band::None && !self.memory.is_empty(&sale.id) {
                let shards = vec![empty; sale.shards as usize];
                self.memory.learn_probe(&sale.id, &shards);
            }
        }
    }

    // --- polls

    /// Whether Redis has not yet said whether there is a catalogue.
    pub(crate) fn is_awaited(&self) -> bool {
        self.catalogue.is_none() && !self.poller.has_answered()
    }

    /// As [`Poller::hurry`].
    pub(crate) fn hurry(&mut self) {
        self.poller.hurry();
    }

    /// As [`Poller::tick_ms`].
    pub(crate) fn tick_ms(&self) -> u64 {
        self.poller.tick_ms()
    }

    /// As [`Poller::poll`].
    pub(crate) fn poll(
        &mut self,
        plan: &ClaimPlan,
        timeout_ms: u64,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let memory = &self.memory;
        self.poller.poll(memory, plan, timeout_ms, now_ms, effects);
    }

    /// As [`Poller::completed`].
    pub(crate) fn poll_of(&mut self, batch: BatchId) -> Option<Poll> {
        self.poller.completed(batch)
    }

    /// Reads the reply to a poll.
    ///
    /// # Errors
    /// Why it could not be read. What was known stays.
    pub(crate) fn read_poll(
        &mut self,
        poll: &Poll,
        reply: Reply,
        now_ms: u64,
    ) -> Result<PollResult, String> {
        let replies = read(reply, poll.count()).map_err(|failure| format!("{failure}"))?;
        let read = self.poller.read(poll, &replies, &mut self.memory);
        let changed = read.map_err(|error| format!("{error}"))?;
        self.polled_at_ms = Some(now_ms);
        let has_changed = changed.is_some();
        if let Some(catalogue) = changed {
            self.memory.retain(&catalogue);
            self.catalogue = Some(catalogue);
        }
        Ok(PollResult {
            has_recovered: self.poller.succeeded(),
            has_changed,
        })
    }

    /// A poll was of no use. Whether that is worth a line in the log.
    pub(crate) fn poll_failed(&mut self) -> bool {
        self.poller.failed()
    }
}

/// What `config` lacks for some sales of `catalogue`, as lines for the log.
pub(crate) fn missing_settings(
    config: &Checked,
    catalogue: &Catalogue,
) -> impl Iterator<Item = &'static str> {
    let mut sales = catalogue.sales.iter();
    let token = (config.token.is_none() && sales.clone().any(|sale| sale.token))
        .then_some("sales want order tokens, but `token` is not configured");
    let is_captcha = |sale: &Sale| sale.challenge == Some(Challenge::Captcha {});
    let captcha = (config.captcha.is_none() && sales.any(is_captcha))
        .then_some("sales want a captcha before an order token, but `captcha` is not configured: nobody gets one here");
    token.into_iter().chain(captcha)
}
