//! `envoy/snippets/jwt.yaml` before the gate: a token identifies the user, not a header.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use weir_stack::Stack;
use weir_stack::envoy::EnvoyConfig;
use weir_stack::http::{self, Method, Response};
use weir_tests::{stock_balance, until, verdict};

/// The private key is published, and only for tests.
const PRIVATE_KEY: &str = include_str!("../jwt/test-only-private-key.pem");

fn now_s() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// The key of `envoy/snippets/jwt.yaml`, as PKCS #8.
fn known_key() -> Result<Vec<u8>> {
    let (_, pem) = PRIVATE_KEY
        .split_once("-----BEGIN PRIVATE KEY-----")
        .context("no key")?;
    let (pem, _) = pem.split_once("-----END").context("no end of the key")?;
    STANDARD
        .decode(pem.replace(['\n', '\r'], ""))
        .ok()
        .context("the key is not base64")
}

/// A key that Envoy does not trust.
fn other_key() -> Result<Vec<u8>> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
    Ok(key.ok().context("no key")?.as_ref().to_vec())
}

fn signed(key: &[u8], claims: &Value) -> Result<String> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &random);
    let head = json!({ "alg": "ES256", "typ": "JWT", "kid": "test-only" });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&head), part(claims));
    let signature = key.ok().context("no key")?.sign(&random, text.as_bytes());
    let signature = signature.ok().context("no signature")?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

fn claims(user: &str) -> Result<Value> {
    Ok(json!({
        "iss": "https://users.example.test",
        "aud": "weir",
        "sub": user,
        "exp": now_s()? + 600,
    }))
}

async fn buy(stack: &Stack, authorization: &str) -> Result<Response> {
    // The client's own user header must be ignored.
    let mut headers = vec![("x-user-id", "mallory")];
    if !authorization.is_empty() {
        headers.push(("authorization", authorization));
    }
    http::send(Method::POST, &stack.buy_url("jwt"), &headers, "").await
}

async fn open_sale(stack: &Stack) -> Result<()> {
    let now_ms = now_s()? * 1_000;
    let sale = json!({
        "id": "jwt", "title": "jwt", "total": 5, "shards": 1, "user_cap": 1,
        "starts_at_ms": now_ms, "ends_at_ms": now_ms + 600_000,
    });
    stack
        .admin(Method::POST, "/sales", &sale.to_string(), 201)
        .await?;
    stack
        .admin(Method::POST, "/sales/jwt/warm", "", 200)
        .await?;
    let url = format!("{}/sales/jwt", stack.gateway_url());
    until("the gateway knows the sale", async || {
        http::is_ok(&url).await
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_valid_jwt_buys_and_only_as_its_subject() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("jwt")
        .edit_config(EnvoyConfig::jwt)
        .start()
        .await?;
    open_sale(&stack).await?;

    let mut expired = claims("alice")?;
    expired["exp"] = json!(now_s()? - 60);
    let mut elsewhere = claims("alice")?;
    elsewhere["aud"] = json!("another-shop");
    let existing = known_key()?;
    let good = signed(&existing, &claims("alice")?)?;
    let cut = &good[..good.len() - 8];
    for (subject, token) in [
        ("none", String::new()),
        ("nonsense", "Bearer nonsense".to_owned()),
        (
            "forged",
            format!("Bearer {}", signed(&other_key()?, &claims("alice")?)?),
        ),
        ("cut", format!("Bearer {cut}")),
        (
            "expired",
            format!("Bearer {}", signed(&existing, &expired)?),
        ),
        (
            "for another audience",
            format!("Bearer {}", signed(&existing, &elsewhere)?),
        ),
    ] {
        let answer = buy(&stack, &token).await?;
        assert!(
            matches!(answer.status, 401 | 403),
            "{subject}: {}",
            answer.status
        );
        assert_eq!(verdict(&answer), "", "{subject}: the gate has not seen it");
        let is_other_audience = subject == "for another audience";
        assert_eq!(answer.status == 403, is_other_audience, "{subject}");
    }
    assert_eq!(stock_balance(&stack, "jwt").await?.stock, 5);

    let bought = buy(&stack, &format!("Bearer {good}")).await?;
    assert_eq!(
        (bought.status, verdict(&bought)),
        (201, "granted"),
        "{}",
        bought.text()
    );
    assert_eq!(bought.json()?["user"], "alice");
    assert_eq!(stock_balance(&stack, "jwt").await?.orders, 1);
    Ok(())
}
