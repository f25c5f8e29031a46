//! The event archive in a folder and in S3, by a real origin that is killed during writes. `cargo xtask test --all`
//! enables these tests; by hand: `cargo test -p weir-origin-tests --features archive --test origin -- origin_archive`.

#[cfg(feature = "archive")]
mod archive;
#[cfg(feature = "archive")]
mod rebuild;
#[cfg(feature = "archive")]
mod support;

/// Represents the disabled tests, so that a run counts them as ignored.
#[cfg(not(feature = "archive"))]
#[test]
#[ignore = "the feature archive is off: cargo xtask test --all turns it on"]
fn as_parquet() {}
