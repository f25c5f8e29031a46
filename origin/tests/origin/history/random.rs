//! Random histories on the real parts, against a model.

#[tokio::test]
async fn placeholder() {}
