//! Sends an answer to the client. The SDK's version of this call serializes the headers each time, and panics if the
//! host refuses.

use weir_engine::Answer;

/// Answers the request of the effective context's stream. Returns whether the host accepted it: it does not if the
/// stream has ended or was already answered.
pub fn send(answer: &Answer) -> bool {
    local::send(
        answer.status,
        answer.headers.as_bytes(),
        &answer.body,
        answer.grpc_status,
        answer.details.as_bytes(),
    )
}

#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code)] // An imported function: there is no safe way to call an import.
mod local {
    /// The ABI's "no error".
    const OK: u32 = 0;
    /// The ABI's value for "not gRPC".
    const NO_GRPC_STATUS: i32 = -1;

    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        /// Copies all arguments before it returns.
        fn proxy_send_local_response(
            status: u32,
            details: *const u8,
            details_size: usize,
            body: *const u8,
            body_size: usize,
            headers: *const u8,
            headers_size: usize,
            grpc_status: i32,
        ) -> u32;
    }

    pub(super) fn send(
        status: u16,
        headers: &[u8],
        body: &[u8],
        grpc_status: Option<u8>,
        details: &[u8],
    ) -> bool {
        // SAFETY: each pointer is to as many bytes as its length argument says.
        let sent = unsafe {
            proxy_send_local_response(
                status.into(),
                details.as_ptr(),
                details.len(),
                body.as_ptr(),
                body.len(),
                headers.as_ptr(),
                headers.len(),
                grpc_status.map_or(NO_GRPC_STATUS, i32::from),
            )
        };
        sent == OK
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod local {
    /// There is no host outside WebAssembly.
    pub(super) fn send(
        _status: u16,
        _headers: &[u8],
        _body: &[u8],
        _grpc_status: Option<u8>,
        _details: &[u8],
    ) -> bool {
        false
    }
}
