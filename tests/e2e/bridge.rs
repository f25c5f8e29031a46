//! The bridge before Envoy's own `redis_proxy` and a real Redis, called as a filter would call it:
//! through a listener of the test's own that routes to the cluster `weir_redis`.

use anyhow::Result;
use weir_resp::{Value, decode, encode_command};
use weir_stack::http::{Connection, Method, Response};
use weir_stack::{Stack, ports};

/// A stack whose bridge can be reached from outside, at the authority that is returned.
async fn start(prefix: &str) -> Result<(Stack, String)> {
    let port = ports::free()?;
    let listener = format!(
        r#"  listeners:
    - name: bridge_test
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
        .edit_config(move |config| config.replace("  listeners:\n", &listener, 1))
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

fn values(response: &Response) -> Vec<Value> {
    assert_eq!(response.status, 200, "{}", response.text());
    let (mut body, mut values) = (&response.body[..], Vec::new());
    while !body.is_empty() {
        let (value, used) = decode(body).unwrap();
        values.push(value);
        body = &body[used..];
    }
    values
}

fn bulk(bytes: &[u8]) -> Value {
    Value::Bulk(bytes.to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_every_kind_and_size_come_back_whole_and_in_order() -> Result<()> {
    let (_stack, authority) = start("kinds").await?;
    let mut connection = Connection::open(&authority).await?;
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
    let values_of = values(&connection.send(Method::POST, "/", &[], body).await?);
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
    let values_of = values(&connection.send(Method::POST, "/", &[], body).await?);
    assert!(values_of.len() == 10 && values_of.iter().all(|value| *value == bulk(&large)));

    // As many commands as a call may hold.
    let body = commands(&vec![[b"GET".as_slice(), b"kinds:small"].as_slice(); 4_096]);
    let values_of = values(&connection.send(Method::POST, "/", &[], body).await?);
    assert!(values_of.len() == 4_096 && values_of.iter().all(|value| *value == bulk(b"a\r\nb")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_call_is_refused_and_the_next_call_is_not_touched() -> Result<()> {
    let (_stack, authority) = start("refuse").await?;
    let mut connection = Connection::open(&authority).await?;
    let set = commands(&[&[b"SET", b"refuse:x", b"1"]]);
    let many = commands(&vec![[b"GET".as_slice(), b"k"].as_slice(); 4_097]);
    let good_then_bad = [set.as_slice(), b"*1\r\n:1\r\n"].concat();
    let long = commands(&[&[b"SET", b"refuse:x", &vec![b'x'; 1_048_576]]]);
    let get = commands(&[&[b"GET", b"refuse:x"]]);
    for (body, status) in [
        (b"".to_vec(), 400),
        (b"nonsense".to_vec(), 400),
        (set[..set.len() - 1].to_vec(), 400),
        (good_then_bad, 400),
        (many, 413),
        (long, 413),
    ] {
        let response = connection.send(Method::POST, "/", &[], body).await?;
        assert_eq!(response.status, status, "{}", response.text());
        let next = connection.send(Method::POST, "/", &[], get.clone()).await?;
        assert_eq!(values(&next), [Value::Null], "nothing of it has run");
    }
    let response = connection.send(Method::GET, "/", &[], "").await?;
    assert_eq!(response.status, 400);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_ever_gets_anothers_reply() -> Result<()> {
    let (_stack, authority) = start("mix").await?;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..32 {
        let authority = authority.clone();
        callers.spawn(async move {
            let mut connection = Connection::open(&authority).await?;
            for turn in 0..100 {
                let word = format!("{caller}-{turn}");
                let echo: &[&[u8]] = &[b"EVAL", b"return ARGV[1]", b"1", b"k", word.as_bytes()];
                // Every seventh call is one that must be refused.
                if turn % 7 == 0 {
                    let refused = connection.send(Method::POST, "/", &[], "nonsense").await?;
                    assert_eq!(refused.status, 400);
                }
                let body = commands(&vec![echo; 1 + turn % 5]);
                let replies = values(&connection.send(Method::POST, "/", &[], body).await?);
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
async fn a_redis_that_is_down_is_an_error_reply_and_not_a_hang() -> Result<()> {
    let (mut stack, authority) = start("down").await?;
    let mut connection = Connection::open(&authority).await?;
    let get = commands(&[&[b"GET", b"down:x"], &[b"GET", b"down:y"]]);
    if let Some(redis) = stack.redis.as_mut() {
        redis.stop();
    }
    for _ in 0..5 {
        let replies = values(&connection.send(Method::POST, "/", &[], get.clone()).await?);
        assert!(
            matches!(&replies[..], [Value::Error(_), Value::Error(_)]),
            "{replies:?}"
        );
    }
    if let Some(redis) = stack.redis.as_mut() {
        redis.start_again().await?;
    }
    weir_tests::until("Redis is reached again", async || {
        let Ok(mut connection) = Connection::open(&authority).await else {
            return false;
        };
        let answer = connection.send(Method::POST, "/", &[], get.clone()).await;
        answer.is_ok_and(|answer| values(&answer) == [Value::Null, Value::Null])
    })
    .await
}
