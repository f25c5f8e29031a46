//! The OpenAPI document: what each domain derives from its handlers and types.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::access::tenancy::TenantRule;
use crate::api::{Document, OperationKey};
use crate::{access, console, domains, http};

static DERIVED: LazyLock<Document> = LazyLock::new(|| {
    let mut document = Document::of_every_port();
    document.merge(access::http::document());
    document.merge(console::page().into_document());
    document.merge(http::alive().into_document());
    document.merge(http::probes().into_document());
    for part in domains::documents() {
        document.merge(part);
    }
    document
});

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let header = |name| json!({ "type": "apiKey", "in": "header", "name": name });
    let mut whole = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir origin",
            "version": "0.1.0",
            "description": "Routes tagged `public` are behind the gateways, on --listen; those tagged `admin` on --admin-listen. GET /healthz is on both. Refusals are problem details (RFC 9457) with a code in `error`; each response lists its codes in x-error-codes, and info.x-error-codes says what each means. A path without a route answers 404 `no_route`, a method that a path does not take 405 `no_method`.",
        },
        "components": { "securitySchemes": {
            "admin": {
                "type": "http",
                "scheme": "bearer",
                "description": "A key, or the admin token. Instead of it, the cookie weir_session of POST /access/session with the \
                    header x-weir-console. A key without the permission for a route gets 403, `forbidden`",
            },
            "claim": header("x-weir-claim"),
            "claimSignature": header("x-weir-claim-signature"),
            "user": header("x-weir-user"),
            "userSignature": header("x-weir-user-signature"),
        } },
    });
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

/// What each operation of the admin port is to tenants' keys.
pub fn tenant_rules() -> &'static BTreeMap<OperationKey, TenantRule> {
    DERIVED.tenant_rules()
}
