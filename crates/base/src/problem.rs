//! Refusals as problem details ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)): what gateways' own answers and the
//! origin's have in common, so that a client reads one form whoever answers.
//!
//! A problem has the members `type` and `status` of the RFC, and two of Weir's own: `error`, the last word of `type`, and
//! `message`, a sentence for people. Gateways leave out `detail`, which would say the same once more: at a flash sale, almost
//! every answer is a refusal.

/// The media type of problems.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// The beginning of every `type` of Weir's own; what follows is the code that is in `error`.
pub const TYPE_PREFIX: &str = "urn:weir:problem:";
