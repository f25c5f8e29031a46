//! (placeholder until its first commit)
fn main() {}
