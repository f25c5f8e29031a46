//! Events from a gateway through the origin's log to the lists of viewed products, with all real parts.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_stack::http::{self, Method};
use weir_stack::{Stack, ports, redis};
use weir_tests::until;

/// Events per request.
const BATCH: usize = 10;

/// Each customer's viewed products, with times.
type Model = BTreeMap<String, BTreeMap<String, u64>>;

struct Shop {
    stack: Stack,
    events: String,
    model: Model,
    acknowledged: BTreeSet<String>,
    next: u64,
    last_ms: u64,
}

impl Shop {
    async fn open(prefix: &str) -> Result<Self> {
        let builder = Stack::builder().workers(1).key_prefix(prefix).events();
        let mut stack = builder.start().await?;
        let events = stack.start_event_gateway(ports::free()?).await?;
        let sku = json!({ "type": ["string", "integer"] });
        let schema = json!({ "type": "object", "required": ["sku"], "properties": { "sku": sku } });
        let view = json!({ "schema": schema }).to_string();
        put(&stack, "/events/types/view", &view).await?;
        Ok(Self {
            stack,
            events,
            model: Model::new(),
            acknowledged: BTreeSet::new(),
            next: 0,
            last_ms: 0,
        })
    }

    /// The next views, all later than earlier ones: the customers take turns, and some products repeat.
    fn batch(&mut self) -> Result<Vec<Value>> {
        let now_ms = u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?;
        let mut batch = Vec::new();
        for _ in 0..BATCH {
            let n = self.next;
            self.next += 1;
            batch.push(json!({
                "id": format!("view-{n}"),
                "type": "view",
                "customer": format!("customer-{}", n % 3),
                "at_ms": now_ms.max(self.last_ms + 1),
                "attributes": { "sku": (n * 7) % 50 },
            }));
            self.last_ms = now_ms.max(self.last_ms + 1);
        }
        Ok(batch)
    }

    /// Sends a batch once; returns whether it was acknowledged.
    async fn send(&mut self, batch: &[Value]) -> Result<bool> {
        let headers = [
            ("content-type", "application/json"),
            ("x-weir-write-key", self.stack.event_key.as_str()),
        ];
        let body = json!(batch).to_string();
        let url = format!("{}/events", self.events);
        let Ok(answer) = http::send(Method::POST, &url, &headers, body).await else {
            return Ok(false);
        };
        if answer.status != 202 {
            ensure!(answer.status == 503, "{answer:?}");
            return Ok(false);
        }
        let document = answer.json()?;
        ensure!(document["rejected"] == 0, "{document}");
        for event in batch {
            let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
            self.acknowledged.insert(text(&event["id"])?);
            let list = self.model.entry(text(&event["customer"])?).or_default();
            let at_ms = event["at_ms"].as_u64().context("no time")?;
            list.insert(event["attributes"]["sku"].to_string(), at_ms);
        }
        Ok(true)
    }

    /// Sends a batch until it is acknowledged.
    async fn send_at_last(&mut self) -> Result<()> {
        let batch = self.batch()?;
        for _ in 0..600 {
            if self.send(&batch).await? {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        anyhow::bail!("a batch is not acknowledged");
    }

    /// A customer's list from the gateway.
    async fn list(&self, customer: &str) -> Result<BTreeMap<String, u64>> {
        let url = format!("{}/history?limit=200", self.stack.gateway_url());
        let answer = http::send(Method::GET, &url, &[("x-user-id", customer)], "").await?;
        ensure!(answer.status == 200, "{answer:?}");
        let body = answer.json()?;
        ensure!(body["complete"] == true, "{body}");
        let items = body["items"].as_array().context("no items")?;
        let times: Vec<u64> = items
            .iter()
            .filter_map(|item| item["viewed_at_ms"].as_u64())
            .collect();
        ensure!(
            times.is_sorted_by(|a, b| a >= b),
            "the latest first: {body}"
        );
        let sku = |item: &Value| item["sku"].as_str().unwrap_or_default().to_owned();
        Ok(items.iter().map(sku).zip(times).collect())
    }

    async fn lists_match_the_model(&self, why: &str) -> Result<()> {
        for (customer, model) in &self.model {
            until(&format!("{customer} sees it all {why}"), async || {
                self.list(customer).await.is_ok_and(|list| list == *model)
            })
            .await?;
        }
        Ok(())
    }

    /// All product IDs of a customer in the store.
    async fn stored(&self, customer: &str) -> Result<Vec<String>> {
        let path = format!("/customers/{customer}/events?limit=1000");
        let page = self.stack.admin(Method::GET, &path, "", 200).await?;
        ensure!(page["next_page"].is_null(), "more than a page");
        let events = page["events"].as_array().context("no events")?;
        let id = |event: &Value| event["id"].as_str().map(str::to_owned);
        events
            .iter()
            .map(|event| id(event).context("no id"))
            .collect()
    }
}

async fn put(stack: &Stack, path: &str, body: &str) -> Result<()> {
    let url = format!("{}{path}", stack.origin_admin_url());
    let token = format!("Bearer {}", stack.admin_token);
    let headers = [
        ("authorization", token.as_str()),
        ("content-type", "application/json"),
    ];
    let answer = http::send(Method::PUT, &url, &headers, body.to_owned()).await?;
    ensure!(answer.status < 300, "{}", answer.text());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_events_are_stored_once_and_shown_after_crashes() -> Result<()> {
    let mut shop = Shop::open("views").await?;
    for _ in 0..5 {
        shop.send_at_last().await?;
    }
    shop.lists_match_the_model("at once").await?;

    // The origin is killed mid-stream, twice. Clients repeat batches, including those that it may have stored.
    for _ in 0..2 {
        let accepted = shop.batch()?;
        shop.send(&accepted).await?;
        shop.stack.origin.process().kill();
        ensure!(!shop.send(&accepted).await?, "nobody can have taken it");
        shop.stack.origin.start_again().await?;
        until("it is taken again", async || {
            http::get(&format!("{}/events", shop.events)).await.is_ok()
        })
        .await?;
        for _ in 0..600 {
            if shop.send(&accepted).await? {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        shop.send_at_last().await?;
    }
    shop.lists_match_the_model("after the origin died").await?;
    let mut stored = Vec::new();
    for customer in shop.model.keys() {
        stored.extend(shop.stored(customer).await?);
    }
    stored.sort();
    let acknowledged: Vec<String> = shop.acknowledged.iter().cloned().collect();
    assert_eq!(stored, acknowledged, "each once, and none is missing");

    // Redis loses all lists: the group applies the views again, from the log.
    let mut connection = redis::connect(shop.stack.redis_url()).await?;
    let () = ::redis::cmd("FLUSHALL")
        .query_async(&mut connection)
        .await?;
    let seek = json!({ "to": "start" }).to_string();
    let seek = shop
        .stack
        .admin(Method::POST, "/groups/history/seek", &seek, 200);
    seek.await?;
    shop.lists_match_the_model("after Redis lost all").await?;
    shop.stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_views_stay_deleted_after_replay() -> Result<()> {
    let mut shop = Shop::open("forget").await?;
    for _ in 0..3 {
        shop.send_at_last().await?;
    }
    shop.lists_match_the_model("at once").await?;
    let alice = [("x-user-id", "customer-0")];
    let gateway = shop.stack.gateway_url();
    let sku = shop.model["customer-0"]
        .keys()
        .next()
        .context("a view")?
        .clone();
    let one = format!("{gateway}/history/{sku}");
    let deleted = http::send(Method::DELETE, &one, &alice, "").await?;
    ensure!(deleted.status < 300, "{}", deleted.text());
    let bob = [("x-user-id", "customer-1")];
    let cleared = http::send(Method::DELETE, &format!("{gateway}/history"), &bob, "").await?;
    ensure!(cleared.status < 300, "{}", cleared.text());
    shop.model
        .entry("customer-0".into())
        .or_default()
        .remove(&sku);
    shop.model.insert("customer-1".into(), BTreeMap::new());
    shop.lists_match_the_model("less what was deleted").await?;

    let seek = json!({ "to": "start" }).to_string();
    let seek = shop
        .stack
        .admin(Method::POST, "/groups/history/seek", &seek, 200);
    seek.await?;
    // A later event is visible, so earlier ones were handled.
    shop.send_at_last().await?;
    shop.lists_match_the_model("though all was handled again")
        .await?;
    // The origin accepts a user only with the gateway's signature.
    let direct = format!("{}/history", shop.stack.origin_url());
    let forged = http::send(Method::GET, &direct, &alice, "").await?;
    ensure!(forged.status == 401 || forged.status == 403, "{forged:?}");
    Ok(())
}
