//! Order administration: search, export, cancel and refund.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{TOKEN, World};

/// `[stock, claims, orders, drift]` of sale `s`.
async fn terms(world: &World) -> Value {
    let answer = world.admin("GET", "/sales/s/audit", &Value::Null).await;
    let terms = &answer.body["terms"];
    json!([
        terms["stock"],
        terms["claims"],
        terms["orders"],
        terms["drift"]
    ])
}

async fn buy(world: &World, name: &str) -> String {
    let ticket = world.claim("s", name).await;
    let response = world.order(&ticket).await;
    assert_eq!(response.status, 201, "{response:?}");
    ticket.claim_id().to_string()
}

async fn post(world: &World, path: &str) -> crate::support::Answer {
    world.admin("POST", path, &Value::Null).await
}

async fn get(world: &World, path: &str) -> Value {
    let answer = world.admin("GET", path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.body
}

#[tokio::test]
async fn refund_ends_order_releases_unit_once_and_states_amount() {
    for payment in ["at_order", "at_payment"] {
        let world = World::with_outbox().await;
        world.sale_with("s", 4, json!({ "payment": payment })).await;
        let order = buy(&world, "alice").await;
        let path = format!("/orders/{order}");
        let early = post(&world, &format!("{path}/refund")).await;
        assert_eq!(
            (early.status.as_u16(), early.code()),
            (409, "order_not_paid")
        );
        world.pay("alice", &path).await;
        assert_eq!(terms(&world).await, json!([3, 0, 1, 0]), "{payment}");
        let cancel = post(&world, &format!("{path}/cancel")).await;
        assert_eq!((cancel.status.as_u16(), cancel.code()), (409, "order_paid"));
        for _ in 0..2 {
            let refund = post(&world, &format!("{path}/refund")).await;
            assert_eq!(refund.status, 200, "{refund:?}");
            assert_eq!(refund.body["status"], "cancelled");
            assert_eq!(refund.body["payment"]["state"], "refund_due");
            assert_eq!(refund.body["payment"]["reason"], "operator");
            assert_eq!(terms(&world).await, json!([4, 0, 0, 0]), "{payment}");
        }
        assert_eq!(world.remaining().await, 4);
        let response = world.as_user("alice", "GET", &path).await;
        assert_eq!(response.body["payment"]["state"], "refund_due");
        // The provider reports the payment again: nothing more happens.
        let again = world
            .callback("again", &format!("{order}.p1"), "paid")
            .await;
        assert_eq!(again.body["state"], "refund_due");

        let message = format!("/payments/{order}.p1/refunded");
        let message = world
            .admin("POST", &message, &json!({ "reference": "re_17" }))
            .await;
        assert_eq!(message.body["state"], "refunded", "{message:?}");
        let response = get(&world, &path).await;
        assert_eq!(response["payments"][0]["reference"], "re_17");
        let changes = get(&world, &format!("{path}/changes")).await;
        let kinds = changes["changes"].as_array().unwrap().iter();
        let kinds: Vec<&str> = kinds.map(|one| one["type"].as_str().unwrap()).collect();
        assert_eq!(
            kinds,
            [
                "order.created",
                "order.paid",
                "order.cancelled",
                "order.refund_due",
                "order.refunded"
            ]
        );
        // The user may buy again, and the stock balance is correct.
        buy(&world, "alice").await;
        world.origin.sales().jobs().round().await.unwrap();
        assert_eq!(terms(&world).await.as_array().unwrap()[3], 0);
    }
}

#[tokio::test]
async fn operator_cancels_any_order_and_runs_a_batch() {
    let world = World::new().await;
    world
        .sale_with(
            "s",
            8,
            json!({ "payment": { "hold": { "pay_within_ms": 60_000 } } }),
        )
        .await;
    let [unpaid, paid, again] = [
        buy(&world, "alice").await,
        buy(&world, "bob").await,
        buy(&world, "carol").await,
    ];
    world.pay("bob", &format!("/orders/{paid}")).await;
    let cancelled = post(&world, &format!("/orders/{again}/cancel")).await;
    assert_eq!(cancelled.body["status"], "cancelled", "{cancelled:?}");
    let orders = json!([unpaid, paid, again, "s.0.1"]);
    let act = async |action: &str| {
        let actions = json!({ "action": action, "orders": orders });
        let acted = world.admin("POST", "/order-batches", &actions).await;
        assert_eq!(acted.status, 200, "{acted:?}");
        let verdicts = acted.body["verdicts"].as_array().unwrap().iter();
        verdicts
            .map(|one| one["verdict"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        act("cancel").await,
        ["done", "order_paid", "done_before", "unknown_order"]
    );
    assert_eq!(
        act("refund").await,
        ["order_not_paid", "done", "order_not_paid", "unknown_order"]
    );
    assert_eq!(act("refund").await[1], "done_before");
    assert_eq!(terms(&world).await, json!([8, 0, 0, 0]));
    // The user is not blocked.
    buy(&world, "alice").await;
    let none = json!({ "action": "cancel", "orders": [] });
    let none = world.admin("POST", "/order-batches", &none).await;
    assert_eq!((none.status.as_u16(), none.code()), (422, "invalid_orders"));
}

#[tokio::test]
async fn orders_are_found_by_sale_user_status_and_time_page_by_page() {
    let world = World::with_sale("s", 16).await;
    world.sale("t", 4).await;
    let mut orders = Vec::new();
    for n in 0..7 {
        orders.push(buy(&world, &format!("user-{n}")).await);
    }
    let ticket = world.claim("t", "user-3").await;
    assert_eq!(world.order(&ticket).await.status, 201);
    world.pay("user-3", &format!("/orders/{}", orders[3])).await;
    let ids = |page: &Value| -> Vec<String> {
        let orders = page["orders"].as_array().unwrap().iter();
        orders
            .map(|order| order["order"].as_str().unwrap().to_owned())
            .collect()
    };
    for (sort, expected) in [
        ("oldest", orders.clone()),
        ("newest", orders.iter().rev().cloned().collect()),
    ] {
        let (mut observed, mut after) = (Vec::new(), String::new());
        loop {
            let page = get(
                &world,
                &format!("/orders?sale=s&sort={sort}&limit=3{after}"),
            )
            .await;
            observed.extend(ids(&page));
            let Some(next) = page["next"].as_str() else {
                break;
            };
            after = format!("&after={next}");
        }
        // Orders of the same millisecond are sorted by id.
        let mut seen_sorted = observed.clone();
        let mut expected = expected;
        expected.sort();
        seen_sorted.sort();
        assert_eq!(seen_sorted, expected, "{sort}");
        let page = get(&world, &format!("/orders?sale=s&sort={sort}")).await;
        assert_eq!(ids(&page), observed, "{sort}");
        let times = page["orders"].as_array().unwrap().iter();
        let times: Vec<u64> = times
            .map(|order| order["created_at_ms"].as_u64().unwrap())
            .collect();
        assert!(times.is_sorted_by(|a, b| if sort == "oldest" { a <= b } else { a >= b }));
    }
    let page = get(&world, "/orders?user=user-3").await;
    assert_eq!(ids(&page).len(), 2);
    let page = get(&world, "/orders?sale=s&user=user-3").await;
    assert_eq!(ids(&page), [orders[3].clone()]);
    assert_eq!(page["orders"][0]["payments"][0]["state"], "paid");
    let page = get(&world, "/orders?sale=s&status=paid").await;
    assert_eq!(ids(&page), [orders[3].clone()]);
    let page = get(&world, "/orders?sale=s&from_ms=9000000000000").await;
    assert_eq!(ids(&page), [] as [String; 0]);
    for query in [
        "",
        "?sale=S!",
        "?sale=s&status=odd",
        "?sale=s&limit=0",
        "?sale=s&after=x",
        "?sale=s&x=1",
    ] {
        let refused = world
            .admin("GET", &format!("/orders{query}"), &Value::Null)
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (400, "invalid_query"),
            "{query}"
        );
    }
}

#[tokio::test]
async fn export_has_every_order_and_escapes_formulas() {
    let world = World::with_sale("s", 16).await;
    let order = buy(&world, "alice").await;
    world.pay("alice", &format!("/orders/{order}")).await;
    let evil = buy(&world, "bob").await;
    let rename = "UPDATE orders SET user_id = '=1+1' WHERE user_id = 'bob'";
    world.sql().await.execute(rename, &[]).await;
    let csv = world.admin_bytes("/orders.csv?sale=s&sort=oldest").await;
    let csv = String::from_utf8(csv).unwrap();
    let mut lines = csv.split("\r\n");
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("order,sale,user,quantity,status,")
    );
    let find = |id: &str| csv.lines().find(|line| line.starts_with(id)).unwrap();
    assert!(find(&order).contains(",s,alice,1,paid,"), "{csv}");
    assert!(find(&order).contains(&format!("{order}.p1,paid,")), "{csv}");
    assert!(find(&evil).contains(",'=1+1,1,unpaid,"), "{csv}");
    assert_eq!(csv.lines().count(), 3);
}

/// The first message of `GET /sales/s/live`.
async fn first_live_message(world: &World) -> Value {
    let request = Request::get("/sales/s/live")
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("accept", "text/event-stream");
    let [_, admin] = world.routers();
    let request = request.body(Body::empty()).unwrap();
    let mut live = admin.oneshot(request).await.unwrap();
    assert_eq!(live.status(), 200);
    let frame = live.body_mut().frame().await.unwrap().unwrap();
    let data = frame.into_data().unwrap();
    serde_json::from_slice(data.strip_prefix(b"data: ").unwrap()).unwrap()
}

#[tokio::test]
async fn live_view_is_json_for_clients_without_event_streams() {
    let world = World::new().await;
    world.sale("s", 10).await;
    let streamed = first_live_message(&world).await;
    for accept in [
        None,
        Some("*/*"),
        Some("application/json"),
        Some("text/html"),
    ] {
        let mut request =
            Request::get("/sales/s/live").header("authorization", format!("Bearer {TOKEN}"));
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let answer = world
            .admin_request(request.body(Body::empty()).unwrap())
            .await;
        assert_eq!(answer.status, 200, "{accept:?}: {answer:?}");
        assert_eq!(answer.headers["content-type"], "application/json");
        assert_eq!(answer.body["orders_by_state"], streamed["orders_by_state"]);
        assert_eq!(answer.body["sale"]["id"], "s");
    }
    let unknown = world.admin("GET", "/sales/none/live", &Value::Null).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn live_view_counts_orders_by_status_over_all_shards() {
    let world = World::with_outbox().await;
    world
        .sale_with("s", 40, json!({ "payment": "at_order" }))
        .await;
    let mut orders = Vec::new();
    for name in ["alice", "bob", "carol", "dave", "erin", "frank"] {
        orders.push((name, format!("/orders/{}", buy(&world, name).await)));
    }
    for (name, path) in &orders[..3] {
        world.pay(name, path).await;
    }
    let cancelled = post(&world, &format!("{}/cancel", orders[3].1)).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    let live = first_live_message(&world).await;
    let counts = json!({ "unpaid": 2, "paid": 3, "cancelled": 1, "expired": 0 });
    assert_eq!(live["orders_by_state"], counts);
}
