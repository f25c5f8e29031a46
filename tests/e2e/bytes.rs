//! Header values that are no text.

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_stack::Stack;
use weir_tests::books;

/// The answer to a request that buys from `sale` with `headers` as they are.
async fn ask(stack: &Stack, sale: &str, headers: &[u8]) -> Result<String> {
    let mut client = TcpStream::connect(stack.gateway_authority()).await?;
    let start = format!(
        "POST /sales/{sale}/orders HTTP/1.1\r\nhost: w\r\nconnection: close\r\ncontent-length: 0\r\n"
    );
    client
        .write_all(&[start.as_bytes(), headers, b"\r\n"].concat())
        .await?;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_byte_that_is_no_text_kills_nothing() -> Result<()> {
    let mut stack = Stack::builder()
        .workers(1)
        .key_prefix("bytes")
        .start()
        .await?;
    stack.open_sale("bytes", 5, 1).await?;
    for headers in [
        b"x-user-id: \xff\r\n".as_slice(),
        b"x-user-id: a\xff\xfeb\r\n",
        b"x-user-id: \xc3\xa9\r\n",
        b"",
    ] {
        let answer = ask(&stack, "bytes", headers).await?;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert!(answer.contains("x-weir-verdict: invalid_user"), "{answer}");
    }
    let noisy = b"x-user-id: alice\r\nx-noise: \xff\xfe\r\ncookie: \x80=\xff\r\n";
    let answer = ask(&stack, "bytes", noisy).await?;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(books(&stack, "bytes").await?.orders, 1);
    assert!(!stack.envoy.process().tail(200).contains("VM failed"));
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_bring_a_claim_or_reach_past_the_gate() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("forge")
        .start()
        .await?;
    stack.open_sale("forge", 5, 1).await?;
    let forged = b"x-user-id: alice\r\nx-weir-claim: v1;forge;0;1;5;9999999999999;mallory\r\nx-weir-claim-signature: k1;00\r\n";
    let answer = ask(&stack, "forge", forged).await?;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(
        answer.contains("alice") && !answer.contains("mallory"),
        "{answer}"
    );
    for path in [
        "orders",
        "forge/orders/",
        "forge/../forge/orders/x",
        "forge%2forders",
    ] {
        let status = raw_status(&stack, &format!("/sales/{path}")).await?;
        assert!(matches!(status.as_str(), "404" | "400"), "{path}: {status}");
    }
    assert_eq!(raw_status(&stack, "/orders").await?, "404");
    assert_eq!(raw_status(&stack, "//orders").await?, "404");
    assert_eq!(books(&stack, "forge").await?.orders, 1);
    Ok(())
}

async fn raw_status(stack: &Stack, path: &str) -> Result<String> {
    let mut client = TcpStream::connect(stack.gateway_authority()).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: w\r\nconnection: close\r\nx-user-id: bob\r\ncontent-length: 0\r\n\r\n"
    );
    client.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(answer.get(9..12).unwrap_or_default()).into_owned())
}

/// The origin must not wait for what a client never sends: its claim would be held for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_any_kind_neither_hinders_an_order_nor_holds_a_unit() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("body")
        .start()
        .await?;
    stack.open_sale("body", 5, 1).await?;
    for (user, announced, sent) in [
        ("alice", 1_000_000, 1_000_000),
        ("bob", 1_000_000, 10),
        ("carol", 10, 10),
    ] {
        let mut client = TcpStream::connect(stack.gateway_authority()).await?;
        let head = format!(
            "POST /sales/body/orders HTTP/1.1\r\nhost: w\r\nx-user-id: {user}\r\ncontent-length: {announced}\r\n\r\n"
        );
        client.write_all(head.as_bytes()).await?;
        // The gateway may answer, and close, before it has read all of it.
        let _ = client.write_all(&vec![b'x'; sent]).await;
        let mut status = [0; 12];
        client.read_exact(&mut status).await?;
        assert_eq!(&status, b"HTTP/1.1 201", "{user}");
    }
    let books = books(&stack, "body").await?;
    assert_eq!((books.orders, books.held, books.stock), (3, 0, 2));
    Ok(())
}
