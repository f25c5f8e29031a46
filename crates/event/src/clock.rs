//! Event times. Clients' clocks are wrong by seconds or by years. The gateway's clock determines when an event arrived.

/// A day, in milliseconds.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// How far after its receipt an event's time may be, in milliseconds.
pub const AHEAD_MS_MAX: u64 = DAY_MS;

/// An event time outside the accepted range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    /// Further ahead than [`AHEAD_MS_MAX`].
    #[error(
        "is {by_ms} ms after its receipt, the maximum is {AHEAD_MS_MAX}: check the client's clock, or send `sent_at_ms`"
    )]
    Ahead {
        /// The difference, in milliseconds.
        by_ms: u64,
    },
    /// Longer ago than the type's events are kept.
    #[error(
        "is {by_ms} ms before its receipt, the maximum is {max_ms}: check the client's clock, or send `sent_at_ms`"
    )]
    Back {
        /// The difference, in milliseconds.
        by_ms: u64,
        /// The retention of its type, in milliseconds.
        max_ms: u64,
    },
}

/// The event time by the gateway's clock, in milliseconds since the Unix epoch.
///
/// `at_ms` and `sent_at_ms` are by the client's clock. If the client gives its sending time, the difference to the
/// receipt corrects the event time. An event without a time gets its receipt time.
///
/// # Errors
/// If the time is more than [`AHEAD_MS_MAX`] after or `back_ms_max` before `received_ms`.
pub fn occurred_ms(
    at_ms: Option<u64>,
    sent_at_ms: Option<u64>,
    received_ms: u64,
    back_ms_max: u64,
) -> Result<u64, ClockError> {
    let Some(at_ms) = at_ms else {
        return Ok(received_ms);
    };
    let read_ms = sent_at_ms.unwrap_or(received_ms);
    if at_ms > read_ms {
        let by_ms = at_ms - read_ms;
        let occurred_ms = received_ms.checked_add(by_ms);
        return occurred_ms
            .filter(|_| by_ms <= AHEAD_MS_MAX)
            .ok_or(ClockError::Ahead { by_ms });
    }
    let by_ms = read_ms - at_ms;
    let occurred_ms = received_ms.checked_sub(by_ms);
    occurred_ms
        .filter(|_| by_ms <= back_ms_max)
        .ok_or(ClockError::Back {
            by_ms,
            max_ms: back_ms_max,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_700_000_000_000;

    fn check(at_ms: Option<u64>, sent_at_ms: Option<u64>, expected: Result<u64, ClockError>) {
        assert_eq!(occurred_ms(at_ms, sent_at_ms, NOW, 62 * DAY_MS), expected);
    }

    #[test]
    fn event_without_a_time_gets_the_time_of_receipt() {
        check(None, None, Ok(NOW));
        check(None, Some(5), Ok(NOW));
    }

    #[test]
    fn wrong_client_clock_is_corrected_by_the_send_time() {
        check(Some(NOW - 5_000), None, Ok(NOW - 5_000));
        check(Some(1_000), Some(6_000), Ok(NOW - 5_000));
        check(Some(u64::MAX - 1), Some(u64::MAX), Ok(NOW - 1));
        check(Some(7_000), Some(6_000), Ok(NOW + 1_000));
    }

    #[test]
    fn event_time_too_far_off_is_refused() {
        check(Some(NOW + DAY_MS), None, Ok(NOW + DAY_MS));
        let ahead = |by_ms| Err(ClockError::Ahead { by_ms });
        check(Some(NOW + DAY_MS + 1), None, ahead(DAY_MS + 1));
        check(Some(u64::MAX), Some(0), ahead(u64::MAX));
        let back = |by_ms| {
            let max_ms = 62 * DAY_MS;
            Err(ClockError::Back { by_ms, max_ms })
        };
        check(Some(NOW - 62 * DAY_MS), None, Ok(NOW - 62 * DAY_MS));
        check(Some(0), None, back(NOW));
        check(Some(0), Some(u64::MAX), back(u64::MAX));
    }

    proptest! {
        #[test]
        fn accepted_event_time_is_within_bounds(
            at_ms: Option<u64>, sent_at_ms: Option<u64>, received_ms: u64, back_ms_max: u64,
        ) {
            if let Ok(time) = occurred_ms(at_ms, sent_at_ms, received_ms, back_ms_max) {
                prop_assert!(time <= received_ms.saturating_add(AHEAD_MS_MAX));
                prop_assert!(time >= received_ms.saturating_sub(back_ms_max));
            }
        }

        /// A constant error of the client's clock cancels out.
        #[test]
        fn constant_clock_error_does_not_change_event_times(error: u32, age in 0..DAY_MS) {
            let sent = NOW + u64::from(error);
            prop_assert_eq!(occurred_ms(Some(sent - age), Some(sent), NOW, DAY_MS), Ok(NOW - age));
        }
    }
}
