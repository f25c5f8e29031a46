//! What each admin route is to tenants' keys, unless it is mounted with its rules. A route that is not here is the platform's alone, and a test fails until
//! somebody has decided what it is: `tests/origin/tenants/mod.rs` walks the OpenAPI document.

use crate::access::tenancy::TenantRule::{Heeds, Own, Platform};
use crate::access::tenancy::TenantRules;
use crate::access::tenancy::Thing::{Order, Payment, Sale};

/// Methods, route, rule.
pub const RULES: TenantRules = &[
    // Sales: called after the tenant, and so are their orders and payments.
    ("GET POST", "/sales", Heeds),
    ("GET PATCH", "/sales/{id}", Own(Sale)),
    ("GET", "/sales/{id}/payload-schema", Own(Sale)),
    ("GET POST", "/sales/{id}/stock", Own(Sale)),
    ("POST", "/sales/{id}/warm", Own(Sale)),
    ("POST", "/sales/{id}/rewarm", Own(Sale)),
    ("GET", "/sales/{id}/audit", Own(Sale)),
    ("GET", "/sales/{id}/live", Own(Sale)),
    ("PUT", "/sales/{id}/switch", Own(Sale)),
    ("POST", "/sales/{id}/close", Own(Sale)),
    ("PUT DELETE", "/sales/{id}/blocked/{user}", Own(Sale)),
    ("GET", "/orders", Heeds),
    ("GET", "/orders.csv", Heeds),
    ("POST", "/order-actions", Heeds),
    ("GET", "/orders/{id}", Own(Order)),
    ("GET", "/orders/{id}/changes", Own(Order)),
    ("POST", "/orders/{id}/cancel", Own(Order)),
    ("POST", "/orders/{id}/refund", Own(Order)),
    ("GET", "/payments", Heeds),
    ("POST", "/payments/{id}/refunded", Own(Payment)),
    ("GET", "/order-deliveries", Heeds),
    ("POST", "/order-deliveries/retry", Heeds),
    // One switch and one list of users for all sales.
    ("GET PUT", "/switch", Platform),
    ("GET", "/user-list", Platform),
    ("GET PUT DELETE", "/user-list/{user}", Platform),
    // Keys and the trail: the tenant's own. Tenants are made by the platform.
    ("GET POST", "/access/keys", Heeds),
    ("GET DELETE", "/access/keys/{id}", Heeds),
    ("GET", "/access/audit", Heeds),
    ("GET", "/tenants", Platform),
    ("GET PUT DELETE", "/tenants/{id}", Platform),
    // One for all: events and their types, customers, history, products.
    ("POST", "/events", Platform),
    ("GET", "/events/types", Platform),
    ("GET PUT DELETE", "/events/types/{name}", Platform),
    ("GET", "/events/dead-letters", Platform),
    ("POST", "/events/dead-letters/resend", Platform),
    ("GET PUT DELETE", "/events/dead-letters/{id}", Platform),
    ("POST", "/events/dead-letters/{id}/resend", Platform),
    ("GET", "/events/pulls", Platform),
    ("GET", "/groups", Platform),
    ("GET", "/groups/{group}", Platform),
    ("POST", "/groups/{group}/seek", Platform),
    ("POST", "/groups/{group}/pause", Platform),
    ("POST", "/groups/{group}/resume", Platform),
    ("GET", "/groups/{group}/retries", Platform),
    ("POST", "/groups/{group}/retries/now", Platform),
    ("GET", "/groups/{group}/compensations", Platform),
    ("GET", "/customers/{id}/events", Platform),
    ("GET", "/customers/{id}/windows/{window}", Platform),
    ("GET", "/visitors/{id}/events", Platform),
    ("GET", "/visitors/{id}/windows/{window}", Platform),
    ("GET DELETE", "/history", Platform),
    ("GET", "/history/count", Platform),
    ("POST", "/history/delete", Platform),
    ("POST", "/history/join", Platform),
    ("DELETE", "/history/{sku}", Platform),
    ("PUT", "/products", Platform),
    ("GET PUT DELETE", "/products/{sku}", Platform),
];
