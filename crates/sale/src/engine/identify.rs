//! Who a request comes from that buys nothing, for the origin.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use crate::admission::Rejection;
use crate::identity::{self, SignedUser};
use crate::verdict::Verdict;
use weir_base::id::UserId;
use weir_base::key::KeyRing;
use weir_base::shared_data::SharedData;
use weir_engine::Request;

use crate::engine::config::Checked;
use crate::engine::limits::Limits;

/// Signs the users of requests that the origin wants to know.
#[derive(Debug)]
pub(crate) struct Identification {
    keys: KeyRing,
    user_header: String,
    prefixes: Vec<String>,
}

impl Identification {
    pub(crate) fn new(config: &Checked) -> Self {
        Self {
            keys: config.claim_keys.clone(),
            user_header: config.user_header.clone(),
            prefixes: config.identify_prefixes.clone(),
        }
    }

    /// The signed user of a request for `path`, if the origin wants to know it there and the request names one.
    ///
    /// # Errors
    /// The answer to a request that comes too often, if `limits` count.
    pub(crate) fn sign<D: SharedData + Clone>(
        &self,
        path: &[u8],
        request: &dyn Request,
        limits: Option<&Limits<D>>,
    ) -> Result<Option<SignedUser>, Rejection> {
        let mut prefixes = self.prefixes.iter();
        if !prefixes.any(|prefix| path.starts_with(prefix.as_bytes())) {
            return Ok(None);
        }
        let user = read_user(request.headers().get(&self.user_header)).ok();
        // The clock is a host call: other requests do without it.
        let now_ms = request.now_ms();
        if let Some(limits) = limits {
            limits.check_identified(user.as_ref(), request, now_ms)?;
        }
        Ok(user.map(|user| identity::sign(&self.keys, &user, now_ms)))
    }
}

/// The user that a header names. It must be there once: several joined values name nobody.
pub(crate) fn read_user(header: Option<Cow<'_, [u8]>>) -> Result<UserId, Rejection> {
    match header {
        Some(Cow::Borrowed(user)) => UserId::new(user).map_err(|_| Verdict::InvalidUser.into()),
        // Only joined values are owned.
        Some(Cow::Owned(_)) | None => Err(Verdict::InvalidUser.into()),
    }
}
