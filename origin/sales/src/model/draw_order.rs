//! `weir-draw-1`: the algorithm that selects the winners of a draw, which anyone can recompute.
//!
//! - The *seed* is 32 random bytes. Its *commitment*, the SHA-256 of these bytes in hex, is published before
//!   reservations open.
//! - Each entry has a *ticket*, 32 hex digits, known only to its user.
//! - When reservations close, the tickets are sorted, and each is followed by a line feed. The SHA-256 of that text, in
//!   hex, is published before the seed.
//! - A ticket's score is the HMAC-SHA256 with the seed as the key, of that hash in hex, a colon, and the ticket. The
//!   lowest score has rank 1. The number of winners is configured.

use ring::digest::{SHA256, digest};
use ring::hmac;

/// Name of the algorithm; a different algorithm needs a different name.
pub const ALGORITHM: &str = "weir-draw-1";

/// Length of a seed in bytes.
pub const SEED_LEN: usize = 32;

/// Length of a ticket in characters.
pub const TICKET_LEN: usize = 32;

/// The commitment of a seed, in hex.
pub fn commitment(seed: &[u8]) -> String {
    hex::encode(digest(&SHA256, seed))
}

/// Whether a text is a well-formed ticket.
pub fn is_ticket(text: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == TICKET_LEN && text.bytes().all(is_hex)
}

/// The hash of a list of sorted tickets, in hex.
pub fn list_hash<'a>(sorted: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = ring::digest::Context::new(&SHA256);
    for ticket in sorted {
        hash.update(ticket.as_bytes());
        hash.update(b"\n");
    }
    hex::encode(hash.finish())
}

/// The tickets in the order of their ranks.
pub fn places<'a>(seed: &[u8], list_hash: &str, tickets: &[&'a str]) -> Vec<&'a str> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, seed);
    let score = |ticket: &&'a str| {
        let tag = hmac::sign(&key, format!("{list_hash}:{ticket}").as_bytes());
        (tag.as_ref().to_vec(), *ticket)
    };
    let mut scored: Vec<(Vec<u8>, &str)> = tickets.iter().map(score).collect();
    scored.sort_unstable();
    scored.into_iter().map(|(_, ticket)| ticket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn tickets(count: u32) -> Vec<String> {
        (0..count).map(|n| format!("{n:032x}")).collect()
    }

    fn drawn(seed: u8, tickets: &[String]) -> Vec<&str> {
        let tickets: Vec<&str> = tickets.iter().map(String::as_str).collect();
        let hash = list_hash(tickets.iter().copied());
        places(&[seed; SEED_LEN], &hash, &tickets)
    }

    /// Expected values from Python's hashlib and hmac.
    #[test]
    fn draw_matches_another_implementation() {
        let tickets = tickets(5);
        assert_eq!(
            commitment(&[7; SEED_LEN]),
            "4bb06f8e4e3a7715d201d573d0aa423762e55dabd61a2c02278fa56cc6d294e0"
        );
        let sorted = tickets.iter().map(String::as_str);
        assert_eq!(
            list_hash(sorted),
            "a5ebb282c79220d92eadeb58c4a7803d43f848e13a0ad453177a11c333fe89d5"
        );
        let last = drawn(7, &tickets)
            .iter()
            .map(|ticket| &ticket[31..])
            .collect::<String>();
        assert_eq!(last, "23014");
    }

    #[test]
    fn ticket_position_is_unique_and_independent_of_list_order() {
        let tickets = tickets(500);
        let order = drawn(1, &tickets);
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 500);
        let mut turned: Vec<&str> = tickets.iter().map(String::as_str).collect();
        turned.reverse();
        let hash = list_hash(tickets.iter().map(String::as_str));
        assert_eq!(places(&[1; SEED_LEN], &hash, &turned), order);
        assert_ne!(drawn(2, &tickets), order);
    }

    /// Over many draws, each of ten tickets is first about equally often.
    #[test]
    fn draw_order_prefers_no_ticket() {
        let tickets = tickets(10);
        let mut first = [0_u32; 10];
        for seed in 0..=255_u8 {
            let order = drawn(seed, &tickets);
            let index = tickets
                .iter()
                .position(|ticket| ticket == order[0])
                .unwrap();
            first[index] += 1;
        }
        assert!(
            first.iter().all(|count| (10..=45).contains(count)),
            "{first:?}"
        );
    }

    #[test]
    fn ticket_is_32_lower_hex_digits() {
        assert!(is_ticket("0123456789abcdef0123456789abcdef"));
        for bad in [
            "",
            "0123",
            "0123456789ABCDEF0123456789abcdef",
            "x123456789abcdef0123456789abcdef",
        ] {
            assert!(!is_ticket(bad), "{bad}");
        }
    }
}
