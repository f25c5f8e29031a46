//! `correct.lua`: a user's orders, where Redis knows them otherwise than SQL.

use alloc::vec::Vec;

use crate::ledger::{Deduction, OrderEntry};
use crate::shard::bucket;
use weir_base::id::UserId;
use weir_base::resp::Value;

use crate::redis::keys::ShardKeys;
use crate::redis::restore::as_record;
use weir_scripts::call::decimal;
use weir_scripts::reply::{Numbers, flag};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "correct",
    source: with_records!("correct"),
};

/// The call that writes `orders` of a user who holds no claim, oldest first, if Redis has those that were `seen`.
pub fn call(keys: &ShardKeys, user: &UserId, seen: &[OrderEntry], orders: &[OrderEntry]) -> Call {
    Call {
        script: &SCRIPT,
        keys: [
            keys.stock(),
            keys.claims(),
            keys.epoch(),
            keys.sums(),
            keys.bought(),
        ]
        .into(),
        args: [
            user.as_str().into(),
            decimal(bucket(user)),
            as_record(seen).into(),
            as_record(orders).into(),
        ]
        .into(),
    }
}

/// Reads the reply: whether it did.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}

/// Reads a user's orders as they stand in [`ShardKeys::bought_in`]; `None` for a text that no script writes.
pub fn read_orders(text: &[u8]) -> Option<Vec<OrderEntry>> {
    let mut text = Numbers(text);
    let mut orders = Vec::new();
    loop {
        let generation = text.number()?;
        let deduction = match text.take()? {
            b':' => Deduction::AtOrder,
            b'~' => Deduction::AtPayment,
            _ => return None,
        };
        orders.push(OrderEntry {
            generation,
            units: text.number()?,
            deduction,
        });
        match text.take() {
            Some(b',') => {}
            Some(_) => return None,
            None => return Some(orders),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn orders_read_as_they_were_written() {
        let orders = vec![
            OrderEntry {
                generation: 1_700_000_000_000_001,
                units: 1,
                deduction: Deduction::AtOrder,
            },
            OrderEntry {
                generation: 1_700_000_000_000_002,
                units: 3,
                deduction: Deduction::AtPayment,
            },
        ];
        let text = as_record(&orders);
        assert_eq!(text, "1700000000000001:1,1700000000000002~3");
        assert_eq!(read_orders(text.as_bytes()), Some(orders));
        for other in ["", "-", "1", "1:", "1:2,", "1;2", "1:2 3:4"] {
            assert_eq!(read_orders(other.as_bytes()), None, "{other}");
        }
    }
}
