//! Two tenants on one stack: they sell concurrently, and one's actions, failures and attempts do not affect the other.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_stack::http::{self, Method, Response};
use weir_stack::{Stack, sale};
use weir_tests::{buy, rush, stock_balance, users, verdict};

/// A tenant's admin.
struct Tenant<'a> {
    stack: &'a Stack,
    name: &'static str,
    key: String,
}

impl<'a> Tenant<'a> {
    async fn new(stack: &'a Stack, name: &'static str, limits: Value) -> Result<Self> {
        let new = json!({ "title": name, "limits": limits }).to_string();
        let path = format!("/tenants/{name}");
        stack.admin(Method::PUT, &path, &new, 201).await?;
        let key = json!({ "name": name, "role": "admin", "tenant": name }).to_string();
        let response = stack.admin(Method::POST, "/access/keys", &key, 201).await?;
        let key = response["key"].as_str().context("no key")?.to_owned();
        Ok(Self { stack, name, key })
    }

    /// The global name of the tenant's object.
    fn named(&self, name: &str) -> String {
        format!("{}--{name}", self.name)
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Response> {
        let bearer = format!("Bearer {}", self.key);
        let headers = [
            ("authorization", bearer.as_str()),
            ("idempotency-key", "a-key"),
        ];
        let url = format!("{}{path}", self.stack.origin_admin_url());
        http::send(method, &url, &headers, body.to_string()).await
    }

    async fn does(&self, method: Method, path: &str, body: &Value, status: u16) -> Result<Value> {
        let answer = self.ask(method, path, body).await?;
        let message = format!("{}: {path}: {} {}", self.name, answer.status, answer.text());
        ensure!(answer.status == status, "{message}");
        match status {
            204 => Ok(Value::Null),
            _ => answer.json(),
        }
    }

    /// Creates and warms a sale of the tenant, loaded by every worker.
    async fn sells(&self, name: &str, total: u64) -> Result<String> {
        let id = self.named(name);
        let new = sale::sale_json(&id, total, 2)?;
        self.does(Method::POST, "/sales", &new, 201).await?;
        let path = format!("/sales/{id}/warm");
        self.does(Method::POST, &path, &Value::Null, 200).await?;
        self.stack.wait_until_known(&id).await?;
        Ok(id)
    }
}

/// Sends requests of `user` until the verdict is `word`: gateways apply operators' changes with a delay.
async fn gets_verdict(stack: &Stack, sale: &str, user: &str, word: &str) -> Result<()> {
    let message = format!("{user} hears {word} of {sale}");
    weir_tests::until(&message, async || {
        let answer = buy(stack, sale, user).await;
        answer.is_ok_and(|answer| verdict(&answer) == word)
    })
    .await
}

fn sold(verdicts: &BTreeMap<String, usize>) -> usize {
    verdicts.get("granted").copied().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_sell_under_one_name_without_reaching_each_other() -> Result<()> {
    let stack = Stack::builder()
        .workers(2)
        .key_prefix("tenants")
        .start()
        .await?;
    let north = Tenant::new(&stack, "north", json!({ "units": 60, "sales": 2 })).await?;
    let south = Tenant::new(&stack, "south", json!({ "requests_per_second": 20 })).await?;
    let (norths, souths) = (north.sells("tee", 50).await?, south.sells("tee", 30).await?);

    // Concurrently, to the last unit of each, with the same users.
    let crowd = || users(0..120);
    let (one, other) = tokio::try_join!(
        rush(&stack, &norths, crowd(), 16),
        rush(&stack, &souths, crowd(), 16)
    )?;
    ensure!((sold(&one), sold(&other)) == (50, 30), "{one:?} {other:?}");
    for id in [&norths, &souths] {
        let stock_balance = stock_balance(&stack, id).await?;
        ensure!(stock_balance.balance(), "{id}: {stock_balance:?}");
    }

    // A request beyond a tenant's quota is refused only for it.
    let stock = |id: &str| format!("/sales/{id}/stock");
    let (path, much) = (stock(&norths), json!({ "units": 11 }));
    let over = north.ask(Method::POST, &path, &much);
    let over = over.await?;
    ensure!(
        over.status == 409 && over.json()?["error"] == "tenant_limit",
        "{}",
        over.text()
    );
    for (tenant, id) in [(&north, &norths), (&south, &souths)] {
        let more = json!({ "units": 10 });
        tenant.does(Method::POST, &stock(id), &more, 200).await?;
    }

    // One blocks a user and closes a sale; the other keeps selling.
    let blocked = format!("/sales/{souths}/blocked/late");
    south.does(Method::PUT, &blocked, &Value::Null, 204).await?;
    gets_verdict(&stack, &souths, "late", "blocked").await?;
    gets_verdict(&stack, &norths, "late", "granted").await?;
    let close = format!("/sales/{souths}/close");
    south.does(Method::POST, &close, &Value::Null, 200).await?;
    gets_verdict(&stack, &souths, "later", "closed").await?;
    gets_verdict(&stack, &norths, "later", "granted").await?;

    // The other tenant's objects do not exist for it, and global objects belong to the platform.
    for (method, path, body, status) in [
        (Method::GET, format!("/sales/{norths}"), Value::Null, 404),
        (
            Method::POST,
            format!("/sales/{norths}/close"),
            Value::Null,
            404,
        ),
        (
            Method::POST,
            format!("/sales/{norths}/rebuild"),
            Value::Null,
            404,
        ),
        (
            Method::PUT,
            format!("/sales/{norths}/blocked/user-1"),
            Value::Null,
            404,
        ),
        (
            Method::PUT,
            "/rooms/north--shop".into(),
            json!({ "mode": "closed" }),
            404,
        ),
        (
            Method::PUT,
            "/switch".into(),
            json!({ "state": "closed" }),
            403,
        ),
        (
            Method::PUT,
            "/tenants/south".into(),
            json!({ "title": "s" }),
            403,
        ),
    ] {
        south.does(method, &path, &body, status).await?;
    }
    gets_verdict(&stack, &norths, "last", "granted").await?;
    let listed = south.does(Method::GET, "/sales", &Value::Null, 200).await?;
    ensure!(!listed.to_string().contains("north"), "{listed}");

    // A tenant that floods is told to wait; the other is served.
    let mut waits = 0;
    for _ in 0..100 {
        let answer = south.ask(Method::GET, "/sales", &Value::Null).await?;
        waits += usize::from(answer.status == 429);
    }
    ensure!(waits > 10, "{waits}");
    north.does(Method::GET, "/sales", &Value::Null, 200).await?;
    let stock_balance = stock_balance(&stack, &norths).await?;
    ensure!(
        stock_balance.balance() && stock_balance.total == 60,
        "{stock_balance:?}"
    );
    Ok(())
}
