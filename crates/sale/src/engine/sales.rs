//! A worker's view of sales: the last catalogue, and empty shards.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::admission::{Rejection, without_units};
use crate::challenge::Challenge;
use crate::ledger::ShardProbe;
use crate::sale::{Band, Catalogue, ClaimKey, Phase, Sale, SaleState};
use crate::sold_out::SoldOutMemory;
use crate::verdict::Verdict;
use weir_base::id::SaleId;
use weir_base::resp::Value;
use weir_engine::metrics::Counter;
use weir_engine::redis::Failure;
use weir_engine::refusals::Refusals;
use weir_engine::{Effects, Level, Request};

use crate::engine::config::CheckedConfig;
use crate::engine::metrics::Metrics;
use crate::engine::poll::{Poll, Poller};
use crate::engine::sku::sale_of;

/// How long a poll's result counts as current: longer than a few polls, which may be lost.
const CURRENT_MS: u64 = 2_000;
const CURRENT_POLLS: u64 = 4;

/// One worker's view of sales.
#[derive(Debug)]
pub(crate) struct Sales {
    config: Arc<CheckedConfig>,
    pub(crate) poller: Poller,
    /// When the last successful poll ended.
    polled_at_ms: Option<u64>,
    /// `None` until the first poll has found one.
    pub(crate) catalogue: Option<Catalogue>,
    pub(crate) memory: SoldOutMemory,
    /// When the memory last aged.
    aged_at_ms: u64,
    /// The key with which this gateway signs claims.
    claim_key: ClaimKey,
    /// Whether the origin has listed its keys without this one.
    is_signer_unknown: bool,
    polls_failed: Counter,
}

impl Sales {
    pub(crate) fn new(config: Arc<CheckedConfig>, metrics: &Metrics) -> Self {
        Self {
            poller: Poller::new(config.poll_interval_ms),
            polled_at_ms: None,
            catalogue: None,
            memory: SoldOutMemory::default(),
            aged_at_ms: 0,
            claim_key: ClaimKey::from_key(config.claim_keys.signer()),
            is_signer_unknown: false,
            polls_failed: metrics.polls_failed.clone(),
            config,
        }
    }

    /// The sale with this id, and its effective switch.
    pub(crate) fn find(&self, sale: &[u8]) -> Result<(SaleState, &Sale), Rejection> {
        let catalogue = self.catalogue.as_ref().ok_or(Verdict::Unavailable)?;
        let sale = catalogue.find(sale).ok_or(Verdict::UnknownSale)?;
        Ok((catalogue.switch_of(sale), sale))
    }

    /// The sale that sells the SKU of a normal order, and its effective switch.
    pub(crate) fn by_sku(&self, path: &[u8], request: &dyn Request) -> Option<(SaleState, &Sale)> {
        let catalogue = self.catalogue.as_ref()?;
        let sale = sale_of(&self.config.sku_routes, catalogue, path, request)?;
        Some((catalogue.switch_of(sale), sale))
    }

    /// Whether the switch of all sales is `shadow`.
    pub(crate) fn are_in_shadow(&self) -> bool {
        let mut catalogue = self.catalogue.iter();
        catalogue.any(|catalogue| catalogue.switch == SaleState::Shadow)
    }

    /// The verdict when Redis has no unit of `sale`. It is final only while polls are current: with an old catalogue
    /// the gateway cannot know that SQL has no units.
    pub(crate) fn without_units(&self, sale: &Sale, now_ms: u64) -> Verdict {
        let interval_ms = self.config.poll_interval_ms;
        let current_ms = CURRENT_MS.max(CURRENT_POLLS.saturating_mul(interval_ms));
        let age_ms = self
            .polled_at_ms
            .and_then(|polled_at_ms| now_ms.checked_sub(polled_at_ms));
        match age_ms {
            Some(age_ms) if age_ms <= current_ms => without_units(sale),
            _ => Verdict::AllReserved,
        }
    }

    /// The verdict for a sale without units; `None` if it may have units.
    pub(crate) fn if_empty(&self, sale: &SaleId, now_ms: u64) -> Option<Verdict> {
        if !self.memory.is_empty(sale) {
            return None;
        }
        let found = self.find(sale.as_str().as_bytes());
        Some(found.map_or(Verdict::AllReserved, |(_, sale)| {
            self.without_units(sale, now_ms)
        }))
    }

    /// Treats every sale without units in SQL as empty, as if a probe had found that.
    pub(crate) fn trust_bands(&mut self) {
        let empty = ShardProbe {
            stock: Some(0),
            moving: 0,
            epoch: 0,
            open_claims: 0,
        };
        for sale in self.catalogue.iter().flat_map(|existing| &existing.sales) {
            if sale.band == Band::None && !self.memory.is_empty(&sale.id) {
                let shards = vec![empty; sale.shards as usize];
                self.memory.learn_probe(&sale.id, sale.first_shard, &shards);
            }
        }
    }

    /// Refuses all requests while the origin does not accept this gateway's key. Each claim would block a unit until
    /// its deadline, and the origin would refuse its buyer.
    pub(crate) fn check_signer(&self) -> Result<(), Rejection> {
        match self.is_signer_unknown {
            true => Err(Verdict::Misconfigured.into()),
            false => Ok(()),
        }
    }

    /// Handles the end of a poll. `is_needed`: this worker receives requests.
    pub(crate) fn polled(
        &mut self,
        poll: &Poll,
        replies: &Result<Vec<Value>, Failure>,
        is_needed: bool,
        refusals: &mut Refusals,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let polled = match replies {
            Ok(replies) => {
                let read = self.poller.read(poll, replies, &mut self.memory);
                read.map_err(|error| format!("{error}"))
            }
            Err(failure) => Err(format!("{failure}")),
        };
        refusals.note_replies(replies, "GET", now_ms, effects);
        match polled {
            Ok(changed) => self.poll_succeeded(changed, now_ms, effects),
            Err(reason) => self.poll_failed(&reason, is_needed, effects),
        }
    }

    fn poll_succeeded(&mut self, changed: Option<Catalogue>, now_ms: u64, effects: &mut Effects) {
        self.polled_at_ms = Some(now_ms);
        if self.poller.succeeded() {
            effects.log(Level::Info, "the catalogue can be read again");
        }
        if let Some(catalogue) = changed {
            self.log_missing_settings(&catalogue, effects);
            self.memory.retain(&catalogue);
            self.compare_claim_keys(&catalogue, effects);
            self.catalogue = Some(catalogue);
        }
        self.age_memory(now_ms);
        self.pace_polls(now_ms);
    }

    /// Ages the memory at the configured poll interval, and not with additional polls. A poll may come slightly early.
    fn age_memory(&mut self, now_ms: u64) {
        let interval_ms = self.config.poll_interval_ms;
        if now_ms.abs_diff(self.aged_at_ms) >= interval_ms - interval_ms / 8 {
            self.memory.age();
            self.aged_at_ms = now_ms;
        }
    }

    /// Records a probe of all shards of a sale.
    pub(crate) fn learn_probe(
        &mut self,
        sale: &SaleId,
        first_shard: u32,
        shards: &[ShardProbe],
        now_ms: u64,
    ) {
        self.memory.learn_probe(sale, first_shard, shards);
        self.pace_polls(now_ms);
    }

    /// See [`Poller::set_undecided`].
    fn pace_polls(&mut self, now_ms: u64) {
        let is_open = |id: &SaleId| {
            let found = self.catalogue.as_ref()?.find(id.as_str().as_bytes())?;
            Some(found.band != Band::None && found.phase(now_ms) == Phase::Running)
        };
        let mut empty = self.memory.sales();
        let is_undecided = empty.any(|id| is_open(id) == Some(true));
        self.poller.set_undecided(is_undecided);
    }

    /// Logs with every new catalogue which sales this gateway's configuration cannot serve.
    fn log_missing_settings(&self, catalogue: &Catalogue, effects: &mut Effects) {
        let mut sales = catalogue.sales.iter();
        if self.config.token.is_none() && sales.clone().any(|sale| sale.token) {
            let text = "some sales require order tokens, but `token` is not configured";
            effects.log(Level::Error, text);
        }
        let captcha = Some(Challenge::Captcha {});
        if self.config.captcha.is_none() && sales.any(|sale| sale.challenge == captcha) {
            let text = "some sales require a CAPTCHA, but `captcha` is not configured: they issue no order tokens here";
            effects.log(Level::Error, text);
        }
    }

    /// Compares the keys of origin and gateway, and logs a change.
    fn compare_claim_keys(&mut self, catalogue: &Catalogue, effects: &mut Effects) {
        let is_unknown = !catalogue.accepts_key(&self.claim_key);
        if core::mem::replace(&mut self.is_signer_unknown, is_unknown) == is_unknown {
            return;
        }
        let ClaimKey { id, fingerprint } = &self.claim_key;
        if !is_unknown {
            let text = format!(
                "the origin accepts the claim key \"{id}\" (fingerprint {fingerprint}): orders resume"
            );
            return effects.log(Level::Info, text);
        }
        let existing = catalogue.claim_keys.iter();
        let existing: Vec<_> = existing
            .map(|key| format!("{} ({})", key.id, key.fingerprint))
            .collect();
        let text = format!(
            "orders are refused: this gateway signs claims with the key \"{id}\" (fingerprint {fingerprint}), but the origin accepts {}; set the same WEIR_CLAIM_SECRET and key id at both, and restart the changed one",
            existing.join(", ")
        );
        effects.log(Level::Error, text);
    }

    /// Keeps the current data, and logs the first failure in a row.
    pub(crate) fn poll_failed(&mut self, reason: &str, is_needed: bool, effects: &mut Effects) {
        // Without requests, Redis need not be reachable.
        if !is_needed && self.catalogue.is_none() {
            return;
        }
        self.polls_failed.increment();
        if self.poller.failed() {
            let text = format!("catalogue not refreshed, using the previous one: {reason}");
            effects.log(Level::Warn, text);
        }
    }
}
