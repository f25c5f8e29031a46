//! Redis: a model of each shard behind the real commands of gateways and origins.
//!
//! The model parses commands as Redis does, finds scripts by digest or source, and writes replies as the scripts do. It
//! keeps every shard's recent states, so that data can be lost.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::VecDeque;
use std::rc::Rc;

use weir_base::id::UserId;
use weir_base::resp::{Value, decode};
use weir_edge::shard::command::prefix_of;
use weir_edge::shard::{ShardCommand, reply};
use weir_sale::ledger::{Audit, EvictedKey, ReleaseKind, ShardLedger};
use weir_sale::redis::catalogue;
use weir_sale::site::{fence_of, first_shard, index_of};
use weir_scripts::Script;
use weir_scripts::keys::DEFAULT_PREFIX;

use crate::mutation::Mutation;
use crate::queue::START_MS;
use crate::sql::Order;
use crate::stage::commands::{CommandArgs, DIGESTS, Scripts, no_script, words};

mod scripts;

/// The length of the kept history, in microseconds of the virtual clock: no loss goes further back.
const HISTORY_US: u64 = 2_000_000;

/// The sale whose keys are all invalid.
pub(crate) const OTHER_SALE: &str = "other";

/// The digest of a script, calculated only once.
pub(crate) fn digest_of(script: &Script) -> &'static str {
    let mut existing = DIGESTS.iter();
    let found = existing.find(|(_, name)| **name == script.name);
    found.map_or("", |(digest, _)| digest.as_str())
}

/// One server.
#[derive(Debug)]
pub(crate) struct Redis {
    state: State,
    /// The scripts loaded by digest.
    scripts: Scripts,
    /// The state after each write, with its time.
    history: VecDeque<(u64, State)>,
    keeps_history: bool,
    pub(crate) mutation: Option<Mutation>,
    /// Claims granted since the last check.
    pub(crate) granted: Vec<GrantedClaim>,
    /// Steps of shard rebuilds since the last check.
    pub(crate) rebuilds: Vec<RebuildStep>,
    pub(crate) is_up: bool,
    /// The time of its clock.
    now_us: u64,
    /// The error of its clock.
    pub(crate) clock_off_us: i64,
    /// The number of shards of each fence.
    shards_each: u32,
}

/// The data that a loss may remove.
#[derive(Clone, Debug, Default)]
struct State {
    catalogue: Option<Rc<[u8]>>,
    /// The shards of all fences: see [`Redis::slot`].
    shards: Vec<Rc<Shard>>,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    ledger: ShardLedger,
    /// The epoch that a mutation shows in place of the ledger's: it increases with each change of the ledger's, unless
    /// the mutation ignores the change.
    shown_epoch: i64,
    /// The ledger's epoch at the last update of the shown one.
    noted_epoch: i64,
}

impl Shard {
    /// The epoch visible to others.
    fn epoch(&self, mutation: Option<Mutation>) -> i64 {
        match mutation.is_some_and(Mutation::is_of_epochs) && self.noted_epoch > 0 {
            true => self.shown_epoch,
            false => self.ledger.probe().epoch,
        }
    }

    /// Updates the shown epoch after a run of the script `name`.
    fn note_epoch(&mut self, name: &str, mutation: Option<Mutation>) {
        let epoch = self.ledger.probe().epoch;
        if epoch == self.noted_epoch {
            return;
        }
        let is_ignored = match mutation {
            Some(Mutation::EpochNotRaisedAtRelease) => name == "release",
            Some(Mutation::EpochNotRaisedAtCancel) => name == "cancel",
            Some(Mutation::EpochNotRaisedWhenEmpty) => name == "claim",
            Some(Mutation::EpochNotRaisedAtTopUp) => name == "stock_change",
            _ => false,
        };
        if self.noted_epoch == 0 {
            self.shown_epoch = epoch;
        } else if !is_ignored {
            self.shown_epoch += 1;
        }
        self.noted_epoch = epoch;
    }
}

/// A claim granted by Redis.
#[derive(Clone, Debug)]
pub(crate) struct GrantedClaim {
    pub(crate) shard: u32,
    pub(crate) generation: u64,
    pub(crate) user: UserId,
}

/// A step of a rebuild.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RebuildStep {
    /// The shard is wiped.
    Wiped(u32),
    /// The shard is in use again.
    Ended(u32),
}

impl Redis {
    /// A server with room for `shards` shards under each of `fences` fences.
    pub(crate) fn new(
        shards: u32,
        fences: u32,
        keeps_history: bool,
        mutation: Option<Mutation>,
    ) -> Self {
        let state = State {
            catalogue: None,
            shards: vec![Rc::default(); (shards * fences) as usize],
        };
        Self {
            history: VecDeque::from([(0, state.clone())]),
            state,
            scripts: Scripts::default(),
            keeps_history,
            mutation,
            granted: Vec::new(),
            rebuilds: Vec::new(),
            is_up: true,
            now_us: START_MS * 1_000,
            clock_off_us: 0,
            shards_each: shards,
        }
    }

    /// The position of a shard in `State::shards`.
    fn slot(&self, shard: u32) -> usize {
        (fence_of(shard) * self.shards_each + index_of(shard)) as usize
    }

    /// Runs at most `most` of the commands in `bytes`; appends their replies to `replies`.
    pub(crate) fn run(&mut self, bytes: &[u8], most: u64, now_us: u64, replies: &mut Vec<u8>) {
        self.now_us = (START_MS * 1_000 + now_us).saturating_add_signed(self.clock_off_us);
        let mut rest = bytes;
        let mut count = 0;
        while count < most && !rest.is_empty() {
            let (value, used) = decode(rest).expect("parties send whole commands");
            rest = &rest[used..];
            count += 1;
            let reply = self.command(&words(value));
            reply::encode(&reply, replies);
        }
        if self.keeps_history {
            self.remember(now_us);
        }
    }

    fn command(&mut self, words: &CommandArgs) -> Value {
        if words.get(3).is_some_and(|key| is_of_other_sale(key)) {
            let subject = "WRONGTYPE Operation against a key holding the wrong kind of value";
            return Value::Error(subject.into());
        }
        if words[0].starts_with(b"EVAL") {
            return match self.scripts.find(words) {
                Some(call) => self.script(call),
                None => no_script(),
            };
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let key = words.get(1).copied().unwrap_or_default();
        if key == weir_sale::redis::keys::catalogue(DEFAULT_PREFIX) {
            let catalogue = self.state.catalogue.as_deref();
            return catalogue.map_or(Value::Null, |json| Value::Bulk(json.to_vec()));
        }
        let command = ShardCommand::from_redis(&words, prefix_of(key).unwrap_or_default());
        let command = command.expect("parties send commands of shards");
        let shard = match command {
            ShardCommand::Time => 0,
            _ => self.slot(shard_of(key)),
        };
        let (now_us, there) = (self.now_us, &self.state.shards[shard]);
        match (&command, there.epoch(self.mutation)) {
            (ShardCommand::Epoch, epoch) if epoch > 0 => reply::text(epoch.to_string()),
            _ => match command.read(&there.ledger, now_us) {
                Some(reply) => reply,
                None => command.write(&mut self.shard(shard).ledger, now_us),
            },
        }
    }

    fn shard(&mut self, shard: usize) -> &mut Shard {
        let now_us = self.now_us;
        let shard = Rc::make_mut(&mut self.state.shards[shard]);
        shard.ledger.set_clock_us(now_us);
        shard
    }

    /// The audits of all shards of a fence, in order.
    pub(crate) fn audits_at(&self, fence: u32) -> Vec<Audit> {
        let first = self.slot(first_shard(fence));
        let shards = self.state.shards[first..].iter();
        let shards = shards.take(self.shards_each as usize);
        shards.map(|shard| shard.ledger.audit()).collect()
    }

    /// Whether a shard has an order. A user with an open claim is assumed to have it.
    pub(crate) fn has_order(&self, order: &Order) -> bool {
        let (shard, generation) = order.name;
        let ledger = &self.state.shards[self.slot(shard)].ledger;
        let existing = ledger.orders_of(&order.user);
        existing.is_none_or(|orders| {
            orders
                .iter()
                .any(|existing| existing.generation == generation)
        })
    }

    /// The epoch and stock of each shard as gateways observe them, by slot.
    pub(crate) fn epochs(&self) -> impl Iterator<Item = (i64, i64)> {
        let shards = self.state.shards.iter();
        shards.map(|shard| {
            let stock = shard.ledger.probe().stock;
            // A cold shard has no valid epoch.
            stock.map_or((0, 0), |stock| (shard.epoch(self.mutation), stock))
        })
    }

    /// Whether the catalogue contains a sale.
    pub(crate) fn has_catalogue(&self) -> bool {
        let json = self.state.catalogue.as_deref().unwrap_or_default();
        catalogue::read(json).is_ok_and(|catalogue| !catalogue.sales.is_empty())
    }

    /// Releases all claims of these users as if they were unused, for a mutation.
    pub(crate) fn give_back_claims(&mut self, commands: &[u8]) {
        let mut rest = commands;
        while let Ok((value, used)) = decode(rest) {
            rest = &rest[used..];
            for (shard, user) in scripts::claimants(&words(value)) {
                let slot = self.slot(shard);
                let ledger = &mut self.shard(slot).ledger;
                let mut open = ledger.open().into_iter();
                if let Some(claim) = open.find(|claim| claim.user == user) {
                    ledger.release(&user, claim.held.generation, ReleaseKind::Decided);
                }
            }
        }
    }

    // --- losses

    /// One key of a shard is evicted.
    pub(crate) fn evict(&mut self, shard: u32, key: EvictedKey) {
        let slot = self.slot(shard);
        self.shard(slot).ledger.evict(key);
    }

    /// Restores the state of `back_us` ago; an empty one if `None`. Scripts are lost in any case.
    pub(crate) fn restart(&mut self, back_us: Option<u64>, now_us: u64) {
        self.scripts.clear();
        if let Some(state) = self.earlier(back_us, now_us) {
            self.state = state;
        }
    }

    /// Restores one shard's state of `back_us` ago; an empty one if `None`.
    pub(crate) fn lose_shard(&mut self, shard: u32, back_us: Option<u64>, now_us: u64) {
        let shard = self.slot(shard);
        if let Some(state) = self.earlier(back_us, now_us) {
            self.state.shards[shard] = state.shards[shard].clone();
        }
    }

    fn earlier(&self, back_us: Option<u64>, now_us: u64) -> Option<State> {
        let Some(back_us) = back_us else {
            let shards = vec![Rc::default(); self.state.shards.len()];
            return Some(State {
                catalogue: None,
                shards,
            });
        };
        if back_us == 0 {
            return None;
        }
        let at_us = now_us.saturating_sub(back_us);
        let mut retained = self.history.iter().rev();
        retained
            .find(|(kept_us, _)| *kept_us <= at_us)
            .map(|(_, state)| state.clone())
    }

    fn remember(&mut self, now_us: u64) {
        let is_same = |(a, b): (&Rc<Shard>, &Rc<Shard>)| Rc::ptr_eq(a, b);
        let last = self.history.back().map(|(_, state)| state);
        let is_unchanged = last.is_some_and(|last| {
            last.shards.iter().zip(&self.state.shards).all(is_same)
                && last.catalogue == self.state.catalogue
        });
        if is_unchanged {
            return;
        }
        self.history.push_back((now_us, self.state.clone()));
        // Keeps one state from before the earliest possible loss.
        while self.history.len() > 1 && self.history[1].0 + HISTORY_US < now_us {
            self.history.pop_front();
        }
    }
}

fn is_of_other_sale(key: &[u8]) -> bool {
    let tag = key.split(|byte| *byte == b'{').nth(1);
    tag.is_some_and(|tag| tag.starts_with(OTHER_SALE.as_bytes()))
}

/// The shard number in a key: between the colon and the closing brace of its hash tag.
fn shard_of(key: &[u8]) -> u32 {
    let key = std::str::from_utf8(key).expect("keys are text");
    let tag = key.split(['{', '}']).nth(1).expect("keys have a hash tag");
    let shard = tag.rsplit(':').next().expect("the tag ends with the shard");
    shard.parse().expect("the shard is a number")
}
