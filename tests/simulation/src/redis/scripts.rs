//! The scripts: KEYS and ARGV in, the model's answer out.

use weir_base::id::UserId;
use weir_base::resp::Value;
use weir_sale::idempotency::AttemptTag;
use weir_sale::ledger::{
    Audit, Checks, ClaimReply, ClaimTerms, Deduction, LendReply, OrderEntry, ReleaseKind,
    ShardLedger, StockChange, StockChanged, Transfer, WipeReply,
};

use weir_sale::redis::catalogue;

use weir_edge::shard::reply;

use super::{Granted, RebuildStep, Redis, Shard, Words, shard_of, user_id};
use crate::mutation::Mutation;

/// KEYS of one group of a claim.
const KEYS_A_GROUP: usize = 7;

/// The words behind the number of keys.
struct Arguments<'a> {
    keys: &'a [Vec<u8>],
    args: &'a [Vec<u8>],
}

impl<'a> Arguments<'a> {
    /// `EVAL <script> <number of keys> KEYS… ARGV…`
    fn of(words: &'a Words) -> Self {
        let keys = number(&words[2]) as usize;
        let (keys, args) = words[3..].split_at(keys);
        Self { keys, args }
    }

    fn number(&self, at: usize) -> u64 {
        number(&self.args[at])
    }

    fn user(&self, at: usize) -> UserId {
        user_id(&self.args[at])
    }

    fn transfer(&self, at: usize) -> Transfer {
        Transfer {
            id: self.number(at),
            units: self.number(at + 1),
        }
    }
}

/// The requests of one group of a claim.
struct Group {
    shard: usize,
    terms: ClaimTerms,
    users: Vec<UserId>,
    /// As many as users.
    attempts: Vec<Option<AttemptTag>>,
}

impl Redis {
    pub(super) fn script(&mut self, name: &str, words: &Words) -> Value {
        let arguments = Arguments::of(words);
        if name == "publish" {
            return self.publish(&arguments);
        }
        let value = match name {
            "claim" => self.claim(&arguments),
            "probe" => self.probe(&arguments),
            "release" | "settle" | "charge" | "cancel" => self.of_claims(name, &arguments),
            "lend" | "deposit" | "settle_transfer" => self.of_transfers(name, &arguments),
            _ => self.of_origin(name, &arguments),
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

    fn publish(&mut self, arguments: &Arguments<'_>) -> Value {
        let there = self.state.catalogue.as_deref();
        let there = there.and_then(|json| catalogue::read(json).ok());
        let is_late = there.is_some_and(|there| there.version > arguments.number(0));
        if !is_late {
            self.state.catalogue = Some(arguments.args[1].as_slice().into());
        }
        reply::flag(!is_late)
    }

    fn claim(&mut self, arguments: &Arguments<'_>) -> Value {
        let mut replies = Vec::new();
        for Group {
            shard,
            terms,
            users,
            attempts,
        } in groups(arguments)
        {
            for (user, attempt) in users.into_iter().zip(attempts) {
                let reply = self.claim_one(shard, &user, attempt, terms);
                if let ClaimReply::Granted(held) = reply {
                    self.granted.push(Granted {
                        shard: shard as u32,
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
        // Of a clock that shows something else, deadlines must stay what they are.
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
        // Within a call others may ask after the last unit is gone.
        shard.note_epoch("claim", mutation);
        match reply {
            ClaimReply::Empty { open_claims, .. } => ClaimReply::Empty {
                epoch: shard.epoch(mutation),
                open_claims,
            },
            reply => reply,
        }
    }

    fn probe(&mut self, arguments: &Arguments<'_>) -> Value {
        let one = |keys: &[Vec<u8>]| {
            let shard = &self.state.shards[shard_of(&keys[0])];
            let mut seen = shard.ledger.probe();
            seen.epoch = shard.epoch(self.mutation);
            reply::probe(&seen)
        };
        Value::Array(arguments.keys.chunks(4).map(one).collect())
    }

    fn of_claims(&mut self, name: &str, arguments: &Arguments<'_>) -> Value {
        let mutation = self.mutation;
        let shard = self.shard(shard_of(&arguments.keys[0]));
        let generation = || arguments.number(2);
        match name {
            "release" => release(shard, arguments, mutation),
            "settle" => {
                let deduction = deduction(&arguments.args[3]);
                let user = arguments.user(0);
                reply::settle(shard.ledger.settle(&user, generation(), deduction))
            }
            "charge" => reply::followed(shard.ledger.charge(&arguments.user(0), generation())),
            _ => reply::followed(shard.ledger.cancel(&arguments.user(0), generation())),
        }
    }

    fn of_transfers(&mut self, name: &str, arguments: &Arguments<'_>) -> Value {
        let mutation = self.mutation;
        let ledger = &mut self.shard(shard_of(&arguments.keys[0])).ledger;
        let other = arguments.number(0) as u32;
        match name {
            "lend" => {
                let lent = ledger.lend(other, arguments.number(1));
                if let (Some(Mutation::LendNotRecorded), LendReply::Lent(transfer)) =
                    (mutation, lent)
                {
                    ledger.settle_transfer(other, transfer.id);
                }
                reply::lend(lent)
            }
            "deposit" => {
                let transfer = arguments.transfer(1);
                if mutation == Some(Mutation::TransferDepositedTwice) {
                    let units = i64::try_from(transfer.units).unwrap_or(i64::MAX);
                    let seen = ledger.audit();
                    let is_repeated = seen
                        .deposits
                        .iter()
                        .any(|&(from, id)| from == other && id >= transfer.id);
                    if is_repeated && ledger.restock(units, &seen) {
                        return reply::integer(1);
                    }
                }
                reply::deposit(ledger.deposit(other, transfer))
            }
            _ => reply::flag(ledger.settle_transfer(other, arguments.number(1))),
        }
    }

    /// What only the origin calls.
    fn of_origin(&mut self, name: &str, arguments: &Arguments<'_>) -> Value {
        let shard = shard_of(&arguments.keys[0]);
        if matches!(name, "wipe" | "restore" | "warm") {
            return self.of_rebuild(name, shard, arguments);
        }
        let mutation = self.mutation;
        let shard = self.shard(shard);
        match name {
            "audit" => {
                let mut terms = shard.ledger.audit();
                terms.epoch = shard.epoch(mutation);
                reply::audit(&terms)
            }
            "overdue" => {
                let limit = arguments.number(1) as usize;
                let grace_ms = u64::try_from(signed(&arguments.args[0]));
                let mut claims = match grace_ms {
                    Ok(grace_ms) if mutation != Some(Mutation::DeadlineIgnored) => {
                        shard.ledger.overdue(grace_ms, limit)
                    }
                    _ => shard.ledger.open(),
                };
                claims.truncate(limit);
                reply::overdue(&claims)
            }
            "recount" => {
                let [version, open, held, bought, deferred, checksum] =
                    [0, 1, 2, 3, 4, 5].map(|at| arguments.number(at));
                let sums = Audit {
                    version,
                    open,
                    held,
                    bought,
                    deferred,
                    checksum,
                    ..shard.ledger.audit()
                };
                reply::flag(shard.ledger.recount(&sums))
            }
            "restock" => {
                let mut seen = shard.ledger.audit();
                let is_epoch = signed(&arguments.args[1]) == shard.epoch(mutation);
                seen.sequence = arguments.number(2);
                seen.version = arguments.number(3);
                let units = signed(&arguments.args[0]);
                reply::flag(is_epoch && shard.ledger.restock(units, &seen))
            }
            "stock_change" => {
                let change = StockChange {
                    number: arguments.number(0),
                    units: signed(&arguments.args[1]),
                };
                reply::changed(change_stock(&mut shard.ledger, change, mutation))
            }
            "correct" => {
                let [seen, known] = [2, 3].map(|at| orders(&arguments.args[at]));
                let user = arguments.user(0);
                reply::flag(shard.ledger.correct(&user, &seen, &known))
            }
            other => panic!("no script of sales is named {other}"),
        }
    }

    fn of_rebuild(&mut self, name: &str, shard: usize, arguments: &Arguments<'_>) -> Value {
        let is_fenced = self.mutation != Some(Mutation::RebuildNotFenced);
        let token_of = |at: usize| {
            let token = String::from_utf8_lossy(&arguments.args[at]);
            match is_fenced {
                true => token.into_owned(),
                false => "anybody".into(),
            }
        };
        let number = shard as u32;
        let ledger = &mut self.shard(shard).ledger;
        match name {
            "warm" => {
                let token = token_of(1);
                let is_first = arguments.args[1] == b"-";
                let token = (!is_first).then_some(token.as_str());
                let is_warm = ledger.warm(arguments.number(0), token);
                if is_warm && !is_first {
                    self.rebuilds.push(RebuildStep::Ended(number));
                }
                reply::flag(is_warm)
            }
            "wipe" => {
                let wiped = ledger.wipe(&token_of(0), arguments.number(1));
                if wiped == WipeReply::Begun {
                    self.rebuilds.push(RebuildStep::Wiped(number));
                }
                reply::wiped(wiped)
            }
            _ => {
                let token = token_of(0);
                let is_on = ledger.renew(&token);
                for entry in arguments.args[1..].chunks(4).filter(|_| is_on) {
                    let user = user_id(&entry[0]);
                    ledger.restore(&token, &user, &orders(&entry[3]));
                }
                reply::flag(is_on)
            }
        }
    }
}

/// The users whose claims a command asks for, each with the home shard.
pub(super) fn claimants(words: &Words) -> Vec<(usize, UserId)> {
    let is_claim = words[0].starts_with(b"EVAL")
        && words.get(3).is_some_and(|key| key.ends_with(b":stock"))
        && words.get(4).is_some_and(|key| key.ends_with(b":epoch"))
        && words.get(5).is_some_and(|key| key.ends_with(b":sequence"));
    if !is_claim {
        return vec![];
    }
    let groups = groups(&Arguments::of(words)).into_iter();
    let of_group = |group: Group| group.users.into_iter().map(move |user| (group.shard, user));
    groups.flat_map(of_group).collect()
}

fn groups(arguments: &Arguments<'_>) -> Vec<Group> {
    let count = arguments.number(0) as usize;
    let mut at = 1;
    let mut groups = Vec::with_capacity(count);
    for keys in arguments.keys.chunks(KEYS_A_GROUP).take(count) {
        let letters = &arguments.args[at + 3];
        // A byte a user.
        let users = arguments.args[at + 4].len();
        let checks = Checks {
            blocked: letters.contains(&b'b'),
            reserved: letters.contains(&b'r'),
            drain: letters.contains(&b'd'),
        };
        let users_at = at + 5;
        at = users_at + users;
        let attempts = match letters.contains(&b'k') {
            true => (at..at + users)
                .map(|at| tag(&arguments.args[at]))
                .collect(),
            false => vec![None; users],
        };
        groups.push(Group {
            shard: shard_of(&keys[0]),
            terms: ClaimTerms {
                ttl_ms: arguments.number(users_at - 5),
                user_cap: arguments.number(users_at - 4) as u32,
                quantity: arguments.number(users_at - 3) as u32,
                checks,
            },
            users: (users_at..users_at + users)
                .map(|at| arguments.user(at))
                .collect(),
            attempts,
        });
        at += if letters.contains(&b'k') { users } else { 0 };
    }
    groups
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
        let seen = ledger.audit();
        ledger.restock(units, &seen);
    }
    match (mutation, reply) {
        (Some(Mutation::HeldUnitsWithdrawn), StockChanged::Done(units)) => {
            StockChanged::Done(units.min(change.units))
        }
        (_, reply) => reply,
    }
}

fn tag(word: &[u8]) -> Option<AttemptTag> {
    AttemptTag::from_hex(std::str::from_utf8(word).ok()?)
}

fn release(shard: &mut Shard, arguments: &Arguments<'_>, mutation: Option<Mutation>) -> Value {
    let one = |claim: &[Vec<u8>]| {
        let kind = match claim[3].as_slice() {
            b"decided" => ReleaseKind::Decided,
            b"void" => ReleaseKind::Void,
            _ if mutation == Some(Mutation::DeliveryNotCounted) => ReleaseKind::Decided,
            delivery => ReleaseKind::Delivery(number(delivery) as u32),
        };
        let user = user_id(&claim[0]);
        shard.ledger.release(&user, number(&claim[2]), kind)
    };
    let replies: Vec<_> = arguments.args.chunks(4).map(one).collect();
    reply::releases(&replies)
}

fn deduction(mark: &[u8]) -> Deduction {
    match mark {
        b":" => Deduction::AtOrder,
        _ => Deduction::AtPayment,
    }
}

/// A record's orders: `<generation>:<units>` or `<generation>~<units>`, commas between.
fn orders(record: &[u8]) -> Vec<OrderEntry> {
    if record == b"-" {
        return vec![];
    }
    let record = String::from_utf8_lossy(record);
    let entry = |text: &str| {
        let at = text.find([':', '~']).expect("an order has a mark");
        OrderEntry {
            generation: number(&text.as_bytes()[..at]),
            units: number(&text.as_bytes()[at + 1..]),
            deduction: deduction(&text.as_bytes()[at..=at]),
        }
    };
    record.split(',').map(entry).collect()
}

fn number(digits: &[u8]) -> u64 {
    u64::try_from(signed(digits)).expect("it is not below 0")
}

fn signed(digits: &[u8]) -> i64 {
    let digits = std::str::from_utf8(digits).expect("numbers are text");
    digits.parse().expect("numbers are decimal")
}
