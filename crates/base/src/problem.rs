//! Refusals as problem details ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)). Gateways and the origin use the
//! same form.
//!
//! A problem has the RFC's members `type` and `status`, and two of Weir's own: `error`, the last word of `type`, and
//! `message`, a sentence for people. Gateways omit `detail`, which would repeat `message`: at a flash sale, almost
//! every answer is a refusal.

/// The media type of problems.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// The prefix of every `type` of Weir; the code from `error` follows.
pub const TYPE_PREFIX: &str = "urn:weir:problem:";
