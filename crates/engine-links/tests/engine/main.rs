//! The engine, driven by its events alone: neither Envoy nor wasm is needed. Redis and the origin are models.

mod clicks;
mod edits;
mod host;
mod origin;
mod properties;
mod redirects;
mod redis;
