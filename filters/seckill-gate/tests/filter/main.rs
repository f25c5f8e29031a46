//! The built filter in a Proxy-Wasm host.

mod failures;
mod gate;
mod identify;
mod limits;
mod overload;
mod redis;
mod status;
mod streams;
mod support;
mod switches;
mod tokens;
