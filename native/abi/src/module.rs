//! The trait of a native module and its types.

use std::sync::Arc;

use crate::config::ConfigHost;
use crate::connection::Connection;
use crate::filter::{Filter, Response};

/// Log levels, with the ABI's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Level {
    /// Details for debugging.
    Debug = 1,
    /// A state change.
    Info = 2,
    /// A problem that may resolve without action.
    Warn = 3,
    /// A problem that needs an operator.
    Error = 4,
}

/// How a request continues after its headers: the ABI's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HeadersStatus {
    /// Continue.
    Continue = 0,
    /// Stop, or the request was answered; its body still reaches this filter.
    StopHead = 1,
    /// Stop the headers and all that follows.
    StopAll = 4,
}

/// How a request continues after a part of its body: the ABI's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BodyStatus {
    /// Continue.
    Continue = 0,
    /// Envoy buffers the part.
    Keep = 1,
}

/// How received bytes of a connection continue: the ABI's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ReadStatus {
    /// The bytes that were not drained reach the next filter.
    Continue = 0,
    /// Stop until more bytes arrive.
    Stop = 1,
}

/// The response to a request of [`ConfigHost::fetch`](crate::ConfigHost::fetch), during its hook.
#[derive(Clone, Debug)]
pub struct FetchedResponse<'h> {
    /// The headers, including `:status`.
    pub headers: Vec<(&'h [u8], &'h [u8])>,
    /// Its body.
    pub body: Vec<u8>,
}

/// A module with HTTP and network filters. Envoy creates configurations on its main thread. A stream lives on one
/// worker thread. Hooks get `&self`, because a hook that answers or continues the request may trigger other hooks of
/// the same stream.
pub trait Module: 'static {
    /// State of one filter configuration, shared by all its streams.
    type Config: Send + Sync + 'static;

    /// State of one stream.
    type Stream: 'static;

    /// The reply when a hook of a stream panics before the request is answered.
    const ANSWER_TO_PANIC: Response<'static>;

    /// Creates the state of a filter configuration. `None` rejects it; the module logs the reason.
    fn configure(host: &ConfigHost<'_>, name: &[u8], config: &[u8]) -> Option<Self::Config>;

    /// The configuration is no longer used. Runs on any Envoy thread. All calls into Envoy on its behalf must end
    /// before this returns.
    fn dropped(config: &Self::Config);

    /// A [`ConfigScheduler`](crate::ConfigScheduler) called the main thread.
    fn scheduled(config: &Self::Config, host: &ConfigHost<'_>);

    /// An HTTP request of the module ended. Runs on the main thread.
    fn fetched(config: &Self::Config, id: u64, response: Option<FetchedResponse<'_>>);

    /// A stream begins. `None` ends it.
    fn stream(config: &Arc<Self::Config>) -> Option<Self::Stream>;

    /// The request's headers arrived.
    fn request_headers(stream: &Self::Stream, filter: Filter<'_>, is_last: bool) -> HeadersStatus;

    /// A part of the request's body arrived.
    fn request_body(stream: &Self::Stream, filter: Filter<'_>, is_last: bool) -> BodyStatus;

    /// The request's trailers arrived, so the request is complete. Returns whether they continue.
    fn request_trailers(stream: &Self::Stream, filter: Filter<'_>) -> bool;

    /// The response's headers are about to be sent to the client.
    fn response_headers(stream: &Self::Stream, filter: Filter<'_>);

    /// A [`StreamScheduler`](crate::StreamScheduler) called the stream's thread.
    fn called(stream: &Self::Stream, filter: Filter<'_>);

    /// The stream ended. Its response status is still readable.
    fn completed(stream: &Self::Stream, filter: Filter<'_>);

    /// The stream's filter is gone. All calls into Envoy on its behalf must end before this returns.
    fn stream_destroyed(stream: &Self::Stream);

    /// State of one network filter configuration, shared by all its connections.
    type NetworkConfig: Send + Sync + 'static;

    /// State of one connection. Hooks get `&self`, because write hooks run inside other hooks of the same connection.
    type NetworkState: 'static;

    /// Creates the state of a network filter configuration. `None` rejects it; the module logs the reason.
    fn configure_network(name: &[u8], config: &[u8]) -> Option<Self::NetworkConfig>;

    /// A connection begins.
    fn connected(
        config: &Arc<Self::NetworkConfig>,
        connection: Connection<'_>,
    ) -> Self::NetworkState;

    /// Bytes arrived. `is_last`: no more follow.
    fn received(
        state: &Self::NetworkState,
        connection: Connection<'_>,
        is_last: bool,
    ) -> ReadStatus;

    /// Bytes are about to be sent to the client. The hook may drain some; the rest continue.
    fn sent(state: &Self::NetworkState, connection: Connection<'_>);

    /// The connection is closed. May run twice.
    fn disconnected(state: &Self::NetworkState);

    /// A [`ConnectionScheduler`](crate::ConnectionScheduler) called the connection's thread.
    fn connection_called(state: &Self::NetworkState, connection: Connection<'_>);

    /// The write buffer passed its high watermark.
    fn congested(state: &Self::NetworkState);

    /// A hook of a connection panicked.
    fn connection_panicked(state: &Self::NetworkState);

    /// Envoy drains its connections, or shuts down. May run twice. Needs the bootstrap extension of the module in Envoy's
    /// configuration.
    fn drain_started();

    /// A hook panicked. `stream` is set for a hook of a stream.
    fn panicked(config: Option<&Self::Config>, stream: Option<&Self::Stream>);
}
