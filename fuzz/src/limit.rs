//! A slot of the table of limits.

use weir_core::limit::{Decision, Fingerprint, Gcra, SET_BACK_MS_MAX, SLOT_LEN, Slot};

/// When the first request comes.
const START_MS: u64 = 1_700_000_000_000;

/// [`Slot`], of a rate, a burst, the bytes of a slot and some requests: two bytes of rate, one of
/// burst, up to 128 of the slot (fewer: all that is there), then two for each request: who asks, and
/// how much the clock has moved since the request before (a signed number of seconds).
///
/// Whatever stood in the slot, nobody waits for longer than a request takes and a clock may be set
/// back, nobody has more than a burst at once, and a refusal changes nothing.
pub fn limit_slot(data: &[u8]) {
    let (settings, data) = data.split_at(data.len().min(3));
    let &[low, high, burst] = settings else {
        return;
    };
    let rate = u16::from_le_bytes([low, high]);
    let limit = Limit {
        gcra: Gcra::new(rate.into(), burst.into()),
        request_ms: 1_000_u64.div_ceil(u64::from(rate.max(1))),
        burst: burst.max(1).into(),
    };
    let (bytes, steps) = data.split_at(data.len().min(SLOT_LEN));
    let mut slot = Slot::decode(bytes);
    assert!(bytes.len() == SLOT_LEN || slot == Slot::default());
    let mut now_ms = START_MS;
    for &[who, seconds] in steps.as_chunks::<2>().0 {
        now_ms = now_ms.saturating_add_signed(i64::from(seconds.cast_signed()) * 1_000);
        limit.check(&mut slot, Fingerprint::new(1, &[who]), now_ms);
    }
}

struct Limit {
    gcra: Gcra,
    /// How long one request takes of the rate, rounded up.
    request_ms: u64,
    burst: usize,
}

impl Limit {
    fn check(&self, slot: &mut Slot, who: Fingerprint, now_ms: u64) {
        let before = slot.encode();
        assert_eq!(Slot::decode(&before), *slot);
        match slot.decide(self.gcra, who, now_ms) {
            Decision::Allow => self.check_burst(slot.clone(), who, now_ms),
            Decision::Refuse { retry_after_ms } => {
                assert_eq!(slot.encode(), before);
                assert!((1..=SET_BACK_MS_MAX + self.request_ms).contains(&retry_after_ms));
                let at = |ms| slot.clone().decide(self.gcra, who, ms);
                assert_eq!(at(now_ms + retry_after_ms), Decision::Allow);
                assert_ne!(at(now_ms + retry_after_ms - 1), Decision::Allow);
            }
        }
    }

    /// One has passed: of those that follow at once, all but the burst's rest are refused.
    fn check_burst(&self, mut slot: Slot, who: Fingerprint, now_ms: u64) {
        let mut rest = self.burst - 1;
        while slot.decide(self.gcra, who, now_ms) == Decision::Allow {
            assert!(rest > 0, "more than a burst");
            rest -= 1;
        }
    }
}
