//! A person's consent to event collection.

use serde::Deserialize;

words! {
    /// Consent of a person.
    pub enum Consent {
        /// Everything.
        Full = "full",
        /// Events without identity: customer, visitor and address are removed before the log.
        Anonymous = "anonymous",
        /// Nothing: the gateway drops the events.
        None = "none",
    }
}

/// Effect of a browser privacy signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// No effect.
    Ignore,
    /// Consent is at most `anonymous`.
    #[default]
    Anonymise,
    /// Events are dropped.
    Drop,
}

impl Signal {
    /// The maximum consent of a request with the signal.
    pub const fn consent(self) -> Consent {
        match self {
            Self::Ignore => Consent::Full,
            Self::Anonymise => Consent::Anonymous,
            Self::Drop => Consent::None,
        }
    }
}

impl Consent {
    /// The stricter of two: any refusal counts.
    pub fn and(self, other: Self) -> Self {
        self.max(other)
    }
}

/// Whether the value of `Sec-GPC` or `DNT` signals a refusal.
pub fn is_signalled(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| value.trim_ascii() == b"1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_consent_is_the_strictest() {
        for a in Consent::ALL {
            for b in Consent::ALL {
                let both = a.and(b);
                assert_eq!(both, b.and(a));
                assert!(both >= a && both >= b && (both == a || both == b));
            }
        }
        assert_eq!(
            Consent::Full.and(Signal::Drop.consent()),
            Consent::None,
            "what follows is stricter"
        );
        assert_eq!(Signal::default().consent(), Consent::Anonymous);
        assert_eq!(Signal::Ignore.consent(), Consent::Full);
    }

    #[test]
    fn privacy_signal_is_set_only_by_value_1() {
        assert!(is_signalled(Some(b"1")) && is_signalled(Some(b" 1 ")));
        for none in [None, Some(&b"0"[..]), Some(b""), Some(b"1,1"), Some(b"yes")] {
            assert!(!is_signalled(none));
        }
    }

    #[test]
    fn consent_labels_round_trip() {
        for consent in Consent::ALL {
            assert_eq!(
                Consent::from_label(consent.label().as_bytes()),
                Some(consent)
            );
        }
        assert_eq!(Consent::from_label(b"Full"), None);
    }
}
