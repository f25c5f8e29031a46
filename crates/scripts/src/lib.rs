//! (placeholder until its first commit)
