//! gRPC streams, and the delivery of replies to the filter.

use crate::abi::{Headers, u32_of};
use crate::process::Process;
use crate::upstream::{Call, Reply};
use crate::world::{ContextId, VmUid};

/// Envoy encodes the kind of a token in its low bits: 0 for HTTP calls, 1 for gRPC calls, 2 for gRPC streams.
const KIND: u32 = 3;
const CALL: u32 = 1;
const STREAM: u32 = 2;

/// The start value of [`next_id`].
pub(crate) const NO_STREAM: u32 = STREAM;

const UNKNOWN: u32 = 2;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// Whether the id has the form of a gRPC stream's; the stream need not exist.
pub(crate) fn is_stream(id: u32) -> bool {
    id & KIND == STREAM
}

/// Whether the id has the form of a gRPC stream's or a gRPC call's.
pub(crate) fn is_grpc(id: u32) -> bool {
    is_stream(id) || id & KIND == CALL
}

/// The id of the next stream of a VM. Envoy counts each kind separately: streams do not advance the tokens of HTTP
/// calls.
pub(crate) fn next_id(last: &mut u32) -> u32 {
    *last += KIND + 1;
    *last
}

/// The state of a stream: some host calls crash Envoy only inside the stream's own callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrpcState {
    Open,
    /// In its `proxy_on_grpc_receive`, or in what follows from it.
    Receiving,
    /// The filter has ended its half; the other side has not closed yet.
    Ended,
    /// In its `proxy_on_grpc_close`.
    Closing,
}

/// A gRPC stream that the filter has opened.
pub(crate) struct GrpcStream {
    /// Always a root context, as for HTTP calls.
    pub root: ContextId,
    pub cluster: String,
    /// The headers of each message.
    pub headers: Headers,
    pub state: GrpcState,
}

impl GrpcStream {
    pub fn new(root: ContextId, cluster: String, path: &str, metadata: &Headers) -> Self {
        let mut headers = Headers::new();
        headers.add(":method", "POST");
        headers.add(":path", path);
        headers.add(":authority", &cluster);
        for (name, value) in metadata.iter() {
            headers.add(name, value);
        }
        Self {
            root,
            cluster,
            headers,
            state: GrpcState::Open,
        }
    }
}

impl Process {
    /// A 200 is a message on the stream; any other status ends it.
    pub(crate) fn answer_message(&self, call: &Call, stream: u32, reply: Reply) {
        match reply {
            Reply::Response { headers, body, .. } if headers.text(":status") == Some("200") => {
                self.receive(call, stream, body);
            }
            Reply::Response { headers, .. } => {
                self.close_stream(call.vm, stream, grpc_status(headers.text(":status")));
            }
            _ => self.close_stream(call.vm, stream, UNAVAILABLE),
        }
    }

    fn receive(&self, call: &Call, stream: u32, body: Vec<u8>) {
        let args = [call.root, stream, u32_of(body.len())];
        self.world.borrow_mut().vm(call.vm).grpc_received = body;
        self.set_state(call.vm, stream, GrpcState::Receiving);
        // The VM has recorded a trap; the result is not needed.
        let _ = self.callback(call.vm, call.root, "proxy_on_grpc_receive", &args);
        self.set_state(call.vm, stream, GrpcState::Open);
        self.world.borrow_mut().vm(call.vm).grpc_received.clear();
    }

    /// The other side has read the end of the filter's half: it closes, and its unsent messages are lost.
    pub(crate) fn end_grpc(&self, vm: VmUid, stream: u32) {
        self.close_stream(vm, stream, INTERNAL);
    }

    fn close_stream(&self, uid: VmUid, stream: u32, status: u32) {
        let (root, was_ended) = {
            let world = &mut *self.world.borrow_mut();
            let Some(existing) = world.vm(uid).grpc_streams.get_mut(&stream) else {
                return;
            };
            let root = existing.root;
            let before = std::mem::replace(&mut existing.state, GrpcState::Closing);
            world.forget_messages(uid, stream);
            world.vm(uid).call_status = (status, String::new());
            (root, before == GrpcState::Ended)
        };
        // The VM has recorded a trap; the result is not needed.
        let _ = self.callback(uid, root, "proxy_on_grpc_close", &[root, stream, status]);
        let mut world = self.world.borrow_mut();
        if world.vm(uid).grpc_streams.remove(&stream).is_some() && !was_ended {
            let why = format!(
                "proxy_on_grpc_close did not cancel stream {stream}: Envoy keeps a dangling pointer and crashes when the root context is destroyed; cancel a closed stream"
            );
            world.violate(uid, "proxy_grpc_cancel", why);
        }
    }

    /// No effect for a stream that the callback cancelled or that died with its VM.
    fn set_state(&self, uid: VmUid, stream: u32, state: GrpcState) {
        let mut world = self.world.borrow_mut();
        if let Some(stream) = world.vm(uid).grpc_streams.get_mut(&stream) {
            stream.state = state;
        }
    }
}

fn grpc_status(http: Option<&str>) -> u32 {
    match http {
        Some("400") => INTERNAL,
        Some("502" | "503" | "504") => UNAVAILABLE,
        _ => UNKNOWN,
    }
}
