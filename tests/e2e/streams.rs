//! Streams to the bridge that end in every possible way, in a real Envoy: all waiting requests are answered, the next
//! call succeeds, no stream stays open, and Envoy survives.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use weir_stack::Stack;
use weir_stack::envoy::{GATE, set, socket_address};
use weir_tests::{buy, is_left_out_on_native, until, verdict};

use crate::bridge::chunk;

const CATALOGUE: &str = r#"{"sales":[{"id":"ends","starts_at_ms":1,"ends_at_ms":4102444800000,"shards":1,"user_cap":1,"state":"open"}]}"#;

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n";
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nx\n";
const TRAILERS_ONLY: &[u8] = b"HTTP/1.1 200 OK\r\ngrpc-status: 14\r\ncontent-length: 0\r\n\r\n";

/// What happens to a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stays,
    Closed,
    Reset,
}

/// The bridge's answer to a claim: response headers if the stream had none yet, these bytes, and an end.
#[derive(Clone, Debug)]
struct BridgeAnswer {
    name: &'static str,
    has_head: bool,
    bytes: Vec<u8>,
    end: End,
}

/// A valid answer of the script for a user who may not buy, which needs no origin.
fn good() -> BridgeAnswer {
    BridgeAnswer {
        name: "a good answer",
        has_head: true,
        bytes: chunk(b"$1\r\n6\r\n"),
        end: End::Stays,
    }
}

/// All invalid answers.
fn bad_ways() -> Vec<BridgeAnswer> {
    let error = chunk(b"-ERR x\r\n");
    let last = |body: &[u8]| [chunk(body), LAST_CHUNK.to_vec()].concat();
    let mut ways = Vec::new();
    for end in [End::Stays, End::Closed, End::Reset] {
        for (name, has_head, bytes) in [
            ("nothing", false, vec![]),
            ("a head", true, vec![]),
            ("an error reply", true, error.clone()),
            ("refused", true, last(b"refused: x")),
            ("failed", true, last(b"failed: x")),
            ("a message and the end", true, last(b"-ERR x\r\n")),
            ("an empty message", true, chunk(b"")),
            ("flags", true, b"6\r\n\x01\0\0\0\x01x\r\n".to_vec()),
            ("half a message", true, b"20\r\n\0\0\0\0\x1b$5".to_vec()),
            ("no chunk", true, b"zz\r\n".to_vec()),
            ("no HTTP", false, b"\0\x01\r\n\r\n".to_vec()),
            ("a 400", false, BAD_REQUEST.to_vec()),
            ("trailers only", false, TRAILERS_ONLY.to_vec()),
        ] {
            ways.push(BridgeAnswer {
                name,
                has_head,
                bytes,
                end,
            });
        }
    }
    ways
}

/// A bridge that answers polls correctly, and claims as instructed.
async fn bridge(listener: TcpListener, route: Arc<Mutex<BridgeAnswer>>) -> Result<()> {
    loop {
        let (tcp, _) = listener.accept().await?;
        // Streams that end with an error are intended.
        tokio::spawn(stream(tcp, Arc::clone(&route)));
    }
}

async fn stream(tcp: TcpStream, route: Arc<Mutex<BridgeAnswer>>) -> Result<()> {
    let mut tcp = BufReader::new(tcp);
    while line(&mut tcp).await? != "\r\n" {}
    let mut is_begun = false;
    loop {
        let call = call(&mut tcp).await?;
        let route = match call.contains("EVAL") {
            true => route.lock().unwrap().clone(),
            false => poll_answer(&call),
        };
        let head = if route.has_head && !is_begun {
            HEAD
        } else {
            ""
        };
        is_begun |= route.has_head;
        tcp.write_all(&[head.as_bytes(), &route.bytes].concat())
            .await?;
        match route.end {
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

/// Reads a call, which Envoy sends as one chunk.
async fn call(tcp: &mut BufReader<TcpStream>) -> Result<String> {
    let size = usize::from_str_radix(line(tcp).await?.trim_end(), 16)?;
    anyhow::ensure!(size > 0, "ended");
    let mut chunk = vec![0; size + 2];
    tcp.read_exact(&mut chunk).await?;
    Ok(String::from_utf8_lossy(&chunk).into_owned())
}

/// The catalogue, and an epoch for each requested shard.
fn poll_answer(call: &str) -> BridgeAnswer {
    let epochs = call.matches("\r\nGET\r\n").count().saturating_sub(1);
    let replies =
        format!("${}\r\n{CATALOGUE}\r\n", CATALOGUE.len()) + &"$1\r\n5\r\n".repeat(epochs);
    BridgeAnswer {
        name: "a poll's answer",
        has_head: true,
        bytes: chunk(replies.as_bytes()),
        end: End::Stays,
    }
}

async fn start(port: u16) -> Result<Stack> {
    Stack::builder()
        .workers(1)
        .key_prefix("ends")
        .edit_config(move |config| {
            let address = ([127, 0, 0, 1], port).into();
            config
                .edit_filter(GATE, |json| {
                    json["overload"] = json!({ "redis_breaker": { "min_requests": 1_000_000 } });
                    Ok(())
                })?
                .edit_cluster("weir_redis", |cluster| {
                    let endpoint = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address";
                    set(cluster, endpoint, socket_address(address))
                })
        })
        .start()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_survives_every_end_of_a_bridge_stream() -> Result<()> {
    if is_left_out_on_native("streams to the bridge") {
        return Ok(());
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let route = Arc::new(Mutex::new(good()));
    tokio::spawn(bridge(listener, Arc::clone(&route)));
    let mut stack = start(port).await?;
    let pid = stack.envoy.process().pid().context("Envoy runs")?;
    until("claims are answered", async || {
        let answer = buy(&stack, "ends", "nobody").await;
        answer.is_ok_and(|answer| verdict(&answer) == "blocked")
    })
    .await?;
    for (n, bad) in bad_ways().into_iter().enumerate() {
        let how = format!("{}, then: {:?}", bad.name, bad.end);
        *route.lock().unwrap() = bad;
        for user in 0..3 {
            let answer = buy(&stack, "ends", &format!("user-{n}-{user}")).await?;
            let observed = (answer.status, verdict(&answer));
            assert_eq!(observed, (503, "unavailable"), "{how}");
        }
        *route.lock().unwrap() = good();
        // One more call may still fail with the last stream.
        let mut last = buy(&stack, "ends", "patient").await?;
        if verdict(&last) == "unavailable" {
            last = buy(&stack, "ends", "patient").await?;
        }
        assert_eq!(verdict(&last), "blocked", "after {how}");
    }
    assert_eq!(stack.envoy.process().pid(), Some(pid));
    assert!(!stack.envoy.process().tail(500).contains("VM failed"));
    // One stream for polls, and one for claims.
    until("no stream is left open", async || {
        let open = stack.envoy.stat("cluster.weir_redis.upstream_rq_active");
        open.await.is_ok_and(|open| open <= 2)
    })
    .await?;
    stack.check_children()?;
    Ok(())
}
