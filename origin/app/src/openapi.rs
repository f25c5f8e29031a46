//! The OpenAPI document, generated from the handlers and types of all domains.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::access::tenancy::TenantRule;
use crate::api::{Document, OperationKey};
use crate::{access, console, domains, http};

static DERIVED: LazyLock<Document> = LazyLock::new(|| {
    let mut document = Document::of_every_port();
    document.merge(access::http::document());
    document.merge(console::page().into_document());
    document.merge(http::alive().into_document());
    document.merge(http::probes().into_document());
    document.merge(http::serving().into_document());
    for part in domains::documents() {
        document.merge(part);
    }
    document
});

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| DERIVED.to_value(weir_version::VERSION));

static TEXT: LazyLock<String> = LazyLock::new(|| format!("{:#}", *DOCUMENT));

/// The document.
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// The document as the admin port serves it.
pub fn text() -> &'static str {
    &TEXT
}

/// Tenant access rule of each operation on the admin port.
pub fn tenant_rules() -> &'static BTreeMap<OperationKey, TenantRule> {
    DERIVED.tenant_rules()
}
