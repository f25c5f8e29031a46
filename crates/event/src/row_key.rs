//! Row keys for an event store: short, hashed and unique, in two forms.

use alloc::format;
use alloc::string::String;

use md5::{Digest, Md5};

/// Maximum digits of a customer's number in [`of_customer`].
const DIGITS: usize = 8;

/// The MD5 of an event's id, in hexadecimal. It spreads ids with equal prefixes over all regions. It needs no
/// cryptographic strength.
pub fn of_id(id: &str) -> String {
    hex::encode(Md5::digest(id))
}

/// `%08d%d`: the last 8 digits of the customer's number, and the time. All events of a customer are adjacent and
/// ordered. The last digits, which change most, spread consecutive customers.
///
/// `None` if the customer is not a number. Customers with equal last digits share rows, so a store needs a column to
/// distinguish them, and also for events of the same millisecond.
pub fn of_customer(customer: &str, at_ms: u64) -> Option<String> {
    let is_number = !customer.is_empty() && customer.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return None;
    }
    let start = customer.len().saturating_sub(DIGITS);
    let digits = customer.get(start..)?;
    Some(format!("{digits:0>8}{at_ms}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn row_key_of_an_id_is_its_md5() {
        // RFC 1321, appendix A.5.
        assert_eq!(of_id("abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(of_id(""), "d41d8cd98f00b204e9800998ecf8427e");
    }

    #[test]
    fn customer_row_key_is_last_eight_digits_and_time() {
        let key = |customer| of_customer(customer, 1_700_000_000_000);
        assert_eq!(key("42").as_deref(), Some("000000421700000000000"));
        assert_eq!(key("12345678").as_deref(), Some("123456781700000000000"));
        assert_eq!(key("9912345678").as_deref(), Some("123456781700000000000"));
        for none in ["", "u42", "-1", "4 2", "٤٢"] {
            assert_eq!(key(none), None, "{none}");
        }
    }

    #[test]
    fn row_keys_of_a_customer_sort_by_time() {
        let times = [1_600_000_000_000, 1_700_000_000_000, 1_700_000_000_001];
        let keys = times.map(|time| of_customer("7", time));
        let mut sorted = vec![];
        sorted.extend(keys.iter().cloned());
        sorted.sort();
        assert_eq!(sorted, keys);
    }
}
