//! Users are identified by tokens alone, as `gateway.jwt` promises.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::Full;
use hyper::Request;
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_dist::chart;
use weir_stack::http::{self, Connection, Method, Response};
use weir_stack::{ports, wasm, workspace};

use super::gateway::Gateway;
use super::{KUBERNETES, Manifests};

const SECRET: &[u8] = b"a secret of the identity provider";
const MALLORY: (&str, &str) = ("x-user-id", "mallory");

#[tokio::test(flavor = "multi_thread")]
async fn gateway_takes_users_from_valid_tokens_only() -> Result<()> {
    let Some(charts) = super::tools("1 test of the chart's authentication") else {
        return Ok(());
    };
    let temp = tempfile::tempdir()?;
    let folder = chart::only(&temp.path().join("dist"))?;
    wasm::ensure_filters()?;
    let service = echo().await?;
    let manifests = charts.render(&folder, KUBERNETES, &values(service.port()))?;
    let manifests = Manifests::parse(&manifests)?;
    let (filters, dir) = (workspace::out_dir(), temp.path().join("gateway"));
    // There is no Redis, and the service is also the origin: it shows what reaches them.
    let gateway = Gateway::start(&manifests, &filters, &dir, ports::free()?, &[service]).await?;
    let valid = format!("Bearer {}", token("alice", 600)?);
    let expired = format!("Bearer {}", token("alice", -600)?);
    let cookie = format!("session={}", token("alice", 600)?);
    let (valid, expired) = (("authorization", &*valid), ("authorization", &*expired));

    // Public paths: without a valid token there is no user.
    for headers in [&[][..], &[expired]] {
        let answer = ask(&gateway, Method::GET, "/plain/a", headers).await?;
        assert_eq!(user(&answer)?, None);
    }
    for headers in [valid, ("cookie", &*cookie)] {
        let answer = ask(&gateway, Method::GET, "/plain/a", &[headers]).await?;
        assert_eq!(user(&answer)?.as_deref(), Some("alice"));
    }
    // Only with a token.
    for path in ["/members/a", "/orders/1", "/history", "/fitment/garage"] {
        for headers in [&[][..], &[expired]] {
            let answer = ask(&gateway, Method::GET, path, headers).await?;
            assert_eq!(answer.status, 401, "{path}");
        }
    }
    let answer = ask(&gateway, Method::GET, "/members/a", &[valid]).await?;
    assert_eq!(user(&answer)?.as_deref(), Some("alice"));
    for path in ["/sales/s/orders", "/sales/s/checkout", "//sales/s/orders"] {
        let answer = ask(&gateway, Method::POST, path, &[]).await?;
        assert_eq!(answer.status, 401, "{path}");
    }
    // A link's host has no users.
    let request = Request::builder().uri("/orders/1");
    let request = request
        .header("host", "link.localhost")
        .header(MALLORY.0, MALLORY.1);
    let mut connection = Connection::open(&gateway.address).await?;
    let link = connection
        .send_request(request.body(Full::default())?)
        .await?;
    assert_ne!(link.status, 401);
    assert!(!link.text().contains(MALLORY.1), "{link:?}");
    Ok(())
}

/// Asks as mallory, with these further headers.
async fn ask(
    gateway: &Gateway,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Response> {
    let url = format!("http://{}{path}", gateway.address);
    http::send(method, &url, &[&[MALLORY][..], headers].concat(), "").await
}

fn values(port: u16) -> String {
    let key =
        json!({ "kty": "oct", "alg": "HS256", "kid": "k", "k": URL_SAFE_NO_PAD.encode(SECRET) });
    let values = json!({ "gateway": {
        "jwt": {
            "issuer": "https://users.example",
            "audiences": ["weir"],
            "jwks": json!({ "keys": [key] }).to_string(),
            "cookie": "session",
        },
        "routes": [
            { "prefix": "/plain/", "host": "127.0.0.1", "port": port },
            { "prefix": "/members/", "host": "127.0.0.1", "port": port, "authenticated": true },
        ],
        "drainSeconds": 1,
    } });
    values.to_string()
}

/// A token of `user` that expires after this time.
fn token(user: &str, seconds: i64) -> Result<String> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = part(json!({ "alg": "HS256", "typ": "JWT", "kid": "k" }));
    let claims = part(json!({
        "iss": "https://users.example", "aud": "weir", "sub": user, "exp": now + seconds,
    }));
    let text = format!("{head}.{claims}");
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), text.as_bytes());
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// The user that the service was told.
fn user(answer: &Response) -> Result<Option<String>> {
    ensure!(answer.status == 200, "{answer:?}");
    let text = answer.text();
    let mut lines = text.lines();
    let user = lines.find_map(|line| line.strip_prefix("x-user-id: "));
    Ok(user.map(str::to_owned))
}

/// Starts a service that answers with the head of each request.
async fn echo() -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.context("no head")?;
        head.extend(byte);
    }
    let length = head.len();
    let start = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(start.as_bytes()).await?;
    stream.write_all(&head).await?;
    Ok(())
}
