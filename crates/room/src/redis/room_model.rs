//! Connects the model of waiting rooms to encoded calls, to test engines without Redis.

use alloc::vec;
use alloc::vec::Vec;

use crate::draw::Seed;
use crate::model::{CallContext, Model, VisitorRequest};
use crate::{Renewal, RoomState, Setting, Snapshot, Terms, Visitor};
use weir_base::resp::Value;

use crate::redis::room_ask::VisitorStatus;
use crate::redis::{room_ask, room_tick};

/// A decoded call.
#[derive(Clone, Debug)]
pub struct ModelCall {
    /// Its context.
    pub context: CallContext,
    what: RoomCall,
}

#[derive(Clone, Debug)]
enum RoomCall {
    Tick(Vec<Renewal>),
    Ask(Vec<VisitorRequest>),
}

/// The result of a call.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// The reply.
    pub reply: Value,
    /// The room's state afterwards.
    pub snapshot: Snapshot,
    /// The results of the visitors, in their order.
    pub reported: Vec<VisitorStatus>,
}

impl ModelCall {
    /// Parses the arguments of a call of this script. `None`: gateways send no such call.
    pub fn read(script: &str, args: &[Vec<u8>]) -> Option<Self> {
        let (head, rest) = args.split_at_checked(4)?;
        let subject = if script == room_tick::SCRIPT.name {
            let (renewed, []) = rest.as_chunks::<2>() else {
                return None;
            };
            RoomCall::Tick(renewed.iter().map(renewal).collect::<Option<_>>()?)
        } else if script == room_ask::SCRIPT.name {
            let (asks, []) = rest.as_chunks::<5>() else {
                return None;
            };
            RoomCall::Ask(asks.iter().map(ask).collect::<Option<_>>()?)
        } else {
            return None;
        };
        let presented = parse_context(head)?;
        Some(Self {
            context: presented,
            what: subject,
        })
    }

    /// Runs the call on the model.
    pub fn run(&self, model: &mut Model, now_ms: u64) -> CallResult {
        match &self.what {
            RoomCall::Tick(renewed) => {
                let snapshot = model.tick(now_ms, &self.context, renewed);
                CallResult {
                    reply: header(&snapshot),
                    snapshot,
                    reported: Vec::new(),
                }
            }
            RoomCall::Ask(asks) => {
                let (snapshot, response) = model.ask(now_ms, &self.context, asks);
                let pairs = response
                    .iter()
                    .flat_map(|(status, place)| [integer(*status as u64), integer(*place)]);
                let reply = vec![header(&snapshot), Value::Array(pairs.collect())];
                CallResult {
                    reply: Value::Array(reply),
                    snapshot,
                    reported: response,
                }
            }
        }
    }
}

fn number(word: &[u8]) -> Option<u64> {
    core::str::from_utf8(word).ok()?.parse().ok()
}

fn numbers<const N: usize>(word: &[u8]) -> Option<[u64; N]> {
    let numbers = word.split(|byte| *byte == b' ').map(number);
    numbers.collect::<Option<Vec<_>>>()?.try_into().ok()
}

fn visitor(word: &[u8]) -> Option<Visitor> {
    Some(Visitor::from_bytes(word.try_into().ok()?))
}

fn renewal([user, entered_at]: &[Vec<u8>; 2]) -> Option<Renewal> {
    Some(Renewal {
        visitor: visitor(user)?,
        entered_at: match entered_at.as_slice() {
            b"-" => None,
            order => Some(number(order)?),
        },
    })
}

fn parse_context(head: &[Vec<u8>]) -> Option<CallContext> {
    let [terms, setting, observed, seed] = head else {
        return None;
    };
    let [
        session_ms,
        claim_ms,
        queue_max,
        address_max,
        address_ms,
        life_ms,
    ] = numbers(terms)?;
    let [
        seq,
        head,
        floor,
        inside,
        drew,
        base,
        drawn,
        seed_of,
        called,
        asked_ms,
    ] = numbers(observed)?;
    Some(CallContext {
        terms: Terms {
            session_ms,
            claim_ms,
            queue_max,
            address_max,
            address_ms,
            life_ms,
        },
        setting: Setting::from_numbers(numbers(setting)?)?,
        observed: RoomState {
            seq,
            head,
            floor,
            inside,
            drew,
            base,
            drawn,
            seed_of,
            seed: Seed::from_hex(seed),
            called,
        },
        asked_ms,
    })
}

fn ask([user, place, order, joined_ms, address]: &[Vec<u8>; 5]) -> Option<VisitorRequest> {
    Some(VisitorRequest {
        visitor: visitor(user)?,
        place: number(place)?,
        order: number(order)?,
        joined_ms: number(joined_ms)?,
        address: address.as_slice().try_into().ok(),
    })
}

fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn header(snapshot: &Snapshot) -> Value {
    let Snapshot {
        observed, setting, ..
    } = snapshot;
    let state = [
        observed.seq,
        observed.head,
        observed.floor,
        observed.inside,
        observed.called,
        snapshot.is_settling.into(),
        snapshot.is_lobby.into(),
    ];
    let draw = [
        snapshot.opening,
        observed.drew,
        observed.base,
        observed.drawn,
        observed.seed_of,
    ];
    let counts = [
        snapshot.joined,
        snapshot.entered,
        snapshot.missed,
        snapshot.now_ms,
    ];
    let seed = observed.seed.map_or_else(|| "-".into(), Seed::to_hex);
    let before = state.into_iter().chain(setting.numbers()).chain(draw);
    let mut words: Vec<Value> = before.map(integer).collect();
    words.push(Value::Bulk(seed.into_bytes()));
    words.extend(counts.map(integer));
    Value::Array(words)
}
