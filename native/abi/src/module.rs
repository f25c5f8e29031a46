//! What a module is.

use std::sync::Arc;

use crate::config::ConfigHost;
use crate::connection::Connection;
use crate::filter::{Filter, Response};

/// How much a line in the log matters: the ABI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Level {
    /// For those who look for something.
    Debug = 1,
    /// Something has changed.
    Info = 2,
    /// Something is wrong, and may mend itself.
    Warn = 3,
    /// Something is wrong, and somebody should mend it.
    Error = 4,
}

/// How a request goes on after its head: the ABI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HeadersStatus {
    /// It goes on.
    Continue = 0,
    /// It waits, or was answered; its body comes to this filter.
    StopHead = 1,
    /// It waits, with all that follows its head.
    StopAll = 4,
}

/// How a request goes on after a part of the body: the ABI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BodyStatus {
    /// It goes on.
    Continue = 0,
    /// Envoy keeps it.
    Keep = 1,
}

/// How the bytes of a connection go on: the ABI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ReadStatus {
    /// What was not taken goes to the next filter.
    Continue = 0,
    /// Nothing goes on until more has come.
    Stop = 1,
}

/// The response to an HTTP request of the module's own, during its hook.
#[derive(Clone, Debug)]
pub struct FetchedResponse<'h> {
    /// Its headers, with `:status`.
    pub headers: Vec<(&'h [u8], &'h [u8])>,
    /// Its body.
    pub body: Vec<u8>,
}

/// A module: HTTP filters. Configurations are made on Envoy's main thread; a stream lives on one of its worker threads. Hooks
/// of one stream may run while another of its hooks does, when that answers the request or lets it go: so they get `&self`.
pub trait Module: 'static {
    /// What is made of one filter's configuration. All its streams share it.
    type Config: Send + Sync + 'static;

    /// What is kept for one stream.
    type Stream: 'static;

    /// The answer where a hook of a stream has panicked before the request was answered.
    const ANSWER_TO_PANIC: Response<'static>;

    /// Makes what belongs to one filter's configuration. `None` refuses it; the reason is the module's to log.
    fn configure(host: &ConfigHost<'_>, name: &[u8], config: &[u8]) -> Option<Self::Config>;

    /// The configuration is no longer used. On any of Envoy's threads; what calls Envoy for it must end before this returns.
    fn dropped(config: &Self::Config);

    /// The main thread was called, by a [`ConfigScheduler`](crate::ConfigScheduler).
    fn scheduled(config: &Self::Config, host: &ConfigHost<'_>);

    /// An HTTP request of the module's own has ended, on the main thread.
    fn fetched(config: &Self::Config, id: u64, response: Option<FetchedResponse<'_>>);

    /// A stream begins. `None` ends it.
    fn stream(config: &Arc<Self::Config>) -> Option<Self::Stream>;

    /// The request's head is there.
    fn request_headers(stream: &Self::Stream, filter: Filter<'_>, is_last: bool) -> HeadersStatus;

    /// A part of the request's body is there.
    fn request_body(stream: &Self::Stream, filter: Filter<'_>, is_last: bool) -> BodyStatus;

    /// The request's trailers are there, and so all of it. Whether they go on.
    fn request_trailers(stream: &Self::Stream, filter: Filter<'_>) -> bool;

    /// The head of the response is about to go to the client.
    fn response_headers(stream: &Self::Stream, filter: Filter<'_>);

    /// The stream's thread was called, by a [`StreamScheduler`](crate::StreamScheduler).
    fn called(stream: &Self::Stream, filter: Filter<'_>);

    /// The stream has ended, and can still be asked how.
    fn completed(stream: &Self::Stream, filter: Filter<'_>);

    /// The stream's filter is gone. What calls Envoy for it must end before this returns.
    fn stream_destroyed(stream: &Self::Stream);

    /// What is made of one network filter's configuration. All its connections share it.
    type NetworkConfig: Send + Sync + 'static;

    /// What is kept for one connection. Hooks of what is sent run while another of its hooks does, so they get `&self`.
    type NetworkState: 'static;

    /// Makes what belongs to one network filter's configuration. `None` refuses it; the reason is the module's to log.
    fn configure_network(name: &[u8], config: &[u8]) -> Option<Self::NetworkConfig>;

    /// A connection begins.
    fn connected(
        config: &Arc<Self::NetworkConfig>,
        connection: Connection<'_>,
    ) -> Self::NetworkState;

    /// Bytes have come; `is_last`: no more will.
    fn received(
        state: &Self::NetworkState,
        connection: Connection<'_>,
        is_last: bool,
    ) -> ReadStatus;

    /// Bytes are about to go to the client; they always go.
    fn sent(state: &Self::NetworkState, connection: Connection<'_>);

    /// More waits to be sent to the client than Envoy wants to keep.
    fn congested(state: &Self::NetworkState);

    /// A hook of a connection has panicked.
    fn connection_panicked(state: &Self::NetworkState);

    /// A hook has panicked; `stream` is the stream's, if it was one of a stream.
    fn panicked(config: Option<&Self::Config>, stream: Option<&Self::Stream>);
}
