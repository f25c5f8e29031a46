//! The archive of events, in a folder and in S3, by a real origin that is killed in the middle. `cargo xtask test --all` turns this on;
//! by hand: `cargo test -p weir-origin-tests --features archive --test origin -- origin_archive`.

#[cfg(feature = "archive")]
mod archive;
#[cfg(feature = "archive")]
mod rebuild;
#[cfg(feature = "archive")]
mod support;

/// Stands for them where they are off, so that a run counts what it left out.
#[cfg(not(feature = "archive"))]
#[test]
#[ignore = "the feature archive is off: cargo xtask test --all turns it on"]
fn as_parquet() {}
