//! The scripts: KEYS and ARGV in, the model's answer out.

use weir_base::id::UserId;
use weir_resp::Value;
use weir_sale::idempotency::AttemptTag;
use weir_sale::ledger::{
    Checks, ClaimReply, ClaimTerms, Deduction, LendReply, OrderEntry, ReleaseKind, Transfer,
};

use super::{Granted, Redis, Shard, Words, reply, shard_of, user_id};
use crate::mutation::Mutation;

/// KEYS of one group of a claim.
const KEYS_A_GROUP: usize = 5;

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
        match name {
            "claim" => self.claim(&arguments),
            "probe" => self.probe(&arguments),
            "release" | "settle" | "charge" | "cancel" => self.of_claims(name, &arguments),
            "lend" | "deposit" | "settle_transfer" => self.of_transfers(name, &arguments),
            _ => self.of_origin(name, &arguments),
        }
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
        let mutation = self.mutation;
        let Shard {
            ledger, epoch_lag, ..
        } = self.shard(shard);
        let terms = match mutation {
            Some(Mutation::GenerationsWithoutTime) => ClaimTerms {
                now_ms: 0,
                ttl_ms: terms.now_ms + terms.ttl_ms,
                ..terms
            },
            _ => terms,
        };
        let reply = match (mutation, ledger.claim_for(user, attempt, terms)) {
            (Some(Mutation::ClaimNotIdempotent), ClaimReply::GrantedAgain(held)) => {
                ledger.release(user, held.generation, ReleaseKind::Decided);
                ledger.claim_for(user, attempt, terms)
            }
            (_, reply) => reply,
        };
        match reply {
            ClaimReply::Empty { epoch, open_claims } => ClaimReply::Empty {
                epoch: epoch - *epoch_lag,
                open_claims,
            },
            reply => reply,
        }
    }

    fn probe(&mut self, arguments: &Arguments<'_>) -> Value {
        let one = |keys: &[Vec<u8>]| {
            let shard = self.shard(shard_of(&keys[0]));
            let mut seen = shard.ledger.probe();
            seen.epoch -= shard.epoch_lag;
            reply::probe(&seen)
        };
        Value::Array(arguments.keys.chunks(4).map(one).collect())
    }

    fn of_claims(&mut self, name: &str, arguments: &Arguments<'_>) -> Value {
        let mutation = self.mutation;
        let shard = self.shard(shard_of(&arguments.keys[0]));
        let epoch = shard.ledger.probe().epoch;
        let generation = || arguments.number(1);
        let value = match name {
            "release" => release(shard, arguments, mutation),
            "settle" => {
                let deduction = deduction(&arguments.args[2]);
                let user = arguments.user(0);
                reply::settle(shard.ledger.settle(&user, generation(), deduction))
            }
            "charge" => reply::flag(shard.ledger.charge(&arguments.user(0), generation())),
            _ => reply::flag(shard.ledger.cancel(&arguments.user(0), generation())),
        };
        let is_left_behind = match mutation {
            Some(Mutation::EpochNotRaisedAtRelease) => name == "release",
            Some(Mutation::EpochNotRaisedAtCancel) => name == "cancel",
            _ => false,
        };
        if is_left_behind {
            shard.epoch_lag += shard.ledger.probe().epoch - epoch;
        }
        value
    }

    fn of_transfers(&mut self, name: &str, arguments: &Arguments<'_>) -> Value {
        let mutation = self.mutation;
        let ledger = &mut self.shard(shard_of(&arguments.keys[0])).ledger;
        let other = arguments.number(0) as u32;
        match name {
            "lend" => {
                let lent = ledger.lend(other, arguments.number(1), arguments.number(2));
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
                    if is_repeated && ledger.restock(units, seen.epoch, seen.sequence) {
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
        let Shard {
            ledger, epoch_lag, ..
        } = self.shard(shard);
        match name {
            "audit" => {
                let mut terms = ledger.audit();
                terms.epoch -= *epoch_lag;
                reply::audit(&terms)
            }
            "overdue" => {
                let limit = arguments.number(1) as usize;
                reply::overdue(&ledger.overdue(arguments.number(0), limit))
            }
            "restock" => {
                let epoch = signed(&arguments.args[1]) + *epoch_lag;
                let sequence = arguments.number(2);
                reply::flag(ledger.restock(signed(&arguments.args[0]), epoch, sequence))
            }
            other => panic!("no script of sales is named {other}"),
        }
    }

    fn of_rebuild(&mut self, name: &str, shard: usize, arguments: &Arguments<'_>) -> Value {
        let is_cold = self.is_cold(shard as u32);
        let shard = self.shard(shard);
        match name {
            "warm" => reply::flag(shard.ledger.warm(arguments.number(0), arguments.number(1))),
            "wipe" => {
                let wiped = std::mem::take(&mut shard.restored);
                let reply = reply::flag(shard.ledger.wipe());
                if is_cold {
                    self.unrestored.extend(wiped);
                }
                reply
            }
            _ => {
                for entry in arguments.args.chunks(3).filter(|_| is_cold) {
                    let user = user_id(&entry[0]);
                    shard.ledger.restore(&user, &orders(&entry[2]));
                    shard.restored.insert(user);
                }
                let restored = shard.restored.clone();
                self.unrestored.retain(|user| !restored.contains(user));
                reply::flag(is_cold)
            }
        }
    }
}

/// The users whose claims a command asks for, each with the home shard.
pub(super) fn claimants(words: &Words) -> Vec<(usize, UserId)> {
    let is_claim = words[0].starts_with(b"EVAL")
        && words.get(3).is_some_and(|key| key.ends_with(b":stock"))
        && words.get(4).is_some_and(|key| key.ends_with(b":claims"))
        && words.get(7).is_some_and(|key| key.ends_with(b":sequence"));
    if !is_claim {
        return vec![];
    }
    let groups = groups(&Arguments::of(words)).into_iter();
    let of_group = |group: Group| group.users.into_iter().map(move |user| (group.shard, user));
    groups.flat_map(of_group).collect()
}

fn groups(arguments: &Arguments<'_>) -> Vec<Group> {
    let now_ms = arguments.number(0);
    let count = arguments.number(1) as usize;
    let mut at = 2;
    let mut groups = Vec::with_capacity(count);
    for keys in arguments.keys.chunks(KEYS_A_GROUP).take(count) {
        let letters = &arguments.args[at + 3];
        let users = arguments.number(at + 4) as usize;
        let checks = Checks {
            blocked: letters.contains(&b'b'),
            reserved: letters.contains(&b'r'),
            drain: letters.contains(&b'd'),
        };
        let has_buckets = checks.blocked || checks.reserved;
        let users_at = at + 5;
        at = users_at + users * if has_buckets { 2 } else { 1 };
        let attempts = match letters.contains(&b'k') {
            true => (at..at + users)
                .map(|at| tag(&arguments.args[at]))
                .collect(),
            false => vec![None; users],
        };
        groups.push(Group {
            shard: shard_of(&keys[0]),
            terms: ClaimTerms {
                now_ms,
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

fn tag(word: &[u8]) -> Option<AttemptTag> {
    AttemptTag::from_hex(std::str::from_utf8(word).ok()?)
}

fn release(shard: &mut Shard, arguments: &Arguments<'_>, mutation: Option<Mutation>) -> Value {
    let one = |claim: &[Vec<u8>]| {
        let kind = match claim[2].as_slice() {
            b"decided" => ReleaseKind::Decided,
            b"void" => ReleaseKind::Void,
            _ if mutation == Some(Mutation::DeliveryNotCounted) => ReleaseKind::Decided,
            delivery => ReleaseKind::Delivery(number(delivery) as u32),
        };
        let user = user_id(&claim[0]);
        shard.ledger.release(&user, number(&claim[1]), kind)
    };
    let replies: Vec<_> = arguments.args.chunks(3).map(one).collect();
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
