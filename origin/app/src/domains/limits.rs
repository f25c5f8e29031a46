//! Rate limits in the origin: admin routes only.

use axum::Router;
use tokio_util::sync::CancellationToken;

use super::{Domain, Jobs};
use crate::access::AuthLayer;
use crate::limits;
use crate::origin::Origin;

pub(super) struct LimitDomain;

impl Domain for LimitDomain {
    fn admin(&self, origin: &Origin, auth: &AuthLayer) -> Router {
        auth.mount(limits::http::admin(), origin.common.redis.clone())
    }

    fn spawn(&self, _origin: &Origin, _stop: &CancellationToken) -> Jobs {
        Ok(Vec::new())
    }
}
