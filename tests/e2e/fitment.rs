//! Fitment queries through Envoy: never a wrong answer, even after a loss of data or of a server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_stack::http::{self, Method, Response};
use weir_stack::{Stack, ports};
use weir_tests::{is_left_out_on_native, until, use_garage};

use crate::metrics::{Gateways, documented, scraped};

const VEHICLES: u32 = 40;
const SKUS: u32 = 12;

/// Whether SKU `sku` fits vehicle `vehicle`.
fn fits(sku: u32, vehicle: u32) -> bool {
    (vehicle * 7 + sku).is_multiple_of(3)
}

struct Shop {
    stack: Stack,
    gateway: String,
}

impl Shop {
    async fn open(prefix: &str) -> Result<Self> {
        let builder = Stack::builder().workers(2).key_prefix(prefix).fitment();
        let mut stack = builder.start().await?;
        let mut vehicles = "vehicle,make,model,year\n".to_owned();
        let mut products = "sku,spu,type,merchant\n".to_owned();
        let mut relations = "sku,vehicle\n".to_owned();
        for vehicle in 0..VEHICLES {
            vehicles += &format!("{},Make,Model,2020\n", id(vehicle));
        }
        for sku in 0..SKUS {
            products += &format!("S{sku},P{},tyre,m1\n", sku / 4);
            for vehicle in (0..VEHICLES).filter(|vehicle| fits(sku, *vehicle)) {
                relations += &format!("S{sku},{}\n", id(vehicle));
            }
        }
        for (kind, file) in [
            ("vehicles", vehicles),
            ("products", products),
            ("relations", relations),
        ] {
            import(&stack, kind, &file).await?;
        }
        let gateway = stack.start_fitment_gateway(ports::free()?).await?;
        let shop = Self { stack, gateway };
        shop.is_answered_here().await?;
        Ok(shop)
    }

    /// Waits until the gateway's workers have all vehicles and Redis has all SKUs.
    async fn is_answered_here(&self) -> Result<()> {
        until("the gateway answers by itself", async || {
            let before = self.counts().await;
            for _ in 0..20 {
                if self.ask_all().await.is_err() {
                    return false;
                }
            }
            // Workers report their counts once a second.
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            match (before, self.counts().await) {
                (Ok(before), Ok(now)) => now[0] >= before[0] + 20 && now[1] == before[1],
                _ => false,
            }
        })
        .await
    }

    /// Queries answered by the gateway, and those that it forwarded.
    async fn counts(&self) -> Result<[u64; 2]> {
        let others = self.count("forwarded").await? + self.count("limited").await?;
        Ok([self.count("answered").await?, others])
    }

    async fn ask(&self, vehicles: &[String], skus: &[String]) -> Result<Response> {
        let body = json!({ "vehicles": vehicles, "skus": skus }).to_string();
        self.post(body).await
    }

    async fn post(&self, body: String) -> Result<Response> {
        let url = format!("{}/fitment/check", self.gateway);
        let headers = [("content-type", "application/json")];
        http::send(Method::POST, &url, &headers, body).await
    }

    /// Queries all SKUs for some vehicles; each pair must be right. Returns whether no pair is unknown.
    async fn ask_all(&self) -> Result<bool> {
        let vehicles: Vec<String> = (0..5).map(|n| id(n * 7)).collect();
        let skus: Vec<String> = (0..SKUS).map(|sku| format!("S{sku}")).collect();
        let answer = self.ask(&vehicles, &skus).await?;
        if answer.status == 503 {
            ensure!(answer.header("retry-after").is_some(), "{answer:?}");
            return Ok(false);
        }
        ensure!(answer.status == 200, "{answer:?}");
        let body = answer.json()?;
        let mut is_known = true;
        for sku in 0..SKUS {
            for n in 0..5 {
                let response = &body["skus"][sku as usize]["answers"][n as usize];
                let right = if fits(sku, n * 7) { "fits" } else { "does_not" };
                ensure!(
                    response == right || response == "unknown",
                    "S{sku}, {}: {response}",
                    id(n * 7)
                );
                is_known &= response == right;
            }
        }
        Ok(is_known)
    }

    /// Queries with this outcome at the gateway.
    async fn count(&self, outcome: &str) -> Result<u64> {
        let gateway = self.stack.fitment_gateway.as_ref().context("no gateway")?;
        let url = format!(
            "{}/stats?filter=weir_fitment_requests_total",
            gateway.admin_url()
        );
        let text = http::get(&url).await?.text();
        let line = text
            .lines()
            .find(|line| line.contains(&format!("outcome.{outcome}:")));
        let value = line.and_then(|line| line.rsplit(' ').next());
        Ok(value.map_or(Ok(0), str::parse)?)
    }
}

fn id(vehicle: u32) -> String {
    format!("{}", 1_000_001 + vehicle * 11)
}

async fn import(stack: &Stack, kind: &str, file: &str) -> Result<()> {
    let path = format!("/fitment/imports?kind={kind}&format=csv");
    let accepted = stack.admin(Method::POST, &path, file, 202).await?;
    let path = format!("/fitment/imports/{}", accepted["id"]);
    until("an import is done", async || {
        let import = stack.admin(Method::GET, &path, "", 200).await;
        import.is_ok_and(|import| import["state"] == "done")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_answers_questions_and_origin_answers_unknown_ones() -> Result<()> {
    let shop = Shop::open("fitment").await?;
    ensure!(shop.ask_all().await?);
    let forwarded = shop.count("forwarded").await?;
    let answer = shop
        .ask(&[id(0), "9999999".into()], &["S0".into(), "S99".into()])
        .await?;
    let body = answer.json()?;
    ensure!(
        body["skus"][0]["answers"] == json!(["fits", "unknown"]),
        "{body}"
    );
    ensure!(
        body["skus"][1]["answers"] == json!(["unknown", "unknown"]),
        "{body}"
    );
    until("it is counted", async || {
        shop.count("forwarded")
            .await
            .is_ok_and(|now| now > forwarded)
    })
    .await?;
    let gateway = shop.stack.fitment_gateway.as_ref().context("no gateway")?;
    let url = format!("{}/stats/prometheus", gateway.admin_url());
    ensure!(scraped(&url).await? == documented(Gateways::Fitment));
    // Pages: first from the origin, then from Redis.
    let url = format!("{}/fitment/skus?vehicle={}", shop.gateway, id(0));
    let right: Vec<String> = (0..SKUS)
        .filter(|sku| fits(*sku, 0))
        .map(|sku| format!("S{sku}"))
        .collect();
    let before = shop.count("answered").await?;
    until("a page comes from Redis", async || {
        let Ok(page) = http::get(&url).await.and_then(|page| page.json()) else {
            return false;
        };
        assert_eq!(page["skus"], json!(right), "{page}");
        shop.count("answered").await.is_ok_and(|now| now > before)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn garage_requests_pass_through_the_sales_gate() -> Result<()> {
    let builder = Stack::builder().workers(1).key_prefix("garage");
    let stack = builder.fitment().start().await?;
    use_garage(&stack, &stack.gateway_url()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn garage_requests_pass_through_all_filters() -> Result<()> {
    if is_left_out_on_native("the shipped file for WebAssembly") {
        return Ok(());
    }
    let links = json!({ "domains": [{ "id": "s", "hosts": ["link.localhost"] }] });
    let builder = Stack::builder().workers(1).key_prefix("garage-all");
    let builder = builder.all_filters().links(links.to_string());
    let stack = builder.events().fitment().start().await?;
    use_garage(&stack, &stack.gateway_url()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_loss_never_causes_a_wrong_answer() -> Result<()> {
    let shop = Shop::open("fitment-lost").await?;
    let server = shop.stack.redis.server.as_ref();
    let mut connection = server.context("its own Redis")?.connection().await?;
    let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await?;
    for _ in 0..100 {
        shop.ask_all().await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    shop.is_answered_here().await?;
    ensure!(shop.ask_all().await?, "it came back by itself");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_half_of_redis_is_unknown_until_origin_repairs_it() -> Result<()> {
    let shop = Shop::open("fitment-half").await?;
    let server = shop.stack.redis.server.as_ref();
    let mut connection = server.context("its own Redis")?.connection().await?;
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("fitment-half:fit:{P*:s:*")
        .query_async(&mut connection)
        .await?;
    ensure!(keys.len() == SKUS as usize, "{keys:?}");
    for key in keys.iter().step_by(2) {
        let _: () = redis::cmd("DEL")
            .arg(key)
            .query_async(&mut connection)
            .await?;
    }
    for _ in 0..100 {
        shop.ask_all().await?;
    }
    shop.is_answered_here().await
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_outage_returns_only_503() -> Result<()> {
    let mut shop = Shop::open("fitment-down").await?;
    shop.stack
        .redis
        .server
        .as_mut()
        .context("its own Redis")?
        .stop();
    for _ in 0..20 {
        ensure!(!shop.ask_all().await?, "nobody can know");
    }
    let server = shop.stack.redis.server.as_mut().context("its own Redis")?;
    server.start_again().await?;
    shop.is_answered_here().await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_wrong_while_products_move() -> Result<()> {
    let shop = Shop::open("fitment-move").await?;
    let moving = async {
        for round in 0..10 {
            for sku in 0..SKUS {
                let product = json!({
                    "spu": format!("Q{}", (sku + round) % 5), "type": "tyre", "merchant": "m1",
                });
                let path = format!("/fitment/products/S{sku}");
                shop.stack
                    .admin(Method::PUT, &path, &product.to_string(), 204)
                    .await?;
            }
        }
        anyhow::Ok(())
    };
    tokio::pin!(moving);
    let mut requested = 0;
    loop {
        tokio::select! {
            moved = &mut moving => { moved?; break; }
            existing = shop.ask_all() => { existing?; requested += 1; }
        }
    }
    ensure!(requested > 10, "{requested} questions were asked meanwhile");
    shop.is_answered_here().await
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_answers_fitment_bodies_of_any_kind() -> Result<()> {
    let shop = Shop::open("fitment-bodies").await?;
    let refused = |answer: &Response| {
        let document: Value = answer.json().unwrap_or_default();
        document["error"].as_str().unwrap_or_default().to_owned()
    };
    let many: Vec<String> = (0..201).map(|n| format!("S{n}")).collect();
    let answer = shop.ask(&[id(0)], &many).await?;
    ensure!((answer.status, refused(&answer)) == (422, "invalid_sku_count".into()));
    let six: Vec<String> = (0..6).map(id).collect();
    let answer = shop.ask(&six, &["S1".into()]).await?;
    ensure!((answer.status, refused(&answer)) == (422, "invalid_vehicle_count".into()));
    let answer = shop.ask(&["10000x1".into()], &["S1".into()]).await?;
    ensure!((answer.status, refused(&answer)) == (422, "invalid_vehicle".into()));
    let answer = shop.post("{".into()).await?;
    ensure!((answer.status, refused(&answer)) == (400, "invalid_body".into()));
    let answer = shop.post(" ".repeat(70_000)).await?;
    ensure!((answer.status, refused(&answer)) == (413, "body_too_long".into()));
    // Without a length, Envoy or the filter refuses a body that is too large.
    let long = chunked(&shop, &vec![" ".repeat(10_000); 10], Duration::ZERO).await?;
    ensure!(long.starts_with("HTTP/1.1 413"), "{long}");
    let body = json!({ "vehicles": [id(0)], "skus": ["S0", "S1"] }).to_string();
    let pieces: Vec<String> = body
        .as_bytes()
        .chunks(9)
        .map(|chunk| String::from_utf8_lossy(chunk).into())
        .collect();
    let slow = chunked(&shop, &pieces, Duration::from_millis(20)).await?;
    ensure!(
        slow.starts_with("HTTP/1.1 200") && slow.contains("does_not"),
        "{slow}"
    );
    ensure!(shop.ask_all().await?);
    Ok(())
}

/// Sends pieces as chunks, and reads the response until the server closes the connection.
async fn chunked(shop: &Shop, pieces: &[String], pause: Duration) -> Result<String> {
    let authority = shop.gateway.trim_start_matches("http://");
    let mut stream = TcpStream::connect(authority).await?;
    let head = "POST /fitment/check HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    for segment in pieces {
        let chunk = format!("{:x}\r\n{segment}\r\n", segment.len());
        // After an early response, the server need not read on.
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
        tokio::time::sleep(pause).await;
    }
    let _ = stream.write_all(b"0\r\n\r\n").await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
