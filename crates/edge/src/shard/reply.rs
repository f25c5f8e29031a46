//! Encodes replies like Redis and the scripts.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use weir_base::resp::Value;
use weir_sale::ledger::{
    Audit, ClaimReply, LendReply, OpenClaim, Overdue, ShardProbe, StockChange, StockChanged,
};

/// Appends a value in the Redis protocol.
pub fn encode(value: &Value, out: &mut Vec<u8>) {
    let line = |out: &mut Vec<u8>, kind: u8, text: &[u8]| {
        out.push(kind);
        out.extend_from_slice(text);
        out.extend_from_slice(b"\r\n");
    };
    match value {
        Value::Simple(text) => line(out, b'+', text),
        Value::Error(text) => line(out, b'-', text),
        Value::Integer(number) => line(out, b':', number.to_string().as_bytes()),
        Value::Null => out.extend_from_slice(b"$-1\r\n"),
        Value::Bulk(bytes) => {
            line(out, b'$', bytes.len().to_string().as_bytes());
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        }
        Value::Array(values) => {
            line(out, b'*', values.len().to_string().as_bytes());
            for value in values {
                encode(value, out);
            }
        }
    }
}

/// A number.
pub fn integer(number: impl TryInto<i64>) -> Value {
    Value::Integer(number.try_into().unwrap_or(i64::MAX))
}

/// 1 if done, 0 if not.
pub fn flag(is_done: bool) -> Value {
    integer(i64::from(is_done))
}

/// A byte string.
pub fn text(text: impl Into<String>) -> Value {
    Value::Bulk(text.into().into_bytes())
}

/// The reply of `claim.lua`: one string.
pub fn claims(replies: &[ClaimReply]) -> Value {
    let answers: Vec<String> = replies.iter().map(claim).collect();
    text(answers.join(","))
}

fn claim(reply: &ClaimReply) -> String {
    let granted = |code: u8, open_claim: &OpenClaim| {
        let OpenClaim {
            generation,
            quantity,
            deadline_ms,
            delivery,
        } = open_claim;
        format!("{code} {generation} {quantity} {deadline_ms} {delivery}")
    };
    match reply {
        ClaimReply::Granted(open_claim) => granted(1, open_claim),
        ClaimReply::GrantedAgain(open_claim) => granted(2, open_claim),
        ClaimReply::CapReached { generation } => format!("3 {generation}"),
        ClaimReply::Empty { epoch, open_claims } => format!("4 {epoch} {open_claims}"),
        ClaimReply::Cold => "5".into(),
        ClaimReply::Blocked => "6".into(),
        ClaimReply::NotReserved => "7".into(),
        ClaimReply::Draining => "8".into(),
        ClaimReply::Ordered {
            generation,
            quantity,
        } => format!("9 {generation} {quantity}"),
        ClaimReply::InProgress => "10".into(),
    }
}

/// The reply of `lend.lua`.
pub fn lend(reply: LendReply) -> Value {
    Value::Array(match reply {
        LendReply::Lent(transfer) => {
            vec![integer(1), integer(transfer.id), integer(transfer.units)]
        }
        LendReply::Nothing => vec![integer(2)],
        LendReply::Cold => vec![integer(3)],
    })
}

/// The reply of `probe.lua` for one shard.
pub fn probe(observed: &ShardProbe) -> Value {
    Value::Array(match observed.stock {
        None => vec![],
        Some(stock) => vec![
            integer(stock),
            integer(observed.epoch),
            integer(observed.open_claims),
            integer(observed.moving),
        ],
    })
}

/// The reply of `audit.lua`.
pub fn audit(terms: &Audit) -> Value {
    let transfers = terms.transfers.iter().flat_map(|open| {
        let transfer = open.transfer;
        [
            text(open.to_shard.to_string()),
            text(format!("{} {} {}", transfer.id, transfer.units, open.at_ms)),
        ]
    });
    let deposits = terms.deposits.iter();
    let deposits = deposits.flat_map(|(shard, id)| [text(shard.to_string()), text(id.to_string())]);
    let of_warm = terms.stock.map(|stock| {
        let sums = [
            terms.version,
            terms.open,
            terms.held,
            terms.bought,
            terms.deferred,
            terms.checksum,
            terms.mark,
        ];
        let mut of_warm = vec![integer(stock)];
        of_warm.extend(sums.map(integer));
        of_warm
    });
    Value::Array(vec![
        Value::Array(of_warm.unwrap_or_default()),
        integer(terms.epoch),
        integer(terms.sequence),
        integer(terms.records),
        integer(terms.deadlines),
        Value::Array(transfers.collect()),
        Value::Array(deposits.collect()),
        match terms.change {
            // No change yet: the key does not exist.
            StockChange { number: 0, .. } => text(""),
            StockChange { number, units } => text(format!("{number} {units}")),
        },
    ])
}

/// The reply of `stock_change.lua`.
pub fn changed(reply: StockChanged) -> Value {
    Value::Array(match reply {
        StockChanged::Done(units) => vec![integer(1), integer(units)],
        StockChanged::Over => vec![integer(2)],
        StockChanged::Cold => vec![integer(3)],
    })
}

/// The reply of `overdue.lua`.
pub fn overdue(claims: &[Overdue]) -> Value {
    let one = |claim: &Overdue| {
        Value::Array(vec![
            text(claim.user.as_str()),
            integer(claim.held.generation),
            integer(claim.held.quantity),
            integer(claim.held.deadline_ms),
            integer(0),
        ])
    };
    Value::Array(claims.iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::id::UserId;
    use weir_sale::ledger::{OpenTransfer, StockChange, Transfer};
    use weir_sale::redis as scripts;

    fn over_the_wire(value: &Value) -> Value {
        let mut bytes = Vec::new();
        encode(value, &mut bytes);
        let (received, used) = weir_base::resp::decode(&bytes).unwrap();
        assert_eq!(used, bytes.len());
        received
    }

    fn open_claim(delivery: u32) -> OpenClaim {
        OpenClaim {
            generation: 1_700_000_000_001,
            quantity: 1,
            deadline_ms: 1_700_000_002_000,
            delivery,
        }
    }

    #[test]
    fn claim_replies_round_trip() {
        let replies = [
            ClaimReply::Granted(open_claim(0)),
            ClaimReply::GrantedAgain(open_claim(3)),
            ClaimReply::CapReached { generation: 0 },
            ClaimReply::Empty {
                epoch: 7,
                open_claims: 2,
            },
            ClaimReply::Cold,
            ClaimReply::Blocked,
            ClaimReply::NotReserved,
            ClaimReply::Draining,
        ];
        let received = over_the_wire(&claims(&replies));
        assert_eq!(scripts::claim::parse(&received, 8).unwrap(), replies);
    }

    #[test]
    fn stock_unit_replies_round_trip() {
        let transfer = Transfer { id: 5, units: 2 };
        for reply in [
            LendReply::Lent(transfer),
            LendReply::Nothing,
            LendReply::Cold,
        ] {
            let received = over_the_wire(&lend(reply));
            assert_eq!(scripts::lend::parse(&received).unwrap(), reply);
        }
        let cold = ShardProbe {
            stock: None,
            epoch: 0,
            open_claims: 0,
            moving: 0,
        };
        let warm = ShardProbe {
            stock: Some(-1),
            epoch: 9,
            open_claims: 1,
            moving: 2,
        };
        let received = over_the_wire(&Value::Array(vec![probe(&cold), probe(&warm)]));
        assert_eq!(scripts::probe::parse(&received, 2).unwrap(), [cold, warm]);
        let terms = Audit {
            stock: Some(3),
            version: 6,
            open: 1,
            held: 1,
            bought: 2,
            deferred: 4,
            checksum: 5,
            mark: 13,
            records: 1,
            deadlines: 1,
            epoch: 8,
            sequence: 11,
            transfers: vec![OpenTransfer {
                to_shard: 2,
                transfer,
                at_ms: 77,
            }],
            deposits: vec![(1, 4)],
            change: StockChange {
                number: 12,
                units: -3,
            },
        };
        let received = over_the_wire(&audit(&terms));
        assert_eq!(scripts::audit::parse(&received).unwrap(), terms);
    }

    #[test]
    fn overdue_claim_replies_round_trip() {
        let claims = [Overdue {
            user: UserId::new("u;1").unwrap(),
            held: open_claim(0),
        }];
        let received = over_the_wire(&overdue(&claims));
        assert_eq!(scripts::overdue::parse(&received).unwrap(), claims);
    }
}
