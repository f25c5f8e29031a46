//! The outbox of a real process: killed between an order and its delivery, and with an event log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_stack::http;
use weir_stack::origin::Origin;

use crate::outbox::{ANYWHERE, Receiver, SECRET, listen, until};
use crate::process::options;
use crate::support::{self, TOKEN, World, claim_headers};

async fn get(origin: &Origin, path: &str) -> Value {
    let bearer = format!("Bearer {TOKEN}");
    let url = format!("{}{path}", origin.admin_url());
    let headers = [("authorization", bearer.as_str())];
    let answer = http::send("GET".parse().unwrap(), &url, &headers, "").await;
    serde_json::from_str(&answer.unwrap().text()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_orders_are_published_after_kill_and_are_in_log() {
    let world = World::with_sale("s", 8).await;
    let receiver = Arc::new(Receiver::default());
    // No receiver listens for a while.
    let (address, listening) = listen(&receiver, ANYWHERE.into()).await;
    drop(listening);
    let mut options = options(world.dir.path(), &world.redis_url, &world.prefix);
    options.events_log = Some(world.dir.path().join("events"));
    options.flags = [
        "--orders-webhook-url",
        &format!("http://{address}/hook"),
        "--orders-events",
    ]
    .map(str::to_owned)
    .to_vec();
    options.secrets.events = String::from_utf8(SECRET.to_vec()).unwrap();
    let log = world.dir.path().join("origin.log");
    let mut origin = Origin::start(&support::binary(), options, &log)
        .await
        .unwrap();
    let ticket = world.claim("s", "alice").await;
    let order = ticket.claim_id().to_string();
    let headers = claim_headers(&ticket).map(|(n, v)| (n, String::from_utf8(v).unwrap()));
    let headers = headers
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let url = format!("{}/orders", origin.url());
    let response = http::send("POST".parse().unwrap(), &url, &headers, "").await;
    assert_eq!(response.unwrap().status, 201);
    origin.process().kill();
    assert_eq!(receiver.sequences(&order), [] as [u64; 0]);

    let (_, _listening) = listen(&receiver, address).await;
    origin.start_again().await.unwrap();
    until("it is told", || receiver.sequences(&order) == [1]).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let events = get(&origin, "/customers/alice/events").await;
        if events["events"][0]["type"] == "order.created" {
            assert_eq!(events["events"][0]["attributes"]["order"]["order"], *order);
            return;
        }
        assert!(Instant::now() < deadline, "never in the log: {events}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
