//! The domains that this gateway serves.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::domain::{Domain, Domains, DomainsConfig};
use weir_base::FieldError;
use weir_base::bytes::is_same;
use weir_engine::config::parse;

/// Domains by host.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    /// `None` until the first document arrives.
    domains: Option<Domains>,
    all: Vec<Arc<Domain>>,
    /// The host and domain of the last request: the next request usually has the same host.
    last: Option<(Box<[u8]>, Arc<Domain>)>,
}

impl Sites {
    /// The domain that serves `host`.
    pub(crate) fn find(&mut self, host: &[u8]) -> Option<Arc<Domain>> {
        if let Some((last, domain)) = &self.last
            && is_same(last, host)
        {
            return Some(Arc::clone(domain));
        }
        let text = core::str::from_utf8(host).ok()?;
        let found = self.domains.as_ref()?.by_host(text)?;
        let domain = self.all.iter().find(|domain| domain.id == found.id)?;
        self.last = Some((host.into(), Arc::clone(domain)));
        Some(Arc::clone(domain))
    }

    /// Loads another document.
    ///
    /// # Errors
    /// If the document is invalid, with the path of the field. The previous document stays in use.
    pub(crate) fn read(&mut self, json: &[u8]) -> Result<(), FieldError> {
        let config = parse::<DomainsConfig>(json)?;
        let domains = config.checked()?;
        self.all = domains.iter().cloned().map(Arc::new).collect();
        self.last = None;
        self.domains = Some(domains);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_gets_its_domain_after_any_earlier_lookup() {
        let mut sites = Sites::default();
        assert!(sites.find(b"a.example").is_none());
        let document =
            br#"{"domains":[{"id":"a","hosts":["a.example"]},{"id":"b","hosts":["b.example"]}]}"#;
        sites.read(document).unwrap();
        for (host, id) in [
            (&b"a.example"[..], Some("a")),
            (b"b.example", Some("b")),
            (b"b.example", Some("b")),
            (b"c.example", None),
            (b"a.example", Some("a")),
        ] {
            let found = sites.find(host);
            let found = found.as_ref().map(|domain| domain.id.as_str());
            assert_eq!(found, id);
        }
        sites
            .read(br#"{"domains":[{"id":"c","hosts":["a.example"]}]}"#)
            .unwrap();
        let found = sites.find(b"a.example").unwrap();
        assert_eq!(found.id.as_str(), "c", "by the new document");
    }
}
