//! Tenant rules of admin routes: what a tenant's key may access.

use axum::RequestExt;
use axum::extract::{RawPathParams, Request};

use super::Caller;
use super::scope::{Area, Scopes};
use crate::http::{Problem, Refusal};

/// 404: no such sale, or not the tenant's.
pub const UNKNOWN_SALE: Refusal =
    Refusal::not_found("unknown_sale", "Unknown sale", "There is no such sale");

/// 404: no such order, or not the caller's.
pub const UNKNOWN_ORDER: Refusal =
    Refusal::not_found("unknown_order", "Unknown order", "There is no such order");

/// 404: no such payment, or not the tenant's.
pub const UNKNOWN_PAYMENT: Refusal = Refusal::not_found(
    "unknown_payment",
    "Unknown payment",
    "There is no such payment",
);

/// 404: no such waiting room, or not the tenant's.
pub const UNKNOWN_ROOM: Refusal = Refusal::not_found(
    "unknown_room",
    "Unknown room",
    "The room has no settings and no gateway has it, or it belongs to another tenant",
);

/// Areas in which a tenant's key may have permissions. All other areas belong to the platform.
pub(super) const AREAS: [Area; 4] = [Area::Sales, Area::Rooms, Area::Links, Area::Access];

/// Access of tenants' keys to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantRule {
    /// The name in the first path parameter must belong to the tenant. Other names give 404.
    Own(ResourceKind),
    /// The handler filters by the tenant of [`Caller`].
    Heeds,
    /// Only for the platform: the route covers all tenants or shared objects.
    Platform,
}

/// The kind of object that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// A sale.
    Sale,
    /// An order; its name starts with its sale's.
    Order,
    /// A payment; its name starts with its order's.
    Payment,
    /// A waiting room.
    Room,
}

impl ResourceKind {
    /// The 404 for an object that does not exist or belongs to another tenant.
    fn unknown(self) -> Problem {
        self.refusal().because(match self {
            Self::Sale => "sale not found",
            Self::Order => "order not found",
            Self::Payment => "payment not found",
            Self::Room => {
                "the tenant has no such room: its room names start with the tenant's name and --"
            }
        })
    }

    /// The refusal for an object that does not exist or belongs to another tenant.
    pub const fn refusal(self) -> Refusal {
        match self {
            Self::Sale => UNKNOWN_SALE,
            Self::Order => UNKNOWN_ORDER,
            Self::Payment => UNKNOWN_PAYMENT,
            Self::Room => UNKNOWN_ROOM,
        }
    }
}

/// Why the tenant of `caller` is refused; `None`: it is allowed, or the caller has no tenant.
pub(super) async fn refusal(
    rule: TenantRule,
    caller: &Caller,
    request: &mut Request,
) -> Option<Problem> {
    let tenant = caller.tenant()?;
    match rule {
        TenantRule::Heeds => None,
        TenantRule::Own(thing) => {
            let params = request.extract_parts::<RawPathParams>().await.ok();
            let first = params.as_ref().and_then(|params| params.iter().next());
            let is_own = first.is_some_and(|(_, value)| tenant.name.owns(value));
            (!is_own).then(|| thing.unknown())
        }
        TenantRule::Platform => {
            let detail = format!(
                "this belongs to the platform: a key of the tenant \"{}\" can only use the tenant's own objects",
                tenant.name
            );
            Some(super::auth_layer::forbidden(detail))
        }
    }
}

/// Returns the permissions that a tenant's key may have.
pub(super) fn of_tenants(scopes: &Scopes) -> Scopes {
    scopes.of_areas(&AREAS)
}
