//! Gateway metadata of a request with events: headers that the gateway adds after removing the client's copies.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weir_base::headers::{
    CONSENT, EVENT_ADDRESS, EVENT_KEY, EVENT_KIND, RECEIVED_MS, VISITOR, WRITE_KEY,
};

use crate::address::Network;
use crate::consent::Consent;
use crate::name::KeyName;

words! {
    /// Kind of sender of a write key.
    pub enum Kind {
        /// Pages: the key is public. It names the site and proves nothing.
        Browser = "browser",
        /// A server of the site: the key is secret.
        Server = "server",
    }
}

/// The gateway metadata of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// The name of the write key.
    pub key: KeyName,
    /// Its kind.
    pub kind: Kind,
    /// Receipt time, in milliseconds since the Unix epoch.
    pub received_ms: u64,
    /// The client's network; `None` for anonymous events.
    pub address: Option<Network>,
    /// The consent: [`Consent::Full`] or [`Consent::Anonymous`].
    pub consent: Consent,
}

/// Request headers that a gateway removes first: forged metadata, and headers for the gateway only.
pub const REMOVED: [&str; 7] = [
    EVENT_KEY,
    EVENT_KIND,
    RECEIVED_MS,
    EVENT_ADDRESS,
    CONSENT,
    WRITE_KEY,
    VISITOR,
];

/// The request did not pass a gateway, or passed one of another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// The header is missing.
    #[error("the header {0} is missing: send requests through a gateway with Weir's events filter")]
    Missing(&'static str),
    /// The header is invalid.
    #[error("the header {0} is invalid: only a gateway may set it")]
    Bad(&'static str),
}

impl Stamps {
    /// The headers to add, in lower case.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::with_capacity(5);
        headers.push((EVENT_KEY, self.key.as_str().to_string()));
        headers.push((EVENT_KIND, self.kind.label().to_string()));
        headers.push((RECEIVED_MS, self.received_ms.to_string()));
        if let Some(address) = self.address {
            headers.push((EVENT_ADDRESS, address.to_string()));
        }
        headers.push((CONSENT, self.consent.label().to_string()));
        headers
    }

    /// Parses a request's metadata. `header` returns a header's value by its name in lower case.
    ///
    /// # Errors
    /// If a header is missing or invalid, with its name.
    pub fn read<'h>(header: impl Fn(&'static str) -> Option<&'h [u8]>) -> Result<Self, StampError> {
        let must = |name| header(name).ok_or(StampError::Missing(name));
        let bad = |name| move || StampError::Bad(name);
        let number = core::str::from_utf8(must(RECEIVED_MS)?);
        let number = number.ok().and_then(|text| text.parse().ok());
        let consent = Consent::from_label(must(CONSENT)?);
        let address = header(EVENT_ADDRESS).map(|value| {
            let text = core::str::from_utf8(value).ok();
            let network = text.and_then(|text| text.parse().ok());
            network.ok_or_else(bad(EVENT_ADDRESS))
        });
        Ok(Self {
            key: KeyName::new(must(EVENT_KEY)?).map_err(|_| StampError::Bad(EVENT_KEY))?,
            kind: Kind::from_label(must(EVENT_KIND)?).ok_or_else(bad(EVENT_KIND))?,
            received_ms: number.ok_or_else(bad(RECEIVED_MS))?,
            address: address.transpose()?,
            consent: consent
                .filter(|consent| *consent != Consent::None)
                .ok_or_else(bad(CONSENT))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use proptest::prelude::*;

    fn stamps() -> impl Strategy<Value = Stamps> {
        let kind = prop::sample::select(Kind::ALL.to_vec());
        let consent = prop::sample::select([Consent::Full, Consent::Anonymous].to_vec());
        let fields = (
            "[a-z0-9_.-]{1,64}",
            kind,
            any::<u64>(),
            any::<Option<IpAddr>>(),
            consent,
        );
        fields.prop_map(|(key, kind, received_ms, address, consent)| Stamps {
            key: KeyName::new(key).unwrap(),
            kind,
            received_ms,
            address: address.map(Network::of_ip),
            consent,
        })
    }

    fn read(headers: &[(&'static str, String)]) -> Result<Stamps, StampError> {
        let find = |name| headers.iter().find(|(existing, _)| *existing == name);
        Stamps::read(|name| find(name).map(|(_, value)| value.as_bytes()))
    }

    proptest! {
        #[test]
        fn event_stamps_round_trip(stamps in stamps()) {
            let headers = stamps.headers();
            prop_assert_eq!(read(&headers), Ok(stamps));
            for (name, _) in &headers {
                prop_assert!(REMOVED.contains(name), "{} would be the client's", name);
            }
        }

        /// The error names a missing or invalid header.
        #[test]
        fn missing_or_invalid_stamp_is_named(stamps in stamps(), at in 0_usize..5) {
            let mut headers = stamps.headers();
            let at = at.min(headers.len() - 1);
            let name = headers[at].0;
            headers[at].1 = "Nonsense!".into();
            prop_assert_eq!(read(&headers), Err(StampError::Bad(name)));
            headers.remove(at);
            match name {
                EVENT_ADDRESS => prop_assert_eq!(read(&headers), Ok(Stamps { address: None, ..stamps })),
                name => prop_assert_eq!(read(&headers), Err(StampError::Missing(name))),
            }
        }
    }

    #[test]
    fn stamps_without_consent_are_refused() {
        let mut headers = Stamps {
            key: KeyName::new("web").unwrap(),
            kind: Kind::Browser,
            received_ms: 1,
            address: None,
            consent: Consent::Full,
        }
        .headers();
        headers.last_mut().unwrap().1 = "none".into();
        assert_eq!(read(&headers), Err(StampError::Bad(CONSENT)));
    }
}
