//! Streams to the bridge that end in every way, in a real Envoy: whoever waits is answered, the next call has
//! another stream, none is left open, and Envoy lives.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use weir_stack::Stack;
use weir_tests::{buy, until, verdict};

const CATALOGUE: &str = r#"{"sales":[{"id":"ends","starts_at_ms":1,"ends_at_ms":4102444800000,"shards":1,"user_cap":1,"state":"open"}]}"#;

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n";
const LAST_CHUNK: &str = "0\r\n\r\n";

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stays,
    Closed,
    Reset,
}

/// How the bridge answers a claim: a head, if the stream had none yet, these bytes, and an end.
#[derive(Clone, Debug)]
struct Way {
    name: &'static str,
    has_head: bool,
    bytes: String,
    end: End,
}

fn message(body: &str) -> String {
    let length: String = (body.len() as u32)
        .to_be_bytes()
        .map(char::from)
        .iter()
        .collect();
    format!("{:x}\r\n\0{length}{body}\r\n", body.len() + 5)
}

/// Every way but a good one. All bytes are ASCII.
fn ways() -> Vec<Way> {
    let error = message("-ERR x\r\n");
    let refused = message("refused: x") + LAST_CHUNK;
    let failed = message("failed: x") + LAST_CHUNK;
    let mut ways = Vec::new();
    for end in [End::Stays, End::Closed, End::Reset] {
        for (name, has_head, bytes) in [
            ("nothing", false, ""),
            ("a head", true, ""),
            ("an error reply", true, &error),
            ("refused", true, &refused),
            ("failed", true, &failed),
            ("a message and the end", true, &(error.clone() + LAST_CHUNK)),
            ("an empty message", true, &message("")),
            ("flags", true, "6\r\n\x01\0\0\0\x01x\r\n"),
            ("half a message", true, "20\r\n\0\0\0\0\x1b$5"),
            ("no chunk", true, "zz\r\n"),
            ("no HTTP", false, "\0\x01\r\n\r\n"),
            (
                "a 400",
                false,
                "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nx\n",
            ),
            (
                "trailers only",
                false,
                "HTTP/1.1 200 OK\r\ngrpc-status: 14\r\ncontent-length: 0\r\n\r\n",
            ),
        ] {
            ways.push(Way {
                name,
                has_head,
                bytes: bytes.to_owned(),
                end,
            });
        }
    }
    ways
}

/// A bridge that answers polls well, and claims as it is told.
async fn bridge(listener: TcpListener, way: Arc<Mutex<Way>>) -> Result<()> {
    loop {
        let (tcp, _) = listener.accept().await?;
        // A stream that ends badly is what is wanted.
        tokio::spawn(stream(tcp, Arc::clone(&way)));
    }
}

async fn stream(tcp: TcpStream, way: Arc<Mutex<Way>>) -> Result<()> {
    let mut tcp = BufReader::new(tcp);
    while line(&mut tcp).await? != "\r\n" {}
    let mut is_begun = false;
    loop {
        let call = call(&mut tcp).await?;
        let way = match call.contains("EVAL") {
            true => way.lock().unwrap().clone(),
            false => poll_answer(&call),
        };
        let head = if way.has_head && !is_begun { HEAD } else { "" };
        is_begun |= way.has_head;
        let answer = [head, &way.bytes].concat();
        tcp.write_all(answer.as_bytes()).await?;
        match way.end {
            End::Stays => {}
            End::Closed => return Ok(()),
            End::Reset => {
                #[allow(deprecated)] // Without waiting for anything, it does not block.
                return Ok(tcp
                    .into_inner()
                    .set_linger(Some(std::time::Duration::ZERO))?);
            }
        }
    }
}

async fn line(tcp: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    let length = tcp.read_line(&mut line).await?;
    anyhow::ensure!(length > 0, "closed");
    Ok(line)
}

/// A call, which Envoy sends as one chunk.
async fn call(tcp: &mut BufReader<TcpStream>) -> Result<String> {
    let size = usize::from_str_radix(line(tcp).await?.trim_end(), 16)?;
    anyhow::ensure!(size > 0, "ended");
    let mut chunk = vec![0; size + 2];
    tcp.read_exact(&mut chunk).await?;
    Ok(String::from_utf8_lossy(&chunk).into_owned())
}

/// The catalogue, and an epoch for each shard asked for.
fn poll_answer(call: &str) -> Way {
    let epochs = call.matches("\r\nGET\r\n").count().saturating_sub(1);
    let replies =
        format!("${}\r\n{CATALOGUE}\r\n", CATALOGUE.len()) + &"$1\r\n5\r\n".repeat(epochs);
    Way {
        name: "a poll's answer",
        has_head: true,
        bytes: message(&replies),
        end: End::Stays,
    }
}

async fn start(port: u16) -> Result<Stack> {
    Stack::builder()
        .workers(1)
        .key_prefix("ends")
        .edit_config(move |config| {
            let interval = r#""poll_interval_ms": 250"#;
            let breaker = r#""overload": { "redis_breaker": { "min_requests": 1000000 } }"#;
            config
                .replace(interval, &format!("{interval}, {breaker}"), 1)
                .replace(
                    "envoy_internal_address: { server_listener_name: weir_redis }",
                    &format!("socket_address: {{ address: 127.0.0.1, port_value: {port} }}"),
                    1,
                )
        })
        .start()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_may_end_in_any_way() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let ways = ways();
    let way = Arc::new(Mutex::new(ways[0].clone()));
    tokio::spawn(bridge(listener, Arc::clone(&way)));
    let mut stack = start(port).await?;
    let pid = stack.envoy.process().pid().context("Envoy runs")?;
    until("the sale is known", async || {
        buy(&stack, "ends", "nobody")
            .await
            .is_ok_and(|answer| verdict(&answer) != "unknown_sale")
    })
    .await?;
    for (n, next) in ways.into_iter().enumerate() {
        *way.lock().unwrap() = next.clone();
        for try_ in 0..3 {
            let answer = buy(&stack, "ends", &format!("user-{n}-{try_}")).await?;
            assert_eq!(
                (answer.status, verdict(&answer)),
                (503, "unavailable"),
                "{}, then: {:?}",
                next.name,
                next.end
            );
        }
    }
    assert_eq!(stack.envoy.process().pid(), Some(pid));
    assert!(!stack.envoy.process().tail(500).contains("VM failed"));
    // One for the polls, and one that has its last call's error reply.
    until("no stream is left open", async || {
        let open = stack.envoy.stat("cluster.weir_redis.upstream_rq_active");
        open.await.is_ok_and(|open| open <= 2)
    })
    .await?;
    stack.check_children()?;
    Ok(())
}
