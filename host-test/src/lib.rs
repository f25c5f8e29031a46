//! placeholder
mod abi;
mod builder;
mod calls;
mod host;
mod http;
mod net;
mod plugin;
mod process;
mod resp;
mod stream;
mod upstream;
mod vm;
mod world;

pub use abi::{Headers, LogLevel, Status};
pub use builder::Builder;
pub use host::Host;
pub use http::{LocalReply, Message, StreamState};
pub use net::{ConnState, Connection};
pub use plugin::{FailurePolicy, StartError};
pub use stream::{RequestBuilder, Stream};
pub use upstream::{Call, CallId, Reply, Upstream};
pub use world::{Cost, LogLine, Thread, Violation};
