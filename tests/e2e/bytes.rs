//! Header values that are not text.

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_stack::Stack;
use weir_tests::{stock_balance, until};

/// The raw answer to a request that buys from `sale` with unmodified `headers`.
async fn ask(stack: &Stack, sale: &str, headers: &[u8]) -> Result<String> {
    ask_path(stack, &format!("/sales/{sale}/orders"), headers).await
}

async fn ask_path(stack: &Stack, path: &str, headers: &[u8]) -> Result<String> {
    let mut client = TcpStream::connect(stack.gateway_authority()).await?;
    let start =
        format!("POST {path} HTTP/1.1\r\nhost: w\r\nconnection: close\r\ncontent-length: 0\r\n");
    client
        .write_all(&[start.as_bytes(), headers, b"\r\n"].concat())
        .await?;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn non_text_byte_crashes_nothing() -> Result<()> {
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
        b"x-user-id: alice\r\nx-user-id: bob\r\n",
        b"",
    ] {
        let answer = ask(&stack, "bytes", headers).await?;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert!(answer.contains("x-weir-verdict: invalid_user"), "{answer}");
    }
    let noisy = b"x-user-id: alice\r\nx-noise: \xff\xfe\r\ncookie: \x80=\xff\r\n";
    let answer = ask(&stack, "bytes", noisy).await?;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(stock_balance(&stack, "bytes").await?.orders, 1);
    assert!(!stack.envoy.process().tail(200).contains("VM failed"));
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn client_cannot_forge_a_claim_or_bypass_the_gate() -> Result<()> {
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
    assert_eq!(stock_balance(&stack, "forge").await?.orders, 1);
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

/// `count` headers, including the user header of `user`.
fn headers_of(user: &str, count: usize) -> Vec<u8> {
    let more = (1..count).map(|n| format!("x-noise-{n}: {n}\r\n"));
    let first = format!("x-user-id: {user}\r\n");
    std::iter::once(first)
        .chain(more)
        .collect::<String>()
        .into_bytes()
}

/// C1: the origin accepts every request that the gateway passes. Otherwise a claim would hold a unit without an order.
#[tokio::test(flavor = "multi_thread")]
async fn origin_accepts_every_request_that_the_gateway_passes() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("readable")
        .start()
        .await?;
    stack.open_sale("readable", 20, 1).await?;
    let mut orders = 0;
    for query in ["", "?", "?q=\"", "?q=<b>", "?a=%zz&b={}|\\^`", "?q=\x7f"] {
        // Envoy adds about ten headers, and the gate three.
        for count in [1, 90, 96] {
            let path = format!("/sales/readable/orders{query}");
            let user = format!("user-{orders}");
            let answer = ask_path(&stack, &path, &headers_of(&user, count)).await?;
            // Envoy may refuse a path before the gate receives it.
            let refused = answer.starts_with("HTTP/1.1 400") && !answer.contains("x-weir-verdict");
            let is_ordered = answer.starts_with("HTTP/1.1 201");
            assert!(
                is_ordered || refused,
                "{query:?}, {count} headers: {answer}"
            );
            orders += u64::from(is_ordered);
        }
    }
    assert!(orders >= 12, "{orders}");
    let stock_balance = stock_balance(&stack, "readable").await?;
    assert_eq!((stock_balance.orders, stock_balance.held), (orders, 0));
    Ok(())
}

/// C1: a gateway that passes requests too large for the origin. Their units are for sale again immediately, not when
/// claims end after half a minute.
#[tokio::test(flavor = "multi_thread")]
async fn unit_of_an_order_refused_unread_is_for_sale_again_at_once() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("unread")
        .edit_config(|config| config.headers_max(400))
        .start()
        .await?;
    stack.open_sale("unread", 4, 2).await?;
    let mut unread = 0;
    for n in 0..40 {
        let answer = ask(&stack, "unread", &headers_of(&format!("hoarder-{n}"), 300)).await?;
        unread += usize::from(answer.starts_with("HTTP/1.1 431"));
        assert!(!answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    assert!(unread > 4, "more than there are units: {unread}");
    for n in 0..4 {
        let user = format!("honest-{n}");
        until("an honest buyer is served", async || {
            let answer = ask(&stack, "unread", &headers_of(&user, 1)).await;
            answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 20"))
        })
        .await?;
    }
    let stock_balance = stock_balance(&stack, "unread").await?;
    assert_eq!(
        (
            stock_balance.orders,
            stock_balance.held,
            stock_balance.stock
        ),
        (4, 0, 0)
    );
    Ok(())
}

/// The origin must not wait for bytes that a client never sends, because the claim would hold a unit meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn no_body_blocks_an_order_or_reserves_a_unit() -> Result<()> {
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
        // The gateway may answer and close the connection before it has read everything.
        let _ = client.write_all(&vec![b'x'; sent]).await;
        let mut status = [0; 12];
        client.read_exact(&mut status).await?;
        assert_eq!(&status, b"HTTP/1.1 201", "{user}");
    }
    let stock_balance = stock_balance(&stack, "body").await?;
    assert_eq!(
        (
            stock_balance.orders,
            stock_balance.held,
            stock_balance.stock
        ),
        (3, 0, 2)
    );
    Ok(())
}
