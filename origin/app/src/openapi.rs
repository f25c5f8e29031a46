//! The OpenAPI document: what each domain derives from its handlers and types, and what is still written by hand.

use std::sync::LazyLock;

use serde_json::Value;

use crate::access::tenancy::TenantRule;
use crate::api::{Document, OperationKey};
use crate::tenant_rules::RULES;
use crate::{console, domains, http};

static DERIVED: LazyLock<Document> = LazyLock::new(|| {
    let mut document = Document::of_every_port();
    document.merge(console::page().into_document());
    for part in domains::documents() {
        document.merge(part);
    }
    document
});

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut whole = http::handwritten().clone();
    DERIVED.write_to(&mut whole);
    whole
});

static TEXT: LazyLock<String> = LazyLock::new(|| format!("{:#}", *DOCUMENT));

/// The document.
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// The document as the admin port serves it.
pub fn text() -> &'static str {
    &TEXT
}

/// What each operation of the admin port is to tenants' keys, those that are mounted with their rules first.
pub fn tenant_rules() -> Vec<(OperationKey, TenantRule)> {
    let mounted = DERIVED.tenant_rules().iter();
    let mounted = mounted.map(|(key, rule)| (key.clone(), *rule));
    let listed = RULES.iter().flat_map(|(methods, path, rule)| {
        methods.split(' ').map(|method| {
            let (path, method) = ((*path).to_owned(), method.to_lowercase());
            (OperationKey { path, method }, *rule)
        })
    });
    mounted.chain(listed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_both_derived_and_written_by_hand() {
        assert_eq!(
            DERIVED.duplicates(http::handwritten()),
            Vec::<String>::new()
        );
    }
}
