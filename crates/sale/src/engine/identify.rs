//! Who a request comes from that buys nothing, for the origin.

use crate::identity;
use crate::sale::SaleState;
use weir_base::headers;
use weir_base::id::UserId;
use weir_base::shared_data::SharedData;
use weir_engine::{Effects, Request, StreamId};

use crate::engine::answers::reader_of;
use crate::engine::gate::Gate;

impl<D: SharedData + Clone> Gate<D> {
    /// Lets a request for `path` go on, with the signed user if the origin wants to know it there, unless it comes too
    /// often. Whatever a client sent in its place is removed.
    pub(crate) fn identify(
        &mut self,
        stream: StreamId,
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let mut prefixes = self.config.identify_prefixes.iter();
        let is_identified = prefixes.any(|prefix| path.starts_with(prefix.as_bytes()));
        let user = match is_identified {
            true => self.user(request).ok(),
            false => None,
        };
        // The clock is a host call: of other requests it is not asked.
        let now_ms = if is_identified { request.now_ms() } else { 0 };
        if is_identified
            && self.switch() != Some(SaleState::Shadow)
            && let Err(no) = self.limits.check_identified(user.as_ref(), request, now_ms)
        {
            self.metrics.requests.increment(no.verdict);
            let answer = self.answers.reject(no, reader_of(request), None);
            return effects.respond(stream, answer);
        }
        if request.headers().pose_as_gateway() {
            effects.remove_gateway_headers(stream);
        }
        if let Some(user) = user {
            self.add_user(stream, &user, now_ms, effects);
        }
        effects.let_go(stream);
    }

    fn add_user(&self, stream: StreamId, user: &UserId, now_ms: u64, effects: &mut Effects) {
        let signed = identity::sign(&self.config.claim_keys, user, now_ms);
        effects.add_header(stream, headers::USER, signed.value);
        effects.add_header(stream, headers::USER_SIGNATURE, signed.signature);
    }
}
