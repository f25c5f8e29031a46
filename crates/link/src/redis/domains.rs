//! The domains of short links, at [`keys::link_domains`](crate::redis::keys::link_domains).
//!
//! The document may have megabytes, so gateways do not fetch it with every poll. They fetch its first
//! [`BEGINNING_LEN`] bytes and its length, and all of it if these differ from the last ones ([`Outline`]). This works
//! since [`write()`] puts the version, a hash of all the rest, first.

use alloc::vec::Vec;

use crate::domain::Domains;
use sha1::{Digest, Sha1};

/// The bytes at the document's beginning that gateways look at. The version ends well within them.
pub const BEGINNING_LEN: usize = 64;

/// Tells one document from another without all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    beginning: Vec<u8>,
    len: u64,
}

impl Outline {
    /// That of a whole document.
    pub fn from_document(document: &[u8]) -> Self {
        Self::new(document, document.len() as u64)
    }

    /// That of a document of `len` bytes which begins like this.
    pub fn new(beginning: &[u8], len: u64) -> Self {
        let beginning = beginning.get(..BEGINNING_LEN).unwrap_or(beginning);
        Self {
            beginning: beginning.to_vec(),
            len,
        }
    }
}

/// The document as the origin writes it.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn write(domains: &Domains) -> serde_json::Result<Vec<u8>> {
    let mut config = domains.to_config();
    config.version = 0;
    config.version = version(&serde_json::to_vec(&config)?);
    serde_json::to_vec(&config)
}

/// The same in every origin, and small enough that every JSON reader keeps all of its digits.
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
    fn what_is_written_is_read_with_a_version_of_its_own() {
        let before = domains(&["s.example".to_string()]);
        let read = read(&write(&before).unwrap());
        assert!(read.version() > 0);
        assert!(read.iter().eq(before.iter()));
        // The version that it had does not count.
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
        // What a gateway fetches of a document is enough.
        let fetched = Outline::new(&a[..BEGINNING_LEN], a.len() as u64);
        assert_eq!(fetched, Outline::from_document(&a));
    }

    #[test]
    fn the_version_ends_within_the_beginning() {
        let longest = format!(r#"{{"version":{},"#, u64::MAX);
        assert!(longest.len() <= BEGINNING_LEN);
        let written = write(&domains(&["s.example".to_string()])).unwrap();
        assert!(written.starts_with(br#"{"version":"#));
    }
}
