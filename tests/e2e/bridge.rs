//! The bridge before Envoy's `tcp_proxy` and a real Redis, called like a filter calls it: through a listener of the
//! test that routes to the cluster `weir_redis`.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use weir_base::resp::{Value, decode, encode_command};
use weir_proxy_kit::bridge::REFUSED;
use weir_stack::http::{Connection, Method};
use weir_stack::{Stack, ports};
use weir_tests::is_left_out_on_native;

/// A stack whose bridge is reachable from outside, at the returned authority.
async fn start(prefix: &str) -> Result<(Stack, String)> {
    let port = ports::free()?;
    let listener = format!(
        r#"name: bridge_test
address:
  socket_address: {{ address: 127.0.0.1, port_value: {port} }}
filter_chains:
  - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bridge_test
          http_filters:
            - name: envoy.filters.http.router
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            virtual_hosts:
              - name: bridge
                domains: ["*"]
                routes:
                  - match: {{ prefix: / }}
                    route: {{ cluster: weir_redis, timeout: 10s }}
"#
    );
    let stack = Stack::builder()
        .workers(2)
        .key_prefix(prefix)
        .edit_config(move |config| config.add_listener(&listener))
        .start()
        .await?;
    Ok((stack, format!("127.0.0.1:{port}")))
}

fn commands(commands: &[&[&[u8]]]) -> Vec<u8> {
    let mut body = Vec::new();
    for command in commands {
        encode_command(&mut body, command.iter().copied());
    }
    body
}

/// A gRPC message as a chunk of HTTP/1.1.
pub(crate) fn chunk(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    let message = [&[0], length.as_slice(), body].concat();
    let size = format!("{:x}\r\n", message.len());
    [size.as_bytes(), &message, b"\r\n"].concat()
}

/// A stream to the bridge in the form of Envoy's gRPC client: one chunked POST with a message per call, and one chunked
/// response with a message per answer.
struct Calls {
    tcp: TcpStream,
    /// Received bytes that are not parsed yet.
    received: Vec<u8>,
    /// Decoded chunk data that is not parsed yet.
    data: Vec<u8>,
    has_head: bool,
}

impl Calls {
    async fn open(authority: &str) -> Result<Self> {
        let mut tcp = TcpStream::connect(authority).await?;
        let head =
            "POST /weir.Redis/Call HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n";
        tcp.write_all(head.as_bytes()).await?;
        Ok(Self {
            tcp,
            received: Vec::new(),
            data: Vec::new(),
            has_head: false,
        })
    }

    /// The answer's message.
    async fn call(&mut self, body: &[u8]) -> Result<Vec<u8>> {
        self.tcp.write_all(&chunk(body)).await?;
        loop {
            if let Some(message) = self.message() {
                return Ok(message);
            }
            let read = self.tcp.read_buf(&mut self.received).await?;
            ensure!(read > 0, "the stream was closed");
            while self.read_head()? || self.read_chunk()? {}
        }
    }

    async fn values(&mut self, body: &[u8]) -> Result<Vec<Value>> {
        let message = self.call(body).await?;
        let (mut rest, mut values) = (&message[..], Vec::new());
        while !rest.is_empty() {
            let text = rest.escape_ascii().to_string();
            let (value, used) = decode(rest).map_err(|error| anyhow::anyhow!("{error}: {text}"))?;
            values.push(value);
            rest = &rest[used..];
        }
        Ok(values)
    }

    fn message(&mut self) -> Option<Vec<u8>> {
        let (prefix, rest) = self.data.split_first_chunk::<5>()?;
        let [0, length @ ..] = *prefix else {
            panic!("{prefix:?} begins no message");
        };
        let message = rest.get(..u32::from_be_bytes(length) as usize)?.to_vec();
        self.data.drain(..5 + message.len());
        Some(message)
    }

    fn read_head(&mut self) -> Result<bool> {
        let Some(end) = self
            .received
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
        else {
            return Ok(false);
        };
        if std::mem::replace(&mut self.has_head, true) {
            return Ok(false);
        }
        let head = String::from_utf8(self.received.drain(..end + 4).collect())?;
        ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Ok(true)
    }

    fn read_chunk(&mut self) -> Result<bool> {
        if !self.has_head {
            return Ok(false);
        }
        let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") else {
            return Ok(false);
        };
        let size = usize::from_str_radix(std::str::from_utf8(&self.received[..end])?, 16)?;
        let begin = end + 2;
        let whole = begin + size + 2;
        if self.received.len() < whole {
            return Ok(false);
        }
        self.data
            .extend_from_slice(&self.received[begin..begin + size]);
        self.received.drain(..whole);
        Ok(size > 0)
    }
}

fn bulk(bytes: &[u8]) -> Value {
    Value::Bulk(bytes.to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_every_kind_and_size_arrive_whole_and_in_order() -> Result<()> {
    if is_left_out_on_native("the bridge to Redis") {
        return Ok(());
    }
    let (_stack, authority) = start("kinds").await?;
    let mut calls = Calls::open(&authority).await?;
    let large = vec![0xff; 1_000_000];
    let body = commands(&[
        &[b"SET", b"kinds:small", b"a\r\nb"],
        &[b"GET", b"kinds:small"],
        &[b"GET", b"kinds:none"],
        &[b"INCR", b"kinds:small"],
        &[
            b"EVAL",
            b"return {1, {KEYS[1], {}}, false}",
            b"1",
            b"kinds:x",
        ],
        &[b"SET", b"kinds:large", &large],
    ]);
    let values_of = calls.values(&body).await?;
    assert_eq!(values_of.len(), 6);
    assert_eq!(
        values_of[..3],
        [Value::Simple(b"OK".to_vec()), bulk(b"a\r\nb"), Value::Null]
    );
    assert!(
        matches!(&values_of[3], Value::Error(error) if error.starts_with(b"ERR value is not an integer"))
    );
    let nested = Value::Array(vec![bulk(b"kinds:x"), Value::Array(vec![])]);
    assert_eq!(
        values_of[4],
        Value::Array(vec![Value::Integer(1), nested, Value::Null])
    );

    // Ten replies of a megabyte in one call, over the same connection.
    let body = commands(&[[b"GET".as_slice(), b"kinds:large"].as_slice(); 10]);
    let values_of = calls.values(&body).await?;
    assert!(values_of.len() == 10 && values_of.iter().all(|value| *value == bulk(&large)));

    // The maximum number of commands per call.
    let body = commands(&vec![[b"GET".as_slice(), b"kinds:small"].as_slice(); 4_096]);
    let values_of = calls.values(&body).await?;
    assert!(values_of.len() == 4_096 && values_of.iter().all(|value| *value == bulk(b"a\r\nb")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_call_is_refused_and_the_next_call_succeeds() -> Result<()> {
    if is_left_out_on_native("the bridge to Redis") {
        return Ok(());
    }
    let (_stack, authority) = start("refuse").await?;
    let set = commands(&[&[b"SET", b"refuse:x", b"1"]]);
    let many = commands(&vec![[b"GET".as_slice(), b"k"].as_slice(); 4_097]);
    let good_then_bad = [set.as_slice(), b"*1\r\n:1\r\n"].concat();
    let long = commands(&[&[b"SET", b"refuse:x", &vec![b'x'; 1_048_576]]]);
    let get = commands(&[&[b"GET", b"refuse:x"]]);
    for (body, reason) in [
        (b"".to_vec(), "whole command"),
        (b"nonsense".to_vec(), "not RESP"),
        (set[..set.len() - 1].to_vec(), "whole command"),
        (good_then_bad, "not RESP"),
        (many, "more commands"),
        (long, "longer"),
    ] {
        let mut calls = Calls::open(&authority).await?;
        let answer = String::from_utf8(calls.call(&body).await?)?;
        assert!(
            answer.starts_with(REFUSED) && answer.contains(reason),
            "{answer}"
        );
        assert!(calls.call(&get).await.is_err(), "the stream has ended");
        let mut next = Calls::open(&authority).await?;
        let nothing = next.values(&get).await?;
        assert_eq!(nothing, [Value::Null], "nothing of it has run");
    }
    let mut connection = Connection::open(&authority).await?;
    let response = connection.send(Method::GET, "/", &[], "").await?;
    assert_eq!(response.status, 400);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_receives_the_reply_of_another() -> Result<()> {
    if is_left_out_on_native("the bridge to Redis") {
        return Ok(());
    }
    let (_stack, authority) = start("mix").await?;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..32 {
        let authority = authority.clone();
        callers.spawn(async move {
            let mut calls = Calls::open(&authority).await?;
            for turn in 0..100 {
                let word = format!("{caller}-{turn}");
                let echo: &[&[u8]] = &[b"EVAL", b"return ARGV[1]", b"1", b"k", word.as_bytes()];
                // Every seventh call must be refused.
                if turn % 7 == 0 {
                    let refused = calls.call(b"nonsense").await?;
                    assert!(refused.starts_with(REFUSED.as_bytes()));
                    calls = Calls::open(&authority).await?;
                }
                let body = commands(&vec![echo; 1 + turn % 5]);
                let replies = calls.values(&body).await?;
                assert_eq!(replies, vec![bulk(word.as_bytes()); 1 + turn % 5]);
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_redis_ends_the_stream_without_a_hang() -> Result<()> {
    if is_left_out_on_native("the bridge to Redis") {
        return Ok(());
    }
    let (mut stack, authority) = start("down").await?;
    let mut calls = Calls::open(&authority).await?;
    let get = commands(&[&[b"GET", b"down:x"], &[b"GET", b"down:y"]]);
    assert_eq!(calls.values(&get).await?, [Value::Null, Value::Null]);
    if let Some(redis) = stack.redis.server.as_mut() {
        redis.stop();
    }
    for _ in 0..5 {
        let answer = timeout(Duration::from_secs(2), calls.values(&get)).await;
        assert!(answer.expect("no hang").is_err(), "it was down");
        calls = Calls::open(&authority).await?;
    }
    if let Some(redis) = stack.redis.server.as_mut() {
        redis.start_again().await?;
    }
    weir_tests::until("Redis is reached again", async || {
        let Ok(mut calls) = Calls::open(&authority).await else {
            return false;
        };
        let answer = calls.values(&get).await;
        answer.is_ok_and(|answer| answer == [Value::Null, Value::Null])
    })
    .await
}
