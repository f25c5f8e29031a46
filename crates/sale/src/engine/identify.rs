//! Signs the user of requests that are not orders.

use alloc::borrow::Cow;
use alloc::sync::Arc;

use crate::admission::Rejection;
use crate::identity::{self, SignedUser};
use crate::verdict::Verdict;
use weir_base::id::UserId;
use weir_base::shared_data::SharedData;
use weir_engine::Request;

use crate::engine::config::CheckedConfig;
use crate::engine::limits::Limits;

/// Signs the users of requests with `identify_prefixes`.
#[derive(Debug)]
pub(crate) struct Identification<D> {
    config: Arc<CheckedConfig>,
    limits: Limits<D>,
}

impl<D: SharedData + Clone> Identification<D> {
    pub(crate) fn new(config: Arc<CheckedConfig>, data: &D) -> Self {
        let limits = Limits::identified(&config, data);
        Self { config, limits }
    }

    /// Whether the path has a configured prefix.
    pub(crate) fn concerns(&self, path: &[u8]) -> bool {
        let mut prefixes = self.config.identify_prefixes.iter();
        prefixes.any(|prefix| path.starts_with(prefix.as_bytes()))
    }

    /// The signed user for `path`, if configured there and named by the request.
    ///
    /// # Errors
    /// The rejection of a request above its rate limit, if `is_limited`.
    pub(crate) fn sign(
        &self,
        path: &[u8],
        request: &dyn Request,
        is_limited: bool,
    ) -> Result<Option<SignedUser>, Rejection> {
        if !self.concerns(path) {
            return Ok(None);
        }
        let user = read_user(request.headers().get(&self.config.user_header)).ok();
        // Reading the clock is a host call, which other requests avoid.
        let now_ms = request.now_ms();
        if is_limited {
            self.limits.check(user.as_ref(), request, now_ms)?;
        }
        Ok(user.map(|user| identity::sign(&self.config.claim_keys, &user, now_ms)))
    }
}

/// The user in the header, which must occur once: several joined values are invalid.
pub(crate) fn read_user(header: Option<Cow<'_, [u8]>>) -> Result<UserId, Rejection> {
    match header {
        Some(Cow::Borrowed(user)) => UserId::new(user).map_err(|_| Verdict::InvalidUser.into()),
        // Only joined values are owned.
        Some(Cow::Owned(_)) | None => Err(Verdict::InvalidUser.into()),
    }
}
