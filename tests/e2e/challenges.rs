//! Challenges that a checkout requires before it issues an order token.
//!
//! Tests cannot reach captcha providers. A local server replaces them and follows their documentation (Turnstile,
//! hCaptcha and reCAPTCHA: a form request, a JSON response, and each solution is valid once).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::AsyncCommands;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use weir_stack::envoy::{EnvoyConfig, GATE};
use weir_stack::http::{self, Method, Response};
use weir_stack::report::SilentReporter;
use weir_stack::{GatewayOptions, Stack, ports, tools};
use weir_tests::{Browser, Server, response, stock_balance, verdict};

const CLIENT: &str = include_str!("../../sdk/dist/weir.js");
const WORKER: &str = include_str!("../../sdk/dist/weir-worker.js");

/// A low difficulty, so that tests need not wait.
const BITS: u32 = 10;

async fn check_out(gateway: &str, user: &str, more: &[(&str, &str)]) -> Result<Response> {
    let mut headers = vec![("x-user-id", user)];
    headers.extend(more);
    let url = format!("{gateway}/sales/challenge/checkout");
    http::send(Method::POST, &url, &headers, "").await
}

/// The challenge for `user`.
async fn challenge_for(gateway: &str, user: &str) -> Result<Value> {
    let answer = check_out(gateway, user, &[]).await?;
    let received = (answer.status, verdict(&answer));
    ensure!(received == (403, "challenge_required"), "{received:?}");
    let problem = answer.json()?;
    ensure!(problem["error"] == "challenge_required", "{problem}");
    Ok(problem["challenge"].clone())
}

fn is_solution(text: &str) -> bool {
    let hash = Sha256::digest(text);
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]).leading_zeros() >= BITS
}

/// The first solutions of a challenge.
fn solutions(challenge: &Value, count: usize) -> Result<Vec<String>> {
    let work = &challenge["proof_of_work"];
    ensure!(work["bits"] == BITS, "{challenge}");
    let text = work["text"].as_str().context("no text")?;
    let solutions = (0_u64..).map(|counter| format!("{text}:{counter}"));
    Ok(solutions
        .filter(|text| is_solution(text))
        .take(count)
        .collect())
}

fn token(answer: &Response) -> Result<String> {
    ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    let json = answer.json()?;
    Ok(json["token"].as_str().context("no token")?.to_owned())
}

async fn working(prefix: &str) -> Result<Stack> {
    let mut stack = Stack::builder()
        .workers(2)
        .key_prefix(prefix)
        .start()
        .await?;
    stack.start_gateway(GatewayOptions::default()).await?;
    let wants = json!({ "token": true, "challenge": { "proof_of_work": { "bits": BITS } } });
    stack.open_sale_with("challenge", 5, 1, wants).await?;
    Ok(stack)
}

#[tokio::test(flavor = "multi_thread")]
async fn proof_of_work_gives_one_token_across_gateways() -> Result<()> {
    let mut stack = working("work").await?;
    let gateways = stack.gateway_urls();
    let challenge = challenge_for(&gateways[0], "alice").await?;
    let solutions = solutions(&challenge, 8)?;

    let mut answers = JoinSet::new();
    for (at, solution) in solutions.iter().cycle().take(24).cloned().enumerate() {
        let gateway = gateways[at % gateways.len()].clone();
        answers.spawn(async move {
            let headers = [("x-weir-solution", solution.as_str())];
            check_out(&gateway, "alice", &headers).await
        });
    }
    let mut tokens = BTreeSet::new();
    for answer in answers.join_all().await {
        tokens.insert(token(&answer?)?);
    }
    ensure!(tokens.len() == 1, "{tokens:?}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let again = check_out(&gateways[1], "alice", &[("x-weir-solution", &solutions[0])]).await?;
    ensure!(tokens.contains(&token(&again)?), "later, too");

    let foreign = check_out(&gateways[1], "bob", &[("x-weir-solution", &solutions[0])]).await?;
    assert_eq!(
        (foreign.status, verdict(&foreign)),
        (403, "challenge_required")
    );
    let forged = solutions[0].replacen('.', ".x", 1);
    let forged = check_out(&gateways[0], "alice", &[("x-weir-solution", &forged)]).await?;
    assert_eq!(forged.status, 403);

    let mut redis = weir_stack::redis::connect(stack.redis_url()).await?;
    let keys: Vec<String> = redis.keys("work:challenge:*").await?;
    ensure!(keys.len() == 1, "{keys:?}");
    let left_ms: i64 = redis.pttl(&keys[0]).await?;
    ensure!((1..=122_000).contains(&left_ms), "{left_ms}");

    tokio::time::sleep(Duration::from_secs(1)).await;
    let token = tokens.first().context("no token")?;
    let headers = [
        ("x-user-id", "alice"),
        ("x-weir-order-token", token.as_str()),
    ];
    let bought = http::send(Method::POST, &stack.buy_url("challenge"), &headers, "").await?;
    assert_eq!((bought.status, verdict(&bought)), (201, "granted"));
    assert_eq!(stock_balance(&stack, "challenge").await?.orders, 1);

    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut solved = 0;
    for gateway in [&stack.envoy, &stack.gateways[0]] {
        let count = async |outcome: &str| {
            let name = format!("wasmcustom.weir_seckill_gate_challenges_total.outcome.{outcome}");
            gateway.stat(&name).await
        };
        solved += count("solved").await? + count("again").await?;
    }
    assert_eq!(solved, 25);
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn solution_gives_no_token_without_redis_and_one_afterwards() -> Result<()> {
    let mut stack = working("away").await?;
    let gateway = stack.gateway_url();
    let solution = solutions(&challenge_for(&gateway, "alice").await?, 1)?.remove(0);
    let headers = [("x-weir-solution", solution.as_str())];
    stack.redis.server.as_mut().context("its own Redis")?.stop();
    let answer = check_out(&gateway, "alice", &headers).await?;
    assert_eq!((answer.status, verdict(&answer)), (503, "unavailable"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let server = stack.redis.server.as_mut().context("its own Redis")?;
    server.start_again().await?;
    weir_tests::until("Redis says that it leads to a token", async || {
        let answer = check_out(&gateway, "alice", &headers).await;
        answer.is_ok_and(|answer| answer.status == 200)
    })
    .await?;
    Ok(())
}

/// The fields of a form.
fn form(body: &[u8]) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(body).into_owned().collect()
}

/// A provider that accepts the solution `good-…` once.
async fn provider(port: u16, secret: &str) -> Result<Server> {
    let (secret, used) = (secret.to_owned(), Mutex::new(BTreeSet::new()));
    let respond = move |request: &hyper::Request<()>, body: hyper::body::Bytes| {
        let form = form(&body);
        let of = |name: &str| form.get(name).cloned().unwrap_or_default();
        let is_form = request
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind == "application/x-www-form-urlencoded");
        let is_asked =
            request.method() == "POST" && request.uri().path() == "/siteverify" && is_form;
        let is_first = used
            .lock()
            .is_ok_and(|mut used| used.insert(of("response")));
        let is_good = of("secret") == secret && of("response").starts_with("good-") && is_first;
        let word = match (is_asked, is_good) {
            (false, _) => return response(400, "text/html", "<p>bad request"),
            (true, true) => json!({ "success": true, "hostname": "shop.example" }),
            (true, false) => json!({ "success": false, "error-codes": ["timeout-or-duplicate"] }),
        };
        response(200, "application/json", word.to_string())
    };
    Server::start(port, Arc::new(respond)).await
}

/// A gate that verifies solutions with the provider at this port.
fn with_provider(config: EnvoyConfig, port: u16, if_unreachable: &str) -> Result<EnvoyConfig> {
    let captcha = json!({
        "cluster": "captcha", "host": "captcha.example", "path": "/siteverify", "site_key": "public",
        // A secret that the gate already has.
        "secret": { "env": "WEIR_TOKEN_SECRET" }, "timeout_ms": 1_000, "if_unreachable": if_unreachable,
    });
    let config = config.edit_filter(GATE, |json| {
        let settings = json.as_object_mut().context("no settings")?;
        settings.insert("captcha".to_owned(), captcha);
        Ok(())
    })?;
    config.add_cluster(&format!(
        "name: captcha\ntype: STATIC\nconnect_timeout: 1s\nload_assignment:\n  cluster_name: captcha\n  endpoints:\n  - lb_endpoints:\n    - endpoint: \
         {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}\n"
    ))
}

async fn with_captcha(prefix: &str, port: u16, if_unreachable: &'static str) -> Result<Stack> {
    let stack = Stack::builder()
        .workers(2)
        .key_prefix(prefix)
        .edit_config(move |config| with_provider(config, port, if_unreachable))
        .start()
        .await?;
    let wants = json!({ "token": true, "challenge": { "captcha": {} } });
    stack.open_sale_with("challenge", 5, 1, wants).await?;
    Ok(stack)
}

#[tokio::test(flavor = "multi_thread")]
async fn captcha_provider_decides_about_each_token() -> Result<()> {
    // The stack generates its secrets, so the provider receives its own later.
    let port = ports::free()?;
    let stack = with_captcha("captcha", port, "refuse").await?;
    let gateway = stack.gateway_url();
    let challenge_for = challenge_for(&gateway, "alice").await?;
    assert_eq!(challenge_for["captcha"]["site_key"], "public");
    let send =
        async |solution: &str| check_out(&gateway, "alice", &[("x-weir-captcha", solution)]).await;
    let anonymous = send("good-0").await?;
    assert_eq!(
        (anonymous.status, verdict(&anonymous)),
        (503, "unavailable")
    );

    let mut secrets = stack.gateway_variables().iter();
    let secret = secrets.find(|(name, _)| name == "WEIR_TOKEN_SECRET");
    let _provider = provider(port, &secret.context("no secret")?.1).await?;
    let good = "good-+/=&%".to_owned() + &"x".repeat(2_000);
    token(&send(&good).await?)?;
    for solution in [good.as_str(), "bad", ""] {
        let refused = send(solution).await?;
        let received = (refused.status, verdict(&refused));
        ensure!(received == (403, "challenge_required"), "{received:?}");
    }
    let mut many = JoinSet::new();
    for n in 0..40 {
        let gateway = gateway.clone();
        many.spawn(async move {
            let (user, solution) = (format!("user-{n}"), format!("good-{n}-again"));
            check_out(&gateway, &user, &[("x-weir-captcha", &solution)]).await
        });
    }
    for answer in many.join_all().await {
        token(&answer?)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn any_solution_passes_when_sale_may_continue_without_captcha() -> Result<()> {
    let stack = with_captcha("pass", ports::free()?, "pass").await?;
    let gateway = stack.gateway_url();
    challenge_for(&gateway, "alice").await?;
    let answer = check_out(&gateway, "alice", &[("x-weir-captcha", "any")]).await?;
    token(&answer)?;
    Ok(())
}

/// A page with the client, and a checkout that requires two challenges, fails once, and then issues a token.
#[tokio::test(flavor = "multi_thread")]
async fn page_solves_its_challenge() -> Result<()> {
    let page = "<!doctype html><title>shop</title><p>a shop<script type=\"module\">\
         import { Weir } from '/weir.js'; window.weir = new Weir();</script>";
    let observed = Arc::new(Mutex::new(Vec::new()));
    let (book, text) = (Arc::clone(&observed), format!("k1.{}.tag", "p".repeat(180)));
    let asks =
        json!({ "error": "challenge_required", "challenge": { "proof_of_work": { "text": text, "bits": BITS } } }).to_string();
    let respond = move |request: &hyper::Request<()>, _: hyper::body::Bytes| {
        let solution = request.headers().get("x-weir-solution");
        let solution = solution
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        match request.uri().path() {
            "/" => response(200, "text/html", page),
            "/weir.js" => response(200, "text/javascript", CLIENT),
            "/weir-worker.js" => response(200, "text/javascript", WORKER),
            "/sales/s/checkout" => {
                let Ok(mut observed) = book.lock() else {
                    return response(500, "text/plain", "");
                };
                observed.push(solution);
                match observed.len() {
                    1 | 2 => response(403, "application/problem+json", asks.clone()),
                    3 => response(503, "application/problem+json", "{}"),
                    _ => response(
                        200,
                        "application/json",
                        r#"{"token":"t","usable_at_ms":0,"expires_at_ms":1,"now_ms":0}"#,
                    ),
                }
            }
            _ => response(404, "text/plain", ""),
        }
    };
    let server = Server::start(0, Arc::new(respond)).await?;
    let dir = tempfile::tempdir()?;
    let tool = tools::Chromium::find_or_get(&mut SilentReporter)?;
    let browser = Browser::start(&tool, dir.path()).await?;
    browser
        .open(&format!("http://{}/", server.address()))
        .await?;
    let script = "weir.token('s').then(token => window.got = token)";
    browser.run(script, &[]).await?;
    browser.until("return window.got === 't'", &[]).await?;
    let observed = observed
        .lock()
        .map_err(|_| anyhow::anyhow!("poisoned"))?
        .clone();
    ensure!(observed.len() == 4 && observed[0].is_none(), "{observed:?}");
    for solution in observed.iter().skip(1) {
        let solution = solution.as_deref().context("no solution")?;
        ensure!(
            solution.starts_with(&text) && is_solution(solution),
            "{solution}"
        );
    }
    Ok(())
}
