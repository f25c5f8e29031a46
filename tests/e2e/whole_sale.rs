//! Other features of a sale, through the gateway: reservations and risk, the three payment modes, and order ownership.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weir_base::headers;
use weir_base::id::UserId;
use weir_base::key::KeyRing;
use weir_base::key::SigningKey;
use weir_sale::identity;
use weir_stack::http::{self, Method, Response};
use weir_stack::provider::PaymentProvider;
use weir_stack::{Secrets, Stack, ports};
use weir_tests::{buy, until, verdict};

const HOUR_MS: u64 = 60 * 60 * 1_000;

async fn stack(prefix: &str) -> Result<Stack> {
    Stack::builder().workers(2).key_prefix(prefix).start().await
}

fn now_ms() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    Ok(u64::try_from(now)?)
}

/// Sends a request to the gateway, as `user` if set.
async fn ask(stack: &Stack, method: Method, path: &str, user: Option<&str>) -> Result<Response> {
    let headers: Vec<_> = user.map(|user| ("x-user-id", user)).into_iter().collect();
    let url = format!("{}{path}", stack.gateway_url());
    http::send(method, &url, &headers, "").await
}

async fn reserve(stack: &Stack, sale: &str, user: &str) -> Result<Response> {
    let path = format!("/sales/{sale}/reservations");
    ask(stack, Method::POST, &path, Some(user)).await
}

/// Buys, and returns the order's path.
pub(crate) async fn order(stack: &Stack, sale: &str, user: &str) -> Result<String> {
    let response = buy(stack, sale, user).await?;
    let (status, text) = (response.status, response.text());
    ensure!(status == 201, "{user} has {status}: {text}");
    path_of(&response)
}

fn path_of(response: &Response) -> Result<String> {
    let response = response.json()?;
    let id = response["order"].as_str().context("no order")?;
    Ok(format!("/orders/{id}"))
}

/// Performs an action of `user` on the order: `pay` or `cancel`.
async fn end(stack: &Stack, order: &str, user: &str, how: &str) -> Result<Response> {
    ask(stack, Method::POST, &format!("{order}/{how}"), Some(user)).await
}

/// Pays at the provider with the URL from the shop's answer. The order is then paid.
pub(crate) async fn pays(stack: &Stack, order: &str, user: &str) -> Result<()> {
    let started = end(stack, order, user, "pay").await?;
    let body = started.json()?;
    let pay_url = body["pay_url"].as_str();
    let pay_url = pay_url.with_context(|| format!("nothing to pay: {body}"))?;
    let status_and_name = http::send(Method::POST, pay_url, &[], "").await?;
    ensure!(
        status_and_name.json()?["state"] == "paid",
        "{}",
        status_and_name.text()
    );
    is_told(
        &ask(stack, Method::GET, order, Some(user)).await?,
        200,
        "paid",
    )
}

/// The status, and the order's state or the problem's name.
fn status_and_name(answer: &Response) -> Result<(u16, String)> {
    let body = answer.json()?;
    let word = match answer.status {
        200..300 => &body["status"],
        _ => &body["error"],
    };
    let word = word.as_str().with_context(|| format!("no word: {body}"))?;
    Ok((answer.status, word.to_owned()))
}

fn is_told(answer: &Response, status: u16, word: &str) -> Result<()> {
    let status_and_name = status_and_name(answer)?;
    ensure!(
        status_and_name == (status, word.to_owned()),
        "{status_and_name:?}, not {word}"
    );
    Ok(())
}

fn decided(answer: &Response) -> (u16, &str) {
    (answer.status, verdict(answer))
}

/// Retries as `user` until it has bought; returns the order's path. Earlier verdicts must be in `meanwhile`.
pub(crate) async fn buys_at_last(
    stack: &Stack,
    sale: &str,
    user: &str,
    meanwhile: &[&str],
) -> Result<String> {
    let granted = hears_at_last(stack, sale, user, "granted", meanwhile).await?;
    ensure!(granted.status == 201, "{user} hears {}", granted.text());
    path_of(&granted)
}

/// Sends requests of `user` until the verdict is `word`, within the rate limit.
async fn hears_at_last(
    stack: &Stack,
    sale: &str,
    user: &str,
    word: &str,
    meanwhile: &[&str],
) -> Result<Response> {
    let deadline = tokio::time::Instant::now() + weir_tests::PATIENCE;
    loop {
        let answer = buy(stack, sale, user).await?;
        let received = verdict(&answer);
        if received == word {
            return Ok(answer);
        }
        ensure!(meanwhile.contains(&received), "{user} hears {received}");
        let late = tokio::time::Instant::now() > deadline;
        ensure!(!late, "{user} still hears {received}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until the audit has exactly this number of units in stock and in orders, and none elsewhere.
pub(crate) async fn audited(stack: &Stack, sale: &str, stock: u64, orders: u64) -> Result<()> {
    let path = format!("/sales/{sale}/audit");
    let expected = json!({
        "stock": stock, "transfers": 0, "claims": 0, "orders": orders,
        "total": stock + orders, "drift": 0,
    });
    until(&format!("{expected}"), async || {
        let audit = stack.admin(Method::GET, &path, "", 200).await;
        audit.is_ok_and(|audit| audit["exact"] == true && audit["terms"] == expected)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_users_with_a_timely_reservation_can_buy() -> Result<()> {
    let stack = stack("reserve").await?;
    let now = now_ms()?;
    let window = |from_ms: u64, until_ms: u64| json!({ "reservation": { "from_ms": from_ms, "until_ms": until_ms } });
    // They end with the sale at the latest.
    let soon = HOUR_MS / 2;
    for (sale, more) in [
        ("early", window(now + soon / 2, now + soon)),
        ("open", window(now - soon, now + soon)),
        ("over", window(now - soon, now - 1)),
        ("free", json!({})),
    ] {
        stack.open_sale_with(sale, 4, 2, more).await?;
    }
    for (sale, code) in [
        ("early", "reservation_not_open"),
        ("over", "reservation_closed"),
        ("free", "no_reservation"),
    ] {
        is_told(&reserve(&stack, sale, "alice").await?, 409, code)?;
    }
    for sale in ["early", "open", "over"] {
        let answer = buy(&stack, sale, "alice").await?;
        assert_eq!(decided(&answer), (403, "not_reserved"), "{sale}");
        audited(&stack, sale, 4, 0).await?;
    }
    assert_eq!(reserve(&stack, "open", "alice").await?.status, 201);
    assert_eq!(reserve(&stack, "open", "alice").await?.status, 200);
    order(&stack, "open", "alice").await?;
    let answer = buy(&stack, "open", "bob").await?;
    assert_eq!(decided(&answer), (403, "not_reserved"));
    order(&stack, "free", "bob").await?;
    audited(&stack, "open", 3, 1).await?;
    audited(&stack, "free", 3, 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn user_without_reservation_cannot_buy_until_a_new_one() -> Result<()> {
    let stack = stack("give-up").await?;
    let now = now_ms()?;
    let window = json!({ "from_ms": now - HOUR_MS, "until_ms": now + HOUR_MS / 2 });
    let more = json!({ "reservation": window });
    stack.open_sale_with("s", 4, 2, more).await?;
    let path = "/sales/s/reservations";
    let own = async |method, user| ask(&stack, method, path, Some(user)).await;
    is_told(
        &own(Method::GET, "alice").await?,
        404,
        "unknown_reservation",
    )?;
    assert_eq!(reserve(&stack, "s", "alice").await?.status, 201);
    assert_eq!(reserve(&stack, "s", "bob").await?.status, 201);
    let response = own(Method::GET, "alice").await?;
    assert_eq!(
        (response.status, &response.json()?["state"]),
        (200, &json!("reserved"))
    );
    for _ in 0..2 {
        let reply = own(Method::DELETE, "alice").await?;
        assert_eq!(
            (reply.status, &reply.json()?["state"]),
            (200, &json!("cancelled"))
        );
    }
    is_told(
        &own(Method::GET, "alice").await?,
        404,
        "unknown_reservation",
    )?;
    let answer = buy(&stack, "s", "alice").await?;
    assert_eq!(decided(&answer), (403, "not_reserved"));
    audited(&stack, "s", 4, 0).await?;
    // Another user's order is not accessible.
    order(&stack, "s", "bob").await?;
    assert_eq!(reserve(&stack, "s", "alice").await?.status, 201);
    order(&stack, "s", "alice").await?;
    audited(&stack, "s", 2, 2).await
}

/// The number of risk checks with this outcome.
async fn checked(stack: &Stack, outcome: &str) -> Result<u64> {
    let metrics = http::get(&format!("{}/metrics", stack.origin_admin_url())).await?;
    let name = format!(r#"weir_origin_risk_checks_total{{outcome="{outcome}"}} "#);
    let text = metrics.text();
    let number = text.lines().find_map(|line| line.strip_prefix(&name));
    Ok(number.map_or(Ok(0), str::parse)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn suspected_bot_and_operator_blocked_user_cannot_buy() -> Result<()> {
    let rules =
        r#"{ "rules": [{ "glob": "bot-*", "score": 90 }, { "users": ["odd"], "score": 50 }] }"#;
    let stack = Stack::builder()
        .workers(2)
        .key_prefix("risk")
        .risk_rules(rules)
        .start()
        .await?;
    let now = now_ms()?;
    let window = json!({ "from_ms": now - HOUR_MS, "until_ms": now + HOUR_MS / 2 });
    let more = json!({ "reservation": window });
    stack.open_sale_with("risk", 6, 2, more).await?;
    for user in ["bot-1", "bot-2", "odd", "alice", "carol"] {
        assert_eq!(reserve(&stack, "risk", user).await?.status, 201);
    }
    until("all are checked", async || {
        checked(&stack, "blocked").await.is_ok_and(|n| n == 2)
            && checked(&stack, "passed").await.is_ok_and(|n| n == 3)
    })
    .await?;
    for user in ["bot-1", "bot-2"] {
        let answer = buy(&stack, "risk", user).await?;
        assert_eq!(decided(&answer), (403, "blocked"), "{user}");
    }
    for user in ["odd", "alice"] {
        order(&stack, "risk", user).await?;
    }
    audited(&stack, "risk", 4, 2).await?;

    let carol = "/sales/risk/blocked/carol";
    stack.admin(Method::PUT, carol, "", 204).await?;
    let answer = buy(&stack, "risk", "carol").await?;
    assert_eq!(decided(&answer), (403, "blocked"));
    stack.admin(Method::DELETE, carol, "", 204).await?;
    order(&stack, "risk", "carol").await?;
    audited(&stack, "risk", 3, 3).await
}

#[tokio::test(flavor = "multi_thread")]
async fn order_paid_in_time_is_kept() -> Result<()> {
    let stack = stack("paid").await?;
    let hold = json!({ "payment": { "hold": { "pay_within_ms": HOUR_MS } } });
    stack.open_sale_with("paid", 3, 1, hold).await?;
    let path = order(&stack, "paid", "alice").await?;
    let started = end(&stack, &path, "alice", "pay").await?;
    ensure!(started.status == 201, "{}", started.text());
    let response = ask(&stack, Method::GET, &path, Some("alice")).await?;
    is_told(&response, 200, "unpaid")?;
    pays(&stack, &path, "alice").await?;
    // The provider repeats its callback; another sender does not have the secret.
    let payment = started.json()?["payment"].clone();
    let payment = payment.as_str().context("no payment")?;
    let status_and_name = stack.provider.caller().notify_shop(payment, "paid").await?;
    ensure!(
        status_and_name.json()?["state"] == "paid",
        "{}",
        status_and_name.text()
    );
    let url = format!("{}/payments/callback", stack.gateway_url());
    let secret = "a guess, of thirty-two characters";
    let forger = PaymentProvider::start(ports::free()?, &url, secret).await?;
    let forged = forger.caller().notify_shop(payment, "failed").await?;
    ensure!(forged.status == 403, "{}", forged.text());
    let again = end(&stack, &path, "alice", "pay").await?;
    ensure!((again.status, &again.json()?["state"]) == (200, &json!("paid")));
    let cancelled = end(&stack, &path, "alice", "cancel").await?;
    is_told(&cancelled, 409, "order_paid")?;
    let response = ask(&stack, Method::GET, &path, Some("alice")).await?;
    is_told(&response, 200, "paid")?;
    audited(&stack, "paid", 2, 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sold_out_sale_reopens_when_an_unpaid_order_expires() -> Result<()> {
    let stack = stack("expire").await?;
    let hold = json!({ "payment": { "hold": { "pay_within_ms": 5_000 } } });
    stack.open_sale_with("expire", 1, 1, hold).await?;
    let lost = order(&stack, "expire", "alice").await?;
    audited(&stack, "expire", 0, 1).await?;
    hears_at_last(&stack, "expire", "bob", "all_reserved", &[]).await?;

    let path = buys_at_last(&stack, "expire", "bob", &["all_reserved"]).await?;
    let late = end(&stack, &lost, "alice", "pay").await?;
    is_told(&late, 409, "order_expired")?;
    let response = ask(&stack, Method::GET, &lost, Some("alice")).await?;
    is_told(&response, 200, "expired")?;
    pays(&stack, &path, "bob").await?;
    audited(&stack, "expire", 0, 1).await?;
    is_sold_out(&stack, "expire", "carol").await
}

/// With a hold of one second, a user who reorders at each expiry once got 9 of 11 holds.
#[tokio::test(flavor = "multi_thread")]
async fn user_with_expired_holds_is_blocked_and_others_buy() -> Result<()> {
    let stack = stack("hoard").await?;
    let hold = json!({ "payment": { "hold": { "pay_within_ms": 1_000 } } });
    stack.open_sale_with("hoard", 2, 1, hold).await?;
    let lost = order(&stack, "hoard", "mallory").await?;
    let barred = ["granted_again", "cap_reached", "all_reserved"];
    hears_at_last(&stack, "hoard", "mallory", "blocked", &barred).await?;
    let response = ask(&stack, Method::GET, &lost, Some("mallory")).await?;
    is_told(&response, 200, "expired")?;
    for user in ["alice", "bob"] {
        let path = buys_at_last(&stack, "hoard", user, &["all_reserved"]).await?;
        pays(&stack, &path, user).await?;
    }
    let answer = buy(&stack, "hoard", "mallory").await?;
    assert_eq!(decided(&answer), (403, "blocked"));
    audited(&stack, "hoard", 0, 2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_order_releases_its_unit_to_the_next_buyer() -> Result<()> {
    let stack = stack("cancel").await?;
    stack.open_sale("cancel", 1, 1).await?;
    let path = order(&stack, "cancel", "alice").await?;
    audited(&stack, "cancel", 0, 1).await?;
    is_sold_out(&stack, "cancel", "bob").await?;
    for _ in 0..2 {
        let cancelled = end(&stack, &path, "alice", "cancel").await?;
        is_told(&cancelled, 200, "cancelled")?;
    }
    let next = buys_at_last(&stack, "cancel", "bob", &["sold_out", "all_reserved"]).await?;
    let paid = end(&stack, &path, "alice", "pay").await?;
    is_told(&paid, 409, "order_cancelled")?;
    pays(&stack, &next, "bob").await?;
    audited(&stack, "cancel", 0, 1).await
}

/// Requests get this verdict once gateways have read that SQL has nothing left.
async fn is_sold_out(stack: &Stack, sale: &str, user: &str) -> Result<()> {
    until("gateways know that all is sold", async || {
        let answer = buy(stack, sale, user).await;
        answer.is_ok_and(|answer| decided(&answer) == (409, "sold_out"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn first_payers_get_the_units_when_stock_drops_at_payment() -> Result<()> {
    let stack = stack("at-payment").await?;
    let more = json!({ "payment": "at_payment" });
    stack.open_sale_with("at-payment", 1, 1, more).await?;
    let slow = order(&stack, "at-payment", "alice").await?;
    // Her order leaves the unit in stock after its claim has ended.
    let quick = buys_at_last(&stack, "at-payment", "bob", &["all_reserved"]).await?;
    audited(&stack, "at-payment", 1, 0).await?;
    pays(&stack, &quick, "bob").await?;
    let late = end(&stack, &slow, "alice", "pay").await?;
    is_told(&late, 409, "sold_out")?;
    audited(&stack, "at-payment", 0, 1).await?;
    is_sold_out(&stack, "at-payment", "carol").await?;
    audited(&stack, "at-payment", 0, 1).await
}

/// The headers of a gateway for `user`, correctly signed: the best possible forgery.
fn signed_as(stack: &Stack, user: &str) -> Result<identity::SignedUser> {
    let secrets = Secrets::kept_in(&stack.data_dir().join("secrets.env"))?;
    let key = SigningKey::new("k1", secrets.claim.as_bytes()).ok();
    let ring = KeyRing::new(vec![key.context("no key")?]).ok();
    let user = UserId::new(user).ok().context("no user")?;
    Ok(identity::sign(&ring.context("no keys")?, &user, now_ms()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn order_stays_private_despite_forged_user_headers() -> Result<()> {
    let stack = stack("whose").await?;
    stack.open_sale("whose", 2, 1).await?;
    let path = order(&stack, "whose", "alice").await?;
    let signed = signed_as(&stack, "alice")?;
    let (name, signature) = (headers::USER, headers::USER_SIGNATURE);
    let forged = [(name, &*signed.value), (signature, &*signed.signature)];
    // The forgery is valid: without a gateway in between, the origin accepts it.
    let direct = format!("{}{path}", stack.origin_url());
    let response = http::send(Method::GET, &direct, &forged, "").await?;
    is_told(&response, 200, "unpaid")?;

    for (method, subject) in [
        (Method::GET, ""),
        (Method::POST, "/pay"),
        (Method::POST, "/cancel"),
    ] {
        let url = format!("{}{path}{subject}", stack.gateway_url());
        for forged in [&[][..], &forged] {
            let mut headers = vec![("x-user-id", "bob")];
            headers.extend(forged);
            let answer = http::send(method.clone(), &url, &headers, "").await?;
            is_told(&answer, 404, "unknown_order")?;
            let answer = http::send(method.clone(), &url, forged, "").await?;
            is_told(&answer, 401, "user_missing")?;
        }
    }
    buys_as_herself_with_a_forged_claim(&stack).await?;
    pays(&stack, &path, "alice").await?;
    audited(&stack, "whose", 0, 2).await
}

async fn buys_as_herself_with_a_forged_claim(stack: &Stack) -> Result<()> {
    let forged = [
        ("x-user-id", "bob"),
        (headers::CLAIM, "v1;whose;alice"),
        (headers::CLAIM_SIGNATURE, "k1;00"),
        (headers::USER, "v1;1;alice"),
    ];
    let response = http::send(Method::POST, &stack.buy_url("whose"), &forged, "").await?;
    ensure!(
        decided(&response) == (201, "granted"),
        "{}",
        response.text()
    );
    ensure!(response.json()?["user"] == "bob", "{}", response.text());
    Ok(())
}
