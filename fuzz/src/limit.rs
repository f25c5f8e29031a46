//! A slot of the table of limits.

use weir_limit::{Algorithm, Fingerprint, Quota, SET_BACK_MS_MAX, Slot};

/// The time of the first request.
const START_MS: u64 = 1_700_000_000_000;

/// [`Slot`] of an algorithm, a rate, a burst, slot bytes and requests. The input is one byte of algorithm, two of rate,
/// one of burst, the slot's bytes (or all remaining), then two for each request: the key, and the change of the clock
/// since the previous request (a signed number of seconds).
///
/// Checks for any slot contents that no wait exceeds two periods plus a clock change, that no key gets more than a
/// burst at once, and that a refusal's wait is exact.
pub fn limit_slot(data: &[u8]) {
    let (settings, data) = data.split_at(data.len().min(4));
    let &[algorithm, low, high, burst] = settings else {
        return;
    };
    let algorithm = match algorithm % 4 {
        0 => Algorithm::Gcra,
        1 => Algorithm::SlidingWindow,
        2 => Algorithm::FixedWindow,
        _ => Algorithm::Concurrency,
    };
    let rate = u32::from(u16::from_le_bytes([low, high])).max(1);
    let quota =
        Quota::new(algorithm, rate, 1_000, u32::from(burst).max(1)).expect("within the bounds");
    let (bytes, steps) = data.split_at(data.len().min(Slot::len(&quota)));
    let mut slot = Slot::read(bytes.to_vec(), &quota);
    let mut now_ms = START_MS;
    for &[user, seconds] in steps.as_chunks::<2>().0 {
        now_ms = now_ms.saturating_add_signed(i64::from(seconds.cast_signed()) * 1_000);
        ask(&quota, &mut slot, Fingerprint::new(1, &[user]), now_ms);
        assert_eq!(Slot::read(slot.as_bytes().to_vec(), &quota), slot);
    }
}

fn ask(quota: &Quota, slot: &mut Slot, fingerprint: Fingerprint, now_ms: u64) {
    let mut state = slot.state(quota, fingerprint, now_ms);
    let check = state.check(quota, 1);
    if check.is_allowed() {
        state.charge(quota, 1);
        slot.put(quota, fingerprint, &state, now_ms);
        assert_eq!(slot.state(quota, fingerprint, now_ms), state);
        let mut rest = u64::from(quota.burst()) - 1;
        while state.check(quota, 1).is_allowed() {
            assert!(rest > 0, "more than a burst");
            rest -= 1;
            state.charge(quota, 1);
        }
        return;
    }
    assert!(check.wait_ms <= 2 * quota.per_ms() + SET_BACK_MS_MAX);
    if quota.algorithm() == Algorithm::Gcra {
        let at = |ms| {
            slot.state(quota, fingerprint, ms)
                .check(quota, 1)
                .is_allowed()
        };
        assert!(at(now_ms + check.wait_ms) && !at(now_ms + check.wait_ms - 1));
    }
}
