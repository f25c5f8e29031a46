//! The text form of users' orders and claims, in records and script arguments.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ledger::{Deduction, OrderEntry};
use weir_scripts::reply::Numbers;

/// An order's deduction in a record.
pub(crate) fn mark(deduction: Deduction) -> &'static str {
    match deduction {
        Deduction::AtOrder => ":",
        Deduction::AtPayment => "~",
    }
}

/// The orders in the form of [`ShardKeys::bought_in`](super::keys::ShardKeys::bought_in), the oldest first.
pub fn write_orders(orders: &[OrderEntry]) -> String {
    let entry = |order: &OrderEntry| {
        let mark = mark(order.deduction);
        format!("{}{mark}{}", order.generation, order.units)
    };
    orders.iter().map(entry).collect::<Vec<_>>().join(",")
}

/// The same as a script argument: `-` without orders.
pub(crate) fn orders_word(orders: &[OrderEntry]) -> String {
    match orders {
        [] => "-".into(),
        orders => write_orders(orders),
    }
}

/// Parses the output of [`write_orders`] for at least one order; `None` for an invalid text.
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

/// The units and the deadline, in milliseconds, of an open claim in
/// [`ShardKeys::claims`](super::keys::ShardKeys::claims).
pub fn read_claim(record: &[u8]) -> Option<(u64, u64)> {
    let mut text = Numbers(record);
    let mut next = || {
        let number = text.number()?;
        (text.take()? == b' ').then_some(number)
    };
    let _generation = next()?;
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn order_records_round_trip_through_redis() {
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
        let text = write_orders(&orders);
        assert_eq!(text, "1700000000000001:1,1700000000000002~3");
        assert_eq!(read_orders(text.as_bytes()), Some(orders));
        for other in ["", "-", "1", "1:", "1:2,", "1;2", "1:2 3:4"] {
            assert_eq!(read_orders(other.as_bytes()), None, "{other}");
        }
    }
}
