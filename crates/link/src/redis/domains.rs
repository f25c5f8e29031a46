//! The domains of short links, at [`keys::link_domains`](crate::redis::keys::link_domains).
//!
//! The document may have megabytes, so polls do not fetch all of it. They fetch its first [`BEGINNING_LEN`] bytes and
//! its length, and the whole document if these have changed ([`Outline`]). [`write()`] puts the version, a hash of the
//! rest, first.

use alloc::vec::Vec;

use crate::domain::Domains;
use sha1::{Digest, Sha1};

/// Bytes that gateways read from the document's beginning. The version is within them.
pub const BEGINNING_LEN: usize = 64;

/// Identifies a document by its first bytes and its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    beginning: Vec<u8>,
    len: u64,
}

impl Outline {
    /// The outline of a whole document.
    pub fn from_document(document: &[u8]) -> Self {
        Self::new(document, document.len() as u64)
    }

    /// The outline of a document of `len` bytes that begins with `beginning`.
    pub fn new(beginning: &[u8], len: u64) -> Self {
        let beginning = beginning.get(..BEGINNING_LEN).unwrap_or(beginning);
        Self {
            beginning: beginning.to_vec(),
            len,
        }
    }
}

/// Writes the document at the origin.
///
/// # Errors
/// If it cannot be serialized.
pub fn write(domains: &Domains) -> serde_json::Result<Vec<u8>> {
    let mut config = domains.to_config();
    config.version = 0;
    config.version = version(&serde_json::to_vec(&config)?);
    serde_json::to_vec(&config)
}

/// The version: equal on every origin, and small enough that every JSON parser preserves its digits.
fn version(json: &[u8]) -> u64 {
    let hash = Sha1::digest(json);
    let first = hash.first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::DomainsConfig;
    use alloc::format;
    use alloc::string::String;
    use std::string::ToString;

    fn domains(hosts: &[String]) -> Domains {
        let hosts = hosts
            .iter()
            .map(|host| format!("{host:?}"))
            .collect::<Vec<_>>();
        let text = format!(
            r#"{{"domains":[{{"id":"s","hosts":[{}]}}]}}"#,
            hosts.join(",")
        );
        read(text.as_bytes())
    }

    fn read(json: &[u8]) -> Domains {
        let config: DomainsConfig = serde_json::from_slice(json).unwrap();
        config.checked().unwrap()
    }

    #[test]
    fn written_domains_are_read_with_their_own_version() {
        let before = domains(&["s.example".to_string()]);
        let read = read(&write(&before).unwrap());
        assert!(read.version() > 0);
        assert!(read.iter().eq(before.iter()));
        // The previous version does not matter.
        assert_eq!(write(&read).unwrap(), write(&before).unwrap());
    }

    #[test]
    fn prefix_distinguishes_documents_of_equal_length() {
        let hosts = |last: char| -> Vec<String> {
            let mut hosts: Vec<String> = (0..9).map(|n| format!("host-{n}.example")).collect();
            hosts.push(format!("{last}.example"));
            hosts
        };
        let [a, b] = ['a', 'b'].map(|last| write(&domains(&hosts(last))).unwrap());
        let same = |(a, b): (&u8, &u8)| a == b;
        let rest = |document: &[u8]| document[BEGINNING_LEN..].to_vec();
        assert!(a.len() > 2 * BEGINNING_LEN && !a.iter().zip(&b).all(same));
        assert_ne!(rest(&a), rest(&b), "they differ behind the beginning, too");
        assert_ne!(Outline::from_document(&a), Outline::from_document(&b));
        // The part that gateways fetch is enough.
        let fetched = Outline::new(&a[..BEGINNING_LEN], a.len() as u64);
        assert_eq!(fetched, Outline::from_document(&a));
    }

    #[test]
    fn longest_version_fits_the_document_prefix() {
        let longest = format!(r#"{{"version":{},"#, u64::MAX);
        assert!(longest.len() <= BEGINNING_LEN);
        let written = write(&domains(&["s.example".to_string()])).unwrap();
        assert!(written.starts_with(br#"{"version":"#));
    }
}
