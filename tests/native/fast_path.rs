//! `weir.fast_path` in a real Envoy: for any bytes, split in any way, a listener with it answers like one without it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::http::{self, Method};
use weir_stack::native::Host;
use weir_stack::report::SilentReporter;
use weir_stack::{DataDir, Stack, ports, tools};
use weir_tests::{buy, until, verdict};

/// The silence after which all answers have arrived.
const QUIET: Duration = Duration::from_millis(1_500);

/// How often two gateways may answer differently before the test fails.
const TRIES: usize = 4;

/// A sale that starts in the year 2100.
const LATER_MS: u64 = 4_102_444_800_000;

/// The duration of a drain, in seconds.
const DRAIN_S: u32 = 2;

const PASSED: &str = "wasmcustom.weir_native_fast_path_requests_total.outcome.passed";
const ANSWERED: &str = "wasmcustom.weir_native_fast_path_requests_total.outcome.answered";

/// Two gateways with the same Redis and origin.
struct Pair {
    stack: Stack,
    /// The gateway with the fast path.
    with: Envoy,
    /// The same without the fast path.
    without: Envoy,
    _dirs: [DataDir; 2],
}

impl Pair {
    /// Sales behind the shipped `envoy/native.yaml`.
    async fn start(key_prefix: &str) -> Result<Self> {
        let pair = Self::of(key_prefix, sales).await?;
        pair.open_sales().await?;
        Ok(pair)
    }

    /// Two gateways with this configuration of native filters.
    async fn of(key_prefix: &str, config: impl Fn(&Stack) -> Result<EnvoyConfig>) -> Result<Self> {
        // Other tests of this process make the same choice; the first one wins.
        Host::Native.choose();
        let stack = Stack::builder()
            .host(Host::Native)
            .workers(1)
            .key_prefix(key_prefix);
        let stack = stack.start().await?;
        let dirs = [DataDir::open(None)?, DataDir::open(None)?];
        let with = start(&stack, &dirs[0], config(&stack)?).await?;
        let without = config(&stack)?.without_fast_path()?;
        let without = start(&stack, &dirs[1], without).await?;
        Ok(Self {
            stack,
            with,
            without,
            _dirs: dirs,
        })
    }

    /// `gone` is sold out, `later` has not started.
    async fn open_sales(&self) -> Result<()> {
        self.stack.open_sale("gone", 1, 1).await?;
        let later = json!({ "starts_at_ms": LATER_MS, "ends_at_ms": LATER_MS + 1_000 });
        self.stack.open_sale_with("later", 5, 1, later).await?;
        ensure!(verdict(&buy(&self.stack, "gone", "first").await?) == "granted");
        for gateway in [&self.with, &self.without] {
            for (sale, status, is_known) in
                [("gone", 409, "sold_out"), ("later", 403, "not_started")]
            {
                let request = order(sale, "u1", "");
                until("the gateway knows the sale", async || {
                    let answers = answers(gateway, &[request.clone().into_bytes()]).await;
                    let is_it =
                        |answer: &Answer| answer.status == status && answer.body.contains(is_known);
                    answers.is_ok_and(|(answers, _)| answers.iter().all(is_it))
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Checks that both gateways answer these pieces alike, and agree on closing the connection. Either may have to
    /// query Redis for returned units, and then answers later, after more of the body. So only repeated differences
    /// fail.
    async fn compare(&self, pieces: &[Vec<u8>]) -> Result<()> {
        let mut last = None;
        for _ in 0..TRIES {
            let (with, without) =
                tokio::try_join!(answers(&self.with, pieces), answers(&self.without, pieces))?;
            if with == without {
                return Ok(());
            }
            last = Some((with, without));
            tokio::time::sleep(QUIET).await;
        }
        let displayed: Vec<_> = pieces
            .iter()
            .map(|it| String::from_utf8_lossy(it))
            .collect();
        anyhow::bail!("{displayed:?}: with it and without: {last:#?}");
    }
}

/// Compares several cases concurrently.
async fn compare_all(pair: &Arc<Pair>, cases: &[Vec<Vec<u8>>]) -> Result<()> {
    for cases in cases.chunks(40) {
        let mut compared = JoinSet::new();
        for pieces in cases {
            let (pair, pieces) = (Arc::clone(pair), pieces.clone());
            compared.spawn(async move { pair.compare(&pieces).await });
        }
        while let Some(same) = compared.join_next().await {
            same??;
        }
    }
    Ok(())
}

fn redis_port(stack: &Stack) -> Result<u16> {
    let server = stack.redis.server.as_ref().context("its own Redis")?;
    Ok(server.port())
}

fn sales(stack: &Stack) -> Result<EnvoyConfig> {
    let origin = stack.origin_url();
    EnvoyConfig::native(&Host::Native.library()?, redis_port(stack)?)?
        .origin(origin.trim_start_matches("http://").parse()?)?
        .edit_native("weir.seckill_gate", |json| {
            json["redis"]["key_prefix"] = stack.key_prefix.clone().into();
            // Without rate limits, which are not compared.
            json.as_object_mut().context("no object")?.remove("limits");
            Ok(())
        })
}

/// A queue that does not move, and a closed room.
fn rooms(stack: &Stack) -> Result<EnvoyConfig> {
    let config = json!({
        "redis": { "key_prefix": stack.key_prefix, "deadline_ms": 3_000 },
        "keys": [{ "secret": { "env": ROOM_SECRET.0 } }],
        "rooms": [
            { "name": "shop", "match": { "path": { "prefix": "/shop" } }, "mode": "paused" },
            { "name": "shut", "match": { "path": { "prefix": "/shut" } }, "mode": "closed" },
        ],
    });
    native(
        EnvoyConfig::waiting_room()?
            .redis("127.0.0.1", redis_port(stack)?)?
            .room_config(&config.to_string())?,
    )
}

/// One request a day and user, and a user who is denied.
fn limits(_: &Stack) -> Result<EnvoyConfig> {
    let config = json!({
        "user_header": "x-user-id",
        "rules": [{
            "name": "daily",
            "match": { "path": { "prefix": "/limited" } },
            "key": ["user"],
            "algorithm": "fixed_window",
            "limit": { "rate": 1, "per": "1d" },
            "deny": [["eve"]],
        }],
    });
    native(EnvoyConfig::ratelimit(false)?.limiter_config(&config.to_string())?)
}

/// One request a day and client address, behind `trusted_hops` proxies.
fn address_limits(use_remote_address: bool, trusted_hops: u32) -> Result<EnvoyConfig> {
    let config = json!({
        "rules": [{
            "name": "daily",
            "match": { "path": { "prefix": "/limited" } },
            "key": ["address"],
            "algorithm": "fixed_window",
            "limit": { "rate": 1, "per": "1d" },
        }],
    });
    let config = EnvoyConfig::ratelimit(false)?.limiter_config(&config.to_string())?;
    native(config.edit_http(|manager| {
        manager["use_remote_address"] = use_remote_address.into();
        manager["xff_num_trusted_hops"] = trusted_hops.into();
        Ok(())
    })?)
}

/// The configuration of the native module for a shipped file of WebAssembly filters.
fn native(config: EnvoyConfig) -> Result<EnvoyConfig> {
    Ok(EnvoyConfig::parse(&config.render()?)?.host(Host::Wasm))
}

/// The secret of queue tokens.
const ROOM_SECRET: (&str, &str) = (
    "WEIR_ROOM_SECRET",
    "a secret of more than 32 bytes for rooms",
);

async fn start(stack: &Stack, dir: &DataDir, config: EnvoyConfig) -> Result<Envoy> {
    let (name, secret) = ROOM_SECRET;
    let mut variables = stack.gateway_variables().to_vec();
    variables.push((name.to_owned(), secret.to_owned()));
    let options = EnvoyOptions {
        config: config
            .gateway_port(ports::free()?)?
            .admin_port(ports::free()?)?,
        workers: 1,
        log_level: "info".to_owned(),
        variables,
        clock_ahead_ms: None,
        drain_s: Some(DRAIN_S),
        dir: dir.path.clone(),
    };
    let tool = tools::Envoy::find_or_get(&tools::Options::default(), &mut SilentReporter)?;
    Envoy::start(&tool, &options).await
}

/// An answer without parts that change with time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

/// Sends the pieces one after the other, and reads until no more bytes arrive. Returns the answers, and whether the
/// connection was closed.
async fn answers(gateway: &Envoy, pieces: &[Vec<u8>]) -> Result<(Vec<Answer>, bool)> {
    let url = gateway.url();
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await?;
    stream.set_nodelay(true)?;
    for (at, chunk) in pieces.iter().enumerate() {
        if at > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // A gateway may have closed the connection.
        if stream.write_all(chunk).await.is_err() {
            break;
        }
    }
    let mut bytes = Vec::new();
    let is_closed = loop {
        match tokio::time::timeout(QUIET, stream.read_buf(&mut bytes)).await {
            Ok(Ok(0) | Err(_)) => break true,
            Ok(Ok(_)) => {}
            Err(_quiet) => break false,
        }
    };
    let answers = read(&bytes)?;
    let says_so = |(name, value): &(String, String)| name == "connection" && value == "close";
    let mut headers = answers.iter().flat_map(|answer| &answer.headers);
    // Envoy closes it a second after it has announced it.
    let is_closed = is_closed || headers.any(says_so);
    Ok((answers, is_closed))
}

fn read(mut bytes: &[u8]) -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    while !bytes.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let Ok(httparse::Status::Complete(length)) = response.parse(bytes) else {
            // HTTP/2, or an incomplete answer.
            answers.push(Answer {
                status: 0,
                headers: Vec::new(),
                body: String::from_utf8_lossy(bytes).into_owned(),
            });
            break;
        };
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let named: Vec<_> = response.headers.iter().collect();
        let length_of = |name: &str| {
            let header = named.iter().find(|header| header.name == name)?;
            text(header.value).parse::<usize>().ok()
        };
        // The response to HEAD has a length but no body.
        let rest = bytes.get(length..).unwrap_or_default();
        let body_length = match rest.is_empty() || rest.starts_with(b"HTTP/1.") {
            true => 0,
            false => length_of("content-length").unwrap_or(0),
        };
        let body = bytes.get(length..length + body_length).context("no body")?;
        let passing = ["date", "x-envoy-upstream-service-time"];
        let headers = named
            .iter()
            .filter(|header| !passing.contains(&header.name));
        answers.push(Answer {
            status: response.code.context("no status")?,
            headers: headers
                .map(|header| (header.name.to_owned(), without_times(&text(header.value))))
                .collect(),
            body: without_times(&text(body)),
        });
        bytes = bytes.get(length + body_length..).unwrap_or_default();
    }
    Ok(answers)
}

/// Removes numbers that change with time.
fn without_times(text: &str) -> String {
    let mut parts = Vec::new();
    for part in text.split_inclusive(|char: char| !char.is_ascii_digit()) {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match digits {
            8.. => parts.push(part.get(digits..).unwrap_or_default()),
            _ => parts.push(part),
        }
    }
    parts.concat()
}

fn order(sale: &str, user: &str, more: &str) -> String {
    format!(
        "POST /sales/{sale}/orders HTTP/1.1\r\nhost: shop.example\r\nx-user-id: {user}\r\n{more}content-length: 0\r\n\r\n"
    )
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: shop.example\r\n{more}\r\n")
}

/// Requests that clients may send: plain ones, unusual ones, and attacks.
fn requests() -> Vec<String> {
    let sold_out = order("gone", "u1", "");
    let plain = [
        sold_out.clone(),
        order("later", "u1", ""),
        order("unknown", "u1", ""),
        order("gone", "u1", "accept: text/html\r\naccept-language: de\r\n"),
        order("gone", "", ""),
        order("gone", &"u".repeat(200), ""),
        order("gone", "u1", "x-user-id: u2\r\n"),
        order("gone", "u1", "x-weir-quantity: 0\r\n"),
        order("gone", "u1", "idempotency-key: a\r\n"),
        order(
            "gone",
            "u1",
            "x-weir-verdict: granted\r\nx-weir-claim: x\r\n",
        ),
        order("gone", "u1", "x-weir-user: u9\r\n"),
        get("/sales/gone", ""),
        get("/sales/later?a=b", ""),
        get("/sales/none", ""),
        order("gone", "u1", "content-type: application/grpc\r\n"),
        get("/nothing", ""),
        get("/", "accept: text/html\r\n"),
    ];
    let odd = [
        sold_out.replace("POST", "HEAD"),
        sold_out.replace("POST", "PUT"),
        sold_out.replace("POST", "OPTIONS"),
        sold_out.replace("/sales/gone", "//sales/gone"),
        sold_out.replace("/sales/gone", "/x/../sales/gone"),
        sold_out.replace("/sales/gone", "/sales/g%6fne"),
        sold_out.replace("/sales/gone", "/sales%2fgone"),
        sold_out.replace("/orders", "/orders?a=%2f#b"),
        sold_out.replace("/orders", "/orders;a"),
        sold_out.replace("POST /", "POST http://shop.example/"),
        sold_out.replace("shop.example", "SHOP.example:80"),
        sold_out.replace("x-user-id", "X-USER-ID"),
        sold_out.replace("content-length: 0\r\n", "content-length: 3\r\n") + "abc",
        sold_out.replace("content-length: 0\r\n", "transfer-encoding: chunked\r\n") + "0\r\n\r\n",
        sold_out.replace("content-length: 0\r\n", "connection: close\r\n"),
        sold_out.replace(
            "content-length: 0\r\n",
            "expect: 100-continue\r\ncontent-length: 0\r\n",
        ),
        sold_out.replace(
            "content-length: 0\r\n",
            "connection: upgrade\r\nupgrade: websocket\r\n",
        ),
    ];
    let attacks = [
        sold_out.replace(
            "content-length: 0\r\n",
            "content-length: 0\r\ncontent-length: 5\r\n",
        ),
        sold_out.replace(
            "content-length: 0\r\n",
            "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        ),
        sold_out.replace("content-length: 0\r\n", "content-length: -1\r\n"),
        sold_out.replace("content-length: 0\r\n", "content_length: 5\r\n"),
        sold_out.replace("content-length: 0\r\n", "content-length : 0\r\n"),
        sold_out.replace("host: shop.example\r\n", ""),
        sold_out.replace("host: shop.example\r\n", "host: a\r\nhost: b\r\n"),
        sold_out.replace("HTTP/1.1", "HTTP/1.0"),
        sold_out.replace("HTTP/1.1", "HTTP/9.9"),
        sold_out.replace("u1\r\n", "u1\n"),
        sold_out.replace("u1\r\n", "u1\r\n folded\r\n"),
        sold_out.replace("u1", "u\0"),
        sold_out.replace("POST", "POS\u{e9}"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\r\n\r\n".to_owned() + &sold_out,
        "GET\r\n\r\n".to_owned(),
        sold_out.chars().take(20).collect(),
    ];
    [&plain[..], &odd, &attacks].concat()
}

/// Compares each request, and checks that the fast path has answered at least this many.
async fn compare_each(pair: Pair, requests: Vec<String>, least: u64) -> Result<()> {
    let before = pair.with.stat(ANSWERED).await?;
    let pair = Arc::new(pair);
    let cases = requests.into_iter();
    let cases: Vec<_> = cases.map(|it| vec![it.into_bytes()]).collect();
    compare_all(&pair, &cases).await?;
    until("it answers some of them", async || {
        let count = pair.with.stat(ANSWERED).await;
        count.is_ok_and(|count| count >= before + least)
    })
    .await
}

/// Room requests with the token of a visitor who waits. Tokens of new visitors differ from gateway to gateway.
#[tokio::test(flavor = "multi_thread")]
async fn fast_path_answers_rooms_like_the_http_filter() -> Result<()> {
    let pair = Pair::of("fast-rooms", rooms).await?;
    let cookie = RefCell::new(String::new());
    for gateway in [&pair.with, &pair.without] {
        until("the visitor has a position", async || {
            let with_token = match cookie.borrow().as_str() {
                "" => String::new(),
                cookie => format!("cookie: {cookie}\r\n"),
            };
            let request = get("/shop", &with_token).into_bytes();
            let Ok((answers, _)) = answers(gateway, &[request]).await else {
                return false;
            };
            let headers = answers.iter().flat_map(|answer| &answer.headers);
            for (_, value) in headers.filter(|(name, _)| name == "set-cookie") {
                cookie.replace(value.split(';').next().unwrap_or_default().to_owned());
            }
            let is_waiting = |answer: &Answer| answer.body.contains(r#""state":"waiting""#);
            answers.iter().any(is_waiting)
        })
        .await?;
    }
    let cookie = cookie.into_inner();
    let with_token = format!("cookie: {cookie}\r\n");
    let token = cookie.split_once('=').context("no token")?.1;
    let html = "accept: text/html\r\n";
    let requests = [
        get("/shop", &with_token),
        get("/shop", &format!("{with_token}{html}")),
        get(
            "/shop/a?b=c",
            &format!("{with_token}accept-language: de\r\n"),
        ),
        get("/shop", &format!("x-weir-room: {token}\r\n")),
        get("/shop", &format!("cookie: a=b\r\n{with_token}")),
        get(
            "/shop",
            &format!("{with_token}content-type: application/grpc\r\n"),
        ),
        get(
            "/shop",
            &format!("{with_token}origin: https://a.example\r\n"),
        ),
        get("/.weir/room/shop", &with_token),
        get("/.weir/room/shop?n=1", &with_token),
        get("/.weir/room/shop", &with_token.replace("\r\n", "x\r\n")),
        get("/.weir/room/shop", ""),
        get("/.weir/room/shut", &with_token),
        get("/.weir/room/none", ""),
        get("/.weir/room/room.js", ""),
        get("/.weir/room/", ""),
        get("/shut", ""),
        get("/shut", html),
        get("/shut", "content-type: application/grpc\r\n"),
        get("/open", &with_token),
        get("/shut", "").replace("GET", "HEAD"),
        get("/shut", "content-length: 0\r\n").replace("GET", "POST"),
    ];
    compare_each(pair, requests.to_vec(), 8).await
}

#[tokio::test(flavor = "multi_thread")]
async fn fast_path_answers_limits_like_the_http_filter() -> Result<()> {
    let pair = Pair::of("fast-limits", limits).await?;
    let limited = |user: &str, more: &str| get("/limited", &format!("x-user-id: {user}\r\n{more}"));
    // Uses up the limit of one user at both gateways.
    pair.compare(&[limited("u1", "").into_bytes()]).await?;
    let requests = [
        limited("u1", ""),
        limited("u1", "accept: text/html\r\naccept-language: de\r\n"),
        limited("u1", "content-type: application/grpc\r\n"),
        limited("u1", "x-user-id: u2\r\n"),
        limited("u1", "cookie: a=b\r\n"),
        limited("u1", "").replace("GET", "HEAD"),
        limited("u1", "content-length: 0\r\n").replace("GET", "POST"),
        limited("eve", ""),
        limited("eve", "accept: text/html\r\n"),
        limited("u3", ""),
        get("/limited", ""),
        get("/", ""),
    ];
    compare_each(pair, requests.to_vec(), 4).await
}

/// Each address may send one request, so both gateways refuse the same requests only if they find the same addresses.
#[tokio::test(flavor = "multi_thread")]
async fn fast_path_finds_the_client_address_like_envoy() -> Result<()> {
    for (use_remote_address, trusted_hops) in [(true, 0), (true, 2), (false, 0), (false, 1)] {
        let config = |_: &Stack| address_limits(use_remote_address, trusted_hops);
        let pair = Pair::of("fast-address", config).await?;
        let forwarded = [
            "",
            "x-forwarded-for: 192.0.2.1\r\n",
            "x-forwarded-for: 192.0.2.1, 192.0.2.2\r\n",
            "x-forwarded-for: 192.0.2.3,192.0.2.2 , 192.0.2.1\r\n",
            "x-forwarded-for: 192.0.2.4\r\nx-forwarded-for: 192.0.2.5\r\n",
            "x-forwarded-for: unknown, 192.0.2.6\r\n",
            "x-forwarded-for: 192.0.2.7, unknown\r\n",
            "x-forwarded-for: 192.0.2.8:80, 2001:db8::1\r\n",
            "x-forwarded-for: ,\r\n",
        ];
        let requests = forwarded.map(|more| get("/limited", more));
        let before = pair.with.stat(ANSWERED).await?;
        // Each request uses up its address' limit, or is refused because another one did.
        for request in requests.iter().chain(&requests) {
            let (with, without) =
                tokio::try_join!(status(&pair.with, request), status(&pair.without, request))?;
            ensure!(
                with == without,
                "{use_remote_address} {trusted_hops} {request}: {with}, without {without}"
            );
        }
        until("the fast path refuses", async || {
            let count = pair.with.stat(ANSWERED).await;
            count.is_ok_and(|count| count >= before + requests.len() as u64)
        })
        .await?;
    }
    Ok(())
}

/// The status of the answer to a request.
async fn status(gateway: &Envoy, request: &str) -> Result<u16> {
    let mut stream = connect(gateway).await?;
    Ok(exchange(&mut stream, request).await?.status)
}

async fn connect(gateway: &Envoy) -> Result<TcpStream> {
    let url = gateway.url();
    Ok(TcpStream::connect(url.trim_start_matches("http://")).await?)
}

/// Sends a request, and returns its answer.
async fn exchange(stream: &mut TcpStream, request: &str) -> Result<Answer> {
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    loop {
        ensure!(stream.read_buf(&mut bytes).await? > 0, "it was closed");
        if let Ok(answers) = read(&bytes)
            && let [answer] = answers.as_slice()
            && answer.status > 0
        {
            return Ok(answer.clone());
        }
    }
}

/// Pseudo-random numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_before_http_equals_that_of_the_http_filter() -> Result<()> {
    let pair = Pair::start("fast-alike").await?;
    compare_each(pair, requests(), 8).await
}

/// The variables with the number of sequences and the seed, and their defaults. Higher numbers make this a fuzzer.
const CASES: (&str, u64) = ("WEIR_FAST_PATH_CASES", 160);
const SEED: (&str, u64) = ("WEIR_FAST_PATH_SEED", 7);

fn chosen((variable, otherwise): (&str, u64)) -> Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().context(variable.to_owned()),
        Err(_) => Ok(otherwise),
    }
}

/// Random sequences on one connection, split at random bytes.
#[tokio::test(flavor = "multi_thread")]
async fn fast_path_answers_sequences_and_splits_like_the_filter() -> Result<()> {
    let pair = Pair::start("fast-splits").await?;
    let requests = requests();
    let mut chance = Chance(chosen(SEED)?);
    let mut cases = Vec::new();
    for _ in 0..chosen(CASES)? {
        let count = 1 + chance.below(5);
        let chosen = (0..count).map(|_| requests[chance.below(requests.len())].clone());
        let bytes: Vec<u8> = chosen.collect::<String>().into_bytes();
        let mut pieces = vec![bytes];
        for _ in 0..chance.below(4) {
            let last = pieces.pop().unwrap_or_default();
            let at = chance.below(last.len().max(1));
            let (left, right) = last.split_at(at);
            pieces.extend([left.to_vec(), right.to_vec()]);
        }
        cases.push(pieces);
    }
    compare_all(&Arc::new(pair), &cases).await
}

/// After a response of the HTTP stack, a connection returns to the fast path, and each request is answered once.
#[tokio::test(flavor = "multi_thread")]
async fn connection_returns_to_the_fast_path_after_a_response() -> Result<()> {
    let pair = Pair::start("fast-returns").await?;
    let mut stream = connect(&pair.with).await?;
    let rounds = 6;
    let sold_out = "wasmcustom.weir_seckill_gate_requests_total.verdict.sold_out";
    let counts = async || {
        anyhow::Ok([
            pair.with.stat(ANSWERED).await?,
            pair.with.stat(sold_out).await?,
        ])
    };
    // Earlier requests are reported by then.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = counts().await?;
    for _ in 0..rounds {
        for (request, status) in [(order("gone", "u1", ""), 409), (get("/nothing", ""), 404)] {
            let answer = exchange(&mut stream, &request).await?;
            ensure!(answer.status == status, "{answer:?}");
        }
    }
    let [answered, sold_out] = before;
    until("each order is counted once", async || {
        counts()
            .await
            .is_ok_and(|counts| counts[1] == sold_out + rounds)
    })
    .await?;
    // Some requests query Redis for returned units, which only the HTTP filter does.
    let after = counts().await?;
    ensure!(after[0] >= answered + rounds / 2, "{before:?}, {after:?}");
    Ok(())
}

/// A client that does not read cannot make the gateway buffer unlimited answers.
#[tokio::test(flavor = "multi_thread")]
async fn responses_to_a_client_that_does_not_read_are_bounded() -> Result<()> {
    let pair = Pair::start("fast-deaf").await?;
    let mut stream = connect(&pair.with).await?;
    let many = order("gone", "u1", "").repeat(100).into_bytes();
    let mut sent = 0_usize;
    // Until neither side accepts more bytes.
    while let Ok(Ok(())) =
        tokio::time::timeout(Duration::from_secs(1), stream.write_all(&many)).await
    {
        sent += 100;
        ensure!(sent < 1_000_000, "it takes everything");
    }
    // The gateway serves others meanwhile.
    let (answers, _) = answers(&pair.with, &[order("gone", "u2", "").into_bytes()]).await?;
    ensure!(
        answers.len() == 1 && answers[0].status == 409,
        "{answers:?}"
    );
    Ok(())
}

/// The HTTP stack's timers and statistics need a sample of the requests.
#[tokio::test(flavor = "multi_thread")]
async fn one_request_of_many_uses_the_http_stack() -> Result<()> {
    let pair = Pair::start("fast-sample").await?;
    let mut stream = connect(&pair.with).await?;
    let before = pair.with.stat(PASSED).await?;
    for _ in 0..350 {
        let answer = exchange(&mut stream, &order("gone", "u1", "")).await?;
        ensure!(answer.status == 409, "{answer:?}");
    }
    until("samples are counted", async || {
        let passed = pair.with.stat(PASSED).await;
        passed.is_ok_and(|passed| passed >= before + 3)
    })
    .await
}

/// In a drain, a connection hears of its end with its next answers, although the fast path could give them.
#[tokio::test(flavor = "multi_thread")]
async fn connection_of_the_fast_path_is_closed_in_a_drain() -> Result<()> {
    let pair = Pair::start("fast-drain").await?;
    let mut stream = connect(&pair.with).await?;
    let sold_out = order("gone", "u1", "");
    exchange(&mut stream, &sold_out).await?;
    let url = format!("{}/drain_listeners?graceful", pair.with.admin_url());
    http::send(Method::POST, &url, &[], "").await?;
    // Within the drain, Envoy closes more and more of the connections that it answers.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(2 * u64::from(DRAIN_S));
    loop {
        let answer = exchange(&mut stream, &sold_out).await?;
        ensure!(answer.status == 409, "{answer:?}");
        let is_close = |(name, value): &(String, String)| name == "connection" && value == "close";
        if answer.headers.iter().any(is_close) {
            return Ok(());
        }
        ensure!(tokio::time::Instant::now() < deadline, "it stays open");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Clients that send their heads slowly do not keep others from being answered, and get one answer each.
#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_on_10_000_connections_are_answered() -> Result<()> {
    const CONNECTIONS: usize = 10_000;
    let pair = Pair::start("fast-slow").await?;
    let request = order("gone", "u1", "");
    let (start, rest) = request.split_at(request.len() / 2);
    let mut slow = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let mut stream = connect(&pair.with).await?;
        stream.write_all(start.as_bytes()).await?;
        slow.push(stream);
    }
    let before = pair.with.stat(ANSWERED).await?;
    for _ in 0..20 {
        let status = status(&pair.with, &request).await?;
        ensure!(status == 409, "{status}");
    }
    until("the fast path answers meanwhile", async || {
        let answered = pair.with.stat(ANSWERED).await;
        answered.is_ok_and(|answered| answered > before)
    })
    .await?;
    for stream in &mut slow {
        let answer = exchange(stream, rest).await?;
        // 408 on a machine that needs more than the `request_headers_timeout`.
        ensure!(matches!(answer.status, 409 | 408), "{answer:?}");
    }
    Ok(())
}
