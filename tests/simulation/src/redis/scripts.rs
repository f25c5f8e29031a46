//! The scripts: the model's replies, and the effects of mutations.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use weir_base::id::UserId;
use weir_base::resp::Value;
use weir_edge::shard::ShardCommand;
use weir_edge::shard::command::{Group, KEYS_PER_CLAIM_GROUP, KEYS_PER_PROBE};
use weir_edge::shard::reply::{self, flag, integer};
use weir_sale::idempotency::AttemptTag;
use weir_sale::ledger::{
    ClaimReply, ClaimTerms, LendReply, ReleaseKind, ShardLedger, StockChange, StockChanged,
};
use weir_sale::redis::catalogue;

use super::{CommandArgs, GrantedClaim, RebuildStep, Redis, shard_of};
use crate::mutation::Mutation;
use crate::stage::commands::{ScriptCall, name_of, number};

impl Redis {
    pub(super) fn script(&mut self, ScriptCall { name, keys, args }: ScriptCall<'_>) -> Value {
        if name == "publish" {
            return self.publish(number(&args[0]), &args[1]);
        }
        let command = ShardCommand::from_script(name, keys, args);
        let value = match command.expect("parties call scripts of sales as they are") {
            ShardCommand::Claim(groups) => self.claim(keys, groups),
            ShardCommand::Probe(_) => self.probe(keys),
            command => self.run_on(shard_of(&keys[0]), command),
        };
        let mutation = self.mutation;
        for shard in 0..self.state.shards.len() {
            if self.state.shards[shard].ledger.probe().epoch != self.state.shards[shard].noted_epoch
            {
                self.shard(shard).note_epoch(name, mutation);
            }
        }
        value
    }

    fn publish(&mut self, version: u64, json: &[u8]) -> Value {
        let there = self.state.catalogue.as_deref();
        let there = there.and_then(|json| catalogue::read(json).ok());
        let is_late = there.is_some_and(|there| there.version > version);
        if !is_late {
            self.state.catalogue = Some(json.into());
        }
        flag(!is_late)
    }

    /// Handles each group of a claim on its shard.
    fn claim(&mut self, keys: &[Vec<u8>], groups: Vec<Group>) -> Value {
        let mut replies = Vec::new();
        for (shard, group) in by_shard(keys, groups) {
            let slot = self.slot(shard);
            for (user, attempt) in group.users {
                let reply = self.claim_one(slot, &user, attempt, group.terms);
                if let ClaimReply::Granted(held) = reply {
                    self.granted.push(GrantedClaim {
                        shard,
                        generation: held.generation,
                        user,
                    });
                }
                replies.push(reply);
            }
        }
        reply::claims(&replies)
    }

    fn claim_one(
        &mut self,
        shard: usize,
        user: &UserId,
        attempt: Option<AttemptTag>,
        terms: ClaimTerms,
    ) -> ClaimReply {
        let (mutation, now_us) = (self.mutation, self.now_us);
        let attempt = attempt.filter(|_| mutation != Some(Mutation::AttemptNotNoted));
        let shard = self.shard(shard);
        let ledger = &mut shard.ledger;
        // With another clock, deadlines must not change.
        let clock_us = match mutation {
            Some(Mutation::GenerationsWithoutTime) => 0,
            Some(Mutation::GenerationsInMilliseconds) => now_us / 1_000,
            _ => now_us,
        };
        ledger.set_clock_us(clock_us);
        let terms = ClaimTerms {
            ttl_ms: terms.ttl_ms + (now_us - clock_us) / 1_000,
            ..terms
        };
        let reply = match (mutation, ledger.claim_for(user, attempt, terms)) {
            (Some(Mutation::ClaimNotIdempotent), ClaimReply::GrantedAgain(held)) => {
                ledger.release(user, held.generation, ReleaseKind::Decided);
                ledger.claim_for(user, attempt, terms)
            }
            (_, reply) => reply,
        };
        ledger.set_clock_us(now_us);
        // Within a call, others may request a unit after the last one is taken.
        shard.note_epoch("claim", mutation);
        match reply {
            ClaimReply::Empty { open_claims, .. } => ClaimReply::Empty {
                epoch: shard.epoch(mutation),
                open_claims,
            },
            reply => reply,
        }
    }

    fn probe(&self, keys: &[Vec<u8>]) -> Value {
        let one = |keys: &[Vec<u8>]| {
            let shard = &self.state.shards[self.slot(shard_of(&keys[0]))];
            let mut observed = shard.ledger.probe();
            observed.epoch = shard.epoch(self.mutation);
            reply::probe(&observed)
        };
        Value::Array(keys.chunks(KEYS_PER_PROBE).map(one).collect())
    }

    /// Runs any other script, which concerns one shard.
    fn run_on(&mut self, number: u32, mut command: ShardCommand) -> Value {
        let (mutation, now_us) = (self.mutation, self.now_us);
        mutate(&mut command, mutation);
        let slot = self.slot(number);
        let shard = self.shard(slot);
        let epoch = shard.epoch(mutation);
        let ledger = &mut shard.ledger;
        match &mut command {
            ShardCommand::Audit => {
                let mut terms = ledger.audit();
                terms.epoch = epoch;
                return reply::audit(&terms);
            }
            // It compares the visible epoch.
            ShardCommand::Restock { seen: observed, .. } if observed.epoch != epoch => {
                return flag(false);
            }
            ShardCommand::Restock { seen: observed, .. } => observed.epoch = ledger.probe().epoch,
            ShardCommand::StockChange(change) => {
                return reply::changed(change_stock(ledger, *change, mutation));
            }
            ShardCommand::Lend {
                to_shard,
                wanted: expected,
            } if mutation == Some(Mutation::LendNotRecorded) => {
                let transferred = ledger.lend(*to_shard, *expected);
                if let LendReply::Lent(transfer) = transferred {
                    ledger.settle_transfer(*to_shard, transfer.id);
                }
                return reply::lend(transferred);
            }
            ShardCommand::Deposit {
                from_shard,
                transfer,
            } if mutation == Some(Mutation::TransferDepositedTwice) => {
                let units = i64::try_from(transfer.units).unwrap_or(i64::MAX);
                let observed = ledger.audit();
                let is_repeated = observed
                    .deposits
                    .iter()
                    .any(|&(from, id)| from == *from_shard && id >= transfer.id);
                if is_repeated && ledger.restock(units, &observed) {
                    return integer(1);
                }
            }
            _ => {}
        }
        let reply = command.read(ledger, now_us);
        let reply = reply.unwrap_or_else(|| command.write(ledger, now_us));
        match command {
            ShardCommand::Warm { token: Some(_), .. } if reply == integer(1) => {
                self.rebuilds.push(RebuildStep::Ended(number));
            }
            ShardCommand::Wipe { .. } if reply == integer(1) => {
                self.rebuilds.push(RebuildStep::Wiped(number));
            }
            _ => {}
        }
        reply
    }
}

/// Changes a command according to a mutation.
fn mutate(command: &mut ShardCommand, mutation: Option<Mutation>) {
    match (mutation, command) {
        (Some(Mutation::DeliveryNotCounted), ShardCommand::Release(claims)) => {
            for (_, _, kind) in claims {
                if let ReleaseKind::Delivery(_) = kind {
                    *kind = ReleaseKind::Decided;
                }
            }
        }
        (Some(Mutation::DeadlineIgnored), ShardCommand::Overdue { grace_ms, .. }) => *grace_ms = -1,
        (
            Some(Mutation::RebuildNotFenced),
            ShardCommand::Warm {
                token: Some(token), ..
            }
            | ShardCommand::Wipe { token, .. }
            | ShardCommand::Restore { token, .. },
        ) => *token = "anybody".into(),
        _ => {}
    }
}

/// The groups of a claim, each with its shard.
fn by_shard(keys: &[Vec<u8>], groups: Vec<Group>) -> impl Iterator<Item = (u32, Group)> {
    let shards = keys.chunks(KEYS_PER_CLAIM_GROUP);
    shards.map(|keys| shard_of(&keys[0])).zip(groups)
}

/// The users in a claim command, each with the home shard.
pub(super) fn claimants(words: &CommandArgs) -> Vec<(u32, UserId)> {
    let Some(name @ "claim") = name_of(words) else {
        return vec![];
    };
    let (keys, args) = words[3..].split_at(number(&words[2]) as usize);
    let Some(ShardCommand::Claim(groups)) = ShardCommand::from_script(name, keys, args) else {
        return vec![];
    };
    by_shard(keys, groups)
        .flat_map(|(shard, group)| group.users.into_iter().map(move |(user, _)| (shard, user)))
        .collect()
}

fn change_stock(
    ledger: &mut ShardLedger,
    change: StockChange,
    mutation: Option<Mutation>,
) -> StockChanged {
    let is_again = ledger.audit().change.number == change.number;
    let reply = ledger.change(change);
    if let (true, Some(Mutation::StockChangedTwice), StockChanged::Done(units)) =
        (is_again, mutation, reply)
    {
        let audit = ledger.audit();
        ledger.restock(units, &audit);
    }
    match (mutation, reply) {
        (Some(Mutation::HeldUnitsWithdrawn), StockChanged::Done(units)) => {
            StockChanged::Done(units.min(change.units))
        }
        (_, reply) => reply,
    }
}
