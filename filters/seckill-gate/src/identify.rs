//! Who a request comes from that buys nothing, for the origin.

use proxy_wasm::types::Status;
use weir_base::headers;
use weir_base::id::UserId;
use weir_filter_kit::host::now_ms;
use weir_filter_kit::http::{RequestHeaders, add_request_header, remove_gateway_headers};
use weir_sale::identity;

use crate::config::Checked;

/// Sets the signed user in the effective context's request for `path`, if that is a path under which
/// the origin wants to know, and there is one. Whatever a client sent in its place is gone before.
pub(crate) fn identify(
    config: &Checked,
    path: &[u8],
    request: &RequestHeaders,
) -> Result<(), Status> {
    if request.pose_as_gateways() {
        remove_gateway_headers()?;
    }
    let prefixes = &config.identify_prefixes;
    let is_wanted = prefixes
        .iter()
        .any(|prefix| path.starts_with(prefix.as_bytes()));
    if is_wanted
        && let Some(user) = request.get(&config.user_header)
        && let Ok(user) = UserId::new(&user)
    {
        let signed = identity::sign(&config.claim_keys, &user, now_ms());
        add_request_header(headers::USER, &signed.value)?;
        add_request_header(headers::USER_SIGNATURE, &signed.signature)?;
    }
    Ok(())
}
