//! Requests forwarded by edges.
//!
//! An edge signs each request that it forwards, with the client's address and the time ([`Stamp`]). A gateway with the
//! edges' keys uses that address; otherwise the connection determines the client's address. The gateway ignores an
//! invalid stamp: a forged one, one for another request, or one older than a minute.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;
use weir_base::FieldError;
use weir_base::headers::{EDGE, EDGE_SIGNATURE};
use weir_base::key::KeyRing;
use weir_base::stamp::Stamp;

use crate::config::Environment;
use crate::keys::{KeyConfig, ring};
use crate::{Headers, Request};

/// Edges that may report the client's address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgesConfig {
    /// Keys that edges sign with; all are accepted.
    pub keys: Vec<KeyConfig>,
}

/// The edges that a gateway trusts. Default: none.
#[derive(Clone, Debug, Default)]
pub struct Edges(Option<KeyRing>);

impl Edges {
    /// Reads the keys from the field `edges`.
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn read(
        config: Option<&EdgesConfig>,
        environment: Environment<'_>,
    ) -> Result<Self, FieldError> {
        let ring = config.map(|config| ring("edges.keys", &config.keys, environment));
        Ok(Self(ring.transpose()?))
    }

    /// The request as stamped by a trusted edge; `None` without a valid stamp or without a client.
    pub fn stamped<'a>(&self, request: &'a dyn Request) -> Option<EdgeRequest<'a>> {
        let keys = self.0.as_ref()?;
        let text = |name| String::from_utf8(request.header(name)?.into_owned()).ok();
        let (value, signature) = (text(EDGE)?, text(EDGE_SIGNATURE)?);
        let requested = (text(":method")?, text(":path")?);
        let requested = (requested.0.as_str(), requested.1.as_str());
        let stamp = Stamp::verify(keys, &value, &signature, requested, request.now_ms()).ok()?;
        let client = match stamp.client {
            "" => return None,
            v6 if v6.contains(':') => format!("[{v6}]:0"),
            v4 => format!("{v4}:0"),
        };
        let client = client.into_bytes();
        Some(EdgeRequest { request, client })
    }
}

/// A client's request that an edge has forwarded.
pub struct EdgeRequest<'a> {
    request: &'a dyn Request,
    client: Vec<u8>,
}

impl Request for EdgeRequest<'_> {
    fn headers(&self) -> &Headers {
        self.request.headers()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.request.header(name)
    }

    fn peer_address(&self) -> Vec<u8> {
        self.client.clone()
    }

    fn now_ms(&self) -> u64 {
        self.request.now_ms()
    }

    fn route_name(&self) -> Option<Vec<u8>> {
        self.request.route_name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::PlainRequest;
    use alloc::vec;
    use proptest::prelude::*;
    use weir_base::key::SigningKey;

    const NOW_MS: u64 = 1_700_000_000_000;
    const EDGES_PEER: &[u8] = b"203.0.113.9:443";

    fn keys(id: &str, byte: u8) -> KeyRing {
        SigningKey::new(id, &[byte; 32]).unwrap().into()
    }

    fn edges() -> Edges {
        Edges(Some(keys("e1", 1)))
    }

    fn stamp(client: &str, path: &str, at_ms: u64, keys: &KeyRing) -> [String; 2] {
        let (method, edge) = ("POST", "fra-1");
        let stamp = Stamp {
            at_ms,
            edge,
            client,
            method,
            path,
        };
        let signed = stamp.sign(keys);
        [signed.value, signed.signature]
    }

    fn request(stamp: &[String; 2]) -> PlainRequest {
        let headers = [
            (":method", "POST"),
            (":path", "/buy?a=1"),
            (EDGE, stamp[0].as_str()),
            (EDGE_SIGNATURE, stamp[1].as_str()),
        ];
        PlainRequest {
            headers: Headers::new(&headers),
            peer_address: EDGES_PEER.into(),
            now_ms: NOW_MS,
        }
    }

    fn client(edges: &Edges, stamp: &[String; 2]) -> Option<Vec<u8>> {
        let request = request(stamp);
        edges
            .stamped(&request)
            .map(|stamped| stamped.peer_address())
    }

    #[test]
    fn client_address_is_read_from_a_valid_edge_stamp() {
        let own = keys("e1", 1);
        for (named, address) in [
            ("192.0.2.1", &b"192.0.2.1:0"[..]),
            ("2001:db8::1", b"[2001:db8::1]:0"),
        ] {
            let signed = stamp(named, "/buy?a=1", NOW_MS, &own);
            assert_eq!(client(&edges(), &signed).as_deref(), Some(address));
            assert_eq!(client(&Edges::default(), &signed), None, "no keys");
        }
    }

    #[test]
    fn invalid_edge_stamp_gives_no_client_address() {
        let own = keys("e1", 1);
        let (path, named) = ("/buy?a=1", "192.0.2.1");
        for (why, signed) in [
            ("forged", stamp(named, path, NOW_MS, &keys("e1", 2))),
            (
                "of an unknown key",
                stamp(named, path, NOW_MS, &keys("e2", 1)),
            ),
            ("of another request", stamp(named, "/buy?a=2", NOW_MS, &own)),
            ("old", stamp(named, path, NOW_MS - 60_001, &own)),
            ("of the future", stamp(named, path, NOW_MS + 60_001, &own)),
            ("of the edge itself", stamp("", path, NOW_MS, &own)),
        ] {
            assert_eq!(client(&edges(), &signed), None, "{why}");
        }
    }

    #[test]
    fn duplicate_edge_stamps_are_ignored() {
        let own = keys("e1", 1);
        let signed = stamp("192.0.2.1", "/buy?a=1", NOW_MS, &own);
        let mut request = request(&signed);
        let mut all: Vec<(&[u8], Vec<u8>)> =
            vec![(EDGE.as_bytes(), b"v1;0;x;1.2.3.4;POST;/".to_vec())];
        all.extend(
            request
                .headers
                .iter()
                .map(|(name, value)| (name, value.to_vec())),
        );
        let all: Vec<(&str, &[u8])> = all
            .iter()
            .map(|(name, value)| (core::str::from_utf8(name).unwrap(), &value[..]))
            .collect();
        request.headers = Headers::new(&all);
        assert!(edges().stamped(&request).is_none());
    }

    #[test]
    fn invalid_edge_key_is_refused_with_its_path() {
        let config: EdgesConfig =
            crate::config::parse(br#"{"keys":[{"id":"e1","secret":{"env":"NONE"}}]}"#).unwrap();
        let refused = Edges::read(Some(&config), &|_| None).unwrap_err();
        assert_eq!(refused.path, "edges.keys[0].secret.env");
    }

    proptest! {
        #[test]
        fn arbitrary_headers_never_panic_edge_verification(value in ".{0,80}", signature in ".{0,80}") {
            prop_assert_eq!(client(&edges(), &[value, signature]), None);
        }
    }
}
