//! Rate limit of failed sign-ins per address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Failed sign-ins that an address may make before it has to wait.
const BURST: u64 = 10;

/// Time after which one failed sign-in is forgiven, in milliseconds: ten per minute.
const EACH_MS: u64 = 6_000;

/// Maximum number of tracked addresses. Beyond it, the address whose failures expire first is dropped.
const ADDRESSES_MAX: usize = 4_096;

/// For each address, the time at which all its failures are forgiven, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<HashMap<IpAddr, u64>>);

impl Attempts {
    /// How long `address` has to wait, in milliseconds; `None`: it may try now.
    pub(super) fn wait_ms(&self, address: IpAddr, now_ms: u64) -> Option<u64> {
        let forgiven = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let debt_ms = forgiven.get(&address)?.saturating_sub(now_ms);
        // If the clock is set back, an address waits at most for one full burst.
        let debt_ms = debt_ms.min(BURST * EACH_MS);
        let most_ms = (BURST - 1) * EACH_MS;
        (debt_ms > most_ms).then(|| debt_ms - most_ms)
    }

    /// Records a failed sign-in.
    pub(super) fn failed(&self, address: IpAddr, now_ms: u64) {
        let mut forgiven = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if forgiven.len() >= ADDRESSES_MAX && !forgiven.contains_key(&address) {
            forgiven.retain(|_, at_ms| *at_ms > now_ms);
            let first = forgiven.iter().min_by_key(|(_, at_ms)| **at_ms);
            if let Some(first) = first.map(|(address, _)| *address)
                && forgiven.len() >= ADDRESSES_MAX
            {
                forgiven.remove(&first);
            }
        }
        let at_ms = forgiven.entry(address).or_default();
        let from_ms = (*at_ms).clamp(now_ms, now_ms + BURST * EACH_MS);
        *at_ms = from_ms + EACH_MS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_000_000;

    fn address(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(n).into()
    }

    #[test]
    fn ten_attempts_can_fail_plus_one_every_six_seconds() {
        let attempts = Attempts::default();
        for _ in 0..BURST {
            assert_eq!(attempts.wait_ms(address(1), NOW_MS), None);
            attempts.failed(address(1), NOW_MS);
        }
        assert_eq!(attempts.wait_ms(address(1), NOW_MS), Some(EACH_MS));
        assert_eq!(attempts.wait_ms(address(2), NOW_MS), None);
        assert_eq!(attempts.wait_ms(address(1), NOW_MS + EACH_MS), None);
        attempts.failed(address(1), NOW_MS + EACH_MS);
        let wait_ms = attempts.wait_ms(address(1), NOW_MS + EACH_MS);
        assert_eq!(wait_ms, Some(EACH_MS));
    }

    #[test]
    fn attempt_memory_is_bounded_for_any_addresses() {
        let attempts = Attempts::default();
        for n in 0..2 * ADDRESSES_MAX as u32 {
            attempts.failed(address(n), NOW_MS + u64::from(n));
        }
        assert_eq!(attempts.0.lock().unwrap().len(), ADDRESSES_MAX);
    }
}
