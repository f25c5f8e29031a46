//! Who a request comes from that buys nothing, for the origin.

use weir_base::headers;
use weir_base::id::UserId;
use weir_engine::{Effects, Request, StreamId};
use weir_sale::identity;

use crate::config::Checked;

/// Lets a request for `path` go on, with the signed user if the origin wants to know it there. Whatever a client sent in
/// its place is removed.
pub(crate) fn identify(
    config: &Checked,
    stream: StreamId,
    path: &[u8],
    request: &dyn Request,
    effects: &mut Effects,
) {
    if request.headers().pose_as_gateway() {
        effects.remove_gateway_headers(stream);
    }
    let mut prefixes = config.identify_prefixes.iter();
    if prefixes.any(|prefix| path.starts_with(prefix.as_bytes()))
        && let Some(user) = request.headers().get(&config.user_header)
        && let Ok(user) = UserId::new(&user)
    {
        let signed = identity::sign(&config.claim_keys, &user, request.now_ms());
        effects.add_header(stream, headers::USER, signed.value);
        effects.add_header(stream, headers::USER_SIGNATURE, signed.signature);
    }
    effects.let_go(stream);
}
