//! Who a request comes from that buys nothing, for the origin.

use proxy_wasm::types::Status;
use weir_core::id::UserId;
use weir_core::{headers, identity};
use weir_filter_kit::host::now_ms;
use weir_filter_kit::http::{RequestHeaders, remove_request_header, set_request_header};

use crate::config::Checked;

/// Sets the signed user in the effective context's request for `path`, if that is a path under which
/// the origin wants to know, and there is one. Whatever a client sent in its place is gone afterwards.
pub(crate) fn identify(
    config: &Checked,
    path: &[u8],
    request: &RequestHeaders,
) -> Result<(), Status> {
    let prefixes = &config.identify_prefixes;
    let is_wanted = prefixes
        .iter()
        .any(|prefix| path.starts_with(prefix.as_bytes()));
    if is_wanted
        && let Some(user) = request.get(&config.user_header)
        && let Ok(user) = UserId::new(&user)
    {
        let signed = identity::sign(&config.claim_keys, &user, now_ms());
        set_request_header(headers::USER, &signed.value)?;
        set_request_header(headers::USER_SIGNATURE, &signed.signature)?;
        let others = [headers::CLAIM, headers::CLAIM_SIGNATURE, headers::VERDICT];
        return strip(request, others);
    }
    strip(request, headers::GATEWAY_ONLY)
}

/// Removes from the effective context's request what only a gateway may send on.
pub(crate) fn strip_gateway_headers() -> Result<(), Status> {
    headers::GATEWAY_ONLY
        .into_iter()
        .try_for_each(remove_request_header)
}

/// Nearly no request has any of them, and to remove what is not there is a host call, too.
fn strip<const N: usize>(request: &RequestHeaders, names: [&str; N]) -> Result<(), Status> {
    let mut present = names.into_iter().filter(|name| request.may_have(name));
    present.try_for_each(remove_request_header)
}
