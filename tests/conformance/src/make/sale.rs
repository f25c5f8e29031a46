//! Sales: granted claims, answers to other users, and the effects on stock.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use serde_json::{Value, json};
use weir_base::id::{SaleId, UserId};
use weir_sale::redis::keys::{ShardKeys, catalogue};
use weir_sale::shard::home_shard;

use super::{Ask, Draft, EDGE_SECRET, NOW_MS, POLL_INTERVAL_MS, edges};
use crate::vector::{Content, Vector};

pub(super) const ENGINE: &str = "seckill-gate";

/// A gate with all its routes.
pub(super) fn config() -> Value {
    json!({
        "routes": [{ "path": "/sales/{sale}/orders" }],
        "checkout_routes": [{ "path": "/sales/{sale}/checkout" }],
        "status_routes": [{ "path": "/sales/{sale}" }],
        "identify_prefixes": ["/orders/"],
        "user_header": "x-user-id",
        "claim": { "ttl_ms": 30_000, "keys": [{ "id": "k1", "secret": { "env": "WEIR_CLAIM_SECRET" } }] },
        "token": {
            "keys": [
                { "id": "t2", "secret": { "env": "WEIR_TOKEN_SECRET" } },
                { "id": "t1", "secret": { "env": "WEIR_OLD_TOKEN_SECRET" } },
            ],
            "min_age_ms": 1_000,
            "max_age_ms": 600_000,
        },
        "redis": {},
        "poll_interval_ms": POLL_INTERVAL_MS,
    })
}

/// A sale in the catalogue.
pub(super) fn sale(change: Value) -> Value {
    let mut sale = json!({
        "id": "s", "starts_at_ms": NOW_MS - 1_000, "ends_at_ms": NOW_MS + 3_600_000,
        "shards": 1, "user_cap": 1, "state": "open",
    });
    for (name, value) in change.as_object().into_iter().flatten() {
        sale[name] = value.clone();
    }
    sale
}

fn document(version: u64, sale: &Value) -> String {
    json!({ "version": version, "sales": [sale] }).to_string()
}

fn keys(draft: &Draft, shard: u32) -> ShardKeys {
    ShardKeys::new(&draft.prefix(), &SaleId::new("s").expect("an id"), shard)
}

/// Adds units to a shard of the sale, as warming does.
pub(super) fn units(draft: Draft, shard: u32, units: i64) -> Draft {
    let keys = keys(&draft, shard);
    draft
        .text(keys.stock(), units.to_string())
        .text(keys.epoch(), "5")
        .text(keys.sums(), "1 0 0 0 0 0")
}

/// A gate with one sale, whose only shard has `stock` units.
pub(super) fn gate(name: impl Into<String>, config: Value, change: Value, stock: i64) -> Draft {
    let draft = Draft::new(name, ENGINE, config)
        .secret("WEIR_CLAIM_SECRET")
        .secret("WEIR_TOKEN_SECRET")
        .secret("WEIR_OLD_TOKEN_SECRET");
    let key = catalogue(&draft.prefix());
    let draft = draft.text(key, document(1, &sale(change)));
    units(draft, 0, stock)
}

pub(super) fn buy(user: &str) -> Ask {
    Ask::new("POST", "/sales/s/orders").header("x-user-id", user)
}

pub(super) fn vectors() -> Vec<Vector> {
    let mut drafts = switches();
    drafts.extend(windows());
    drafts.extend(users());
    drafts.extend(paths());
    drafts.extend(stocks());
    drafts.extend(checks());
    drafts.extend(quantities());
    drafts.extend(retries());
    drafts.extend(origins());
    drafts.extend(shards());
    drafts.extend(statuses());
    drafts.extend(identities());
    drafts.extend(gate_limits());
    drafts.extend(without_redis());
    drafts.into_iter().map(Draft::done).collect()
}

/// The stricter of the sale's switch and the global switch applies.
fn switches() -> Vec<Draft> {
    const STATES: [(&str, &str); 4] = [
        ("open", "goes on: granted"),
        ("shadow", "goes on"),
        ("drain", "403 draining"),
        ("closed", "403 closed"),
    ];
    let mut drafts = Vec::new();
    for (of_all, (switch, _)) in STATES.iter().enumerate() {
        for (of_one, (state, _)) in STATES.iter().enumerate() {
            let name = format!("sale/switches/all-{switch}-one-{state}");
            let mut draft = gate(name, config(), json!({}), 2);
            let sales = json!({ "switch": switch, "sales": [sale(json!({ "state": state }))] });
            let key = catalogue(&draft.prefix());
            draft = draft.text(key, sales.to_string());
            let (_, expected) = STATES[of_all.max(of_one)];
            drafts.push(draft.ask(buy("alice"), expected));
        }
    }
    drafts
}

fn windows() -> Vec<Draft> {
    let of = |name: &str, starts: i64, ends: i64, expected: &str| {
        let at = |from_now: i64| NOW_MS.saturating_add_signed(from_now);
        let change = json!({ "starts_at_ms": at(starts), "ends_at_ms": at(ends) });
        gate(format!("sale/windows/{name}"), config(), change, 2).ask(buy("alice"), expected)
    };
    vec![
        of("a-day-before", 86_400_000, 90_000_000, "403 not_started"),
        of("a-minute-before", 60_000, 90_000, "403 not_started"),
        of("a-second-and-one-before", 1_001, 90_000, "403 not_started"),
        of("a-millisecond-before", 1, 90_000, "403 not_started"),
        of("at-the-start", 0, 90_000, "goes on: granted"),
        of("a-millisecond-left", -90_000, 1, "goes on: granted"),
        of("at-the-end", -90_000, 0, "410 ended"),
        of("long-over", -90_000, -1, "410 ended"),
    ]
}

fn users() -> Vec<Draft> {
    let of = |name: &str, user: &str, expected: &str| {
        gate(format!("sale/users/{name}"), config(), json!({}), 2).ask(buy(user), expected)
    };
    let longest = "x".repeat(128);
    vec![
        of("one-byte", "a", "goes on: granted"),
        of("the-longest", &longest, "goes on: granted"),
        of("too-long", &format!("{longest}x"), "401 invalid_user"),
        of("empty", "", "401 invalid_user"),
        of("a-blank-inside", "a b", "401 invalid_user"),
        of("not-utf8", "a\\xffb", "401 invalid_user"),
        of("beyond-ascii", "münchen", "401 invalid_user"),
        of("semicolons", "a;b;c", "goes on: granted"),
        of("punctuation", "a@b.example+1", "goes on: granted"),
        gate("sale/users/none", config(), json!({}), 2)
            .ask(Ask::new("POST", "/sales/s/orders"), "401 invalid_user"),
        gate("sale/users/twice", config(), json!({}), 2)
            .ask(buy("alice").header("x-user-id", "bob"), "401 invalid_user"),
        gate("sale/users/header-in-capitals", config(), json!({}), 2).ask(
            Ask::new("POST", "/sales/s/orders").header("X-User-ID", "alice"),
            "goes on: granted",
        ),
    ]
}

fn paths() -> Vec<Draft> {
    let of = |name: &str, method: &str, path: &str, expected: &str| {
        let ask = Ask::new(method, path).header("x-user-id", "alice");
        gate(format!("sale/paths/{name}"), config(), json!({}), 2).ask(ask, expected)
    };
    vec![
        of("buy", "POST", "/sales/s/orders", "goes on: granted"),
        of(
            "buy-with-query",
            "POST",
            "/sales/s/orders?a=b",
            "goes on: granted",
        ),
        of(
            "unknown-sale",
            "POST",
            "/sales/other/orders",
            "404 unknown_sale",
        ),
        of(
            "no-name-of-a-sale",
            "POST",
            "/sales/a%20b/orders",
            "404 unknown_sale",
        ),
        of("another-method", "PUT", "/sales/s/orders", "goes on"),
        of("deeper", "POST", "/sales/s/orders/1", "goes on"),
        of("a-slash-behind", "POST", "/sales/s/orders/", "goes on"),
        of("elsewhere", "GET", "/index.html", "goes on"),
        of("root", "GET", "/", "goes on"),
        of("post-to-status", "POST", "/sales/s", "goes on"),
        gate(
            "sale/paths/forged-headers-are-removed",
            config(),
            json!({}),
            2,
        )
        .ask(
            Ask::get("/index.html")
                .header("x-weir-claim", "forged")
                .header("x-weir-claim-signature", "forged")
                .header("x-weir-user", "forged")
                .header("x-weir-verdict", "granted")
                .header("x-noise", "\\xff\\xfe"),
            "goes on",
        ),
        gate(
            "sale/paths/a-forged-claim-is-replaced",
            config(),
            json!({}),
            2,
        )
        .ask(
            buy("alice")
                .header("x-weir-claim", "forged")
                .header("x-weir-claim", "again"),
            "goes on: granted",
        ),
    ]
}

fn stocks() -> Vec<Draft> {
    let of = |name: &str, change: Value, stock: i64| {
        gate(format!("sale/stock/{name}"), config(), change, stock)
    };
    let mut drafts = vec![
        of("the-last-unit", json!({ "band": "none" }), 1)
            .ask(buy("alice"), "goes on: granted")
            .ask(buy("bob"), "409 sold_out")
            .ask(buy("carol"), "409 sold_out"),
        of("nothing-left-but-sql-has-some", json!({ "band": "low" }), 0)
            .ask(buy("alice"), "409 all_reserved")
            .ask(buy("alice"), "409 all_reserved"),
        of("nothing-left", json!({ "band": "none" }), 0)
            .ask(buy("alice"), "409 sold_out")
            .ask(buy("alice"), "409 sold_out"),
        of("below-nothing", json!({ "band": "none" }), -3).ask(buy("alice"), "409 sold_out"),
        of("a-claim-once-more", json!({}), 2)
            .ask(buy("alice"), "goes on: granted")
            .ask(buy("alice"), "goes on: granted_again")
            .after(1_000)
            .ask(buy("alice"), "goes on: granted_again"),
        of(
            "the-open-claim-when-the-rest-is-gone",
            json!({ "band": "none" }),
            1,
        )
        .ask(buy("alice"), "goes on: granted")
        .ask(buy("bob"), "409 sold_out")
        .ask(buy("alice"), "goes on: granted_again"),
    ];
    let cold = Draft::new("sale/stock/a-cold-shard", ENGINE, config());
    let key = catalogue(&cold.prefix());
    drafts.push(
        cold.secret("WEIR_CLAIM_SECRET")
            .secret("WEIR_TOKEN_SECRET")
            .secret("WEIR_OLD_TOKEN_SECRET")
            .text(key, document(1, &sale(json!({}))))
            .ask(buy("alice"), "503 unavailable"),
    );
    for cap in [1_u32, 2, 5] {
        let name = format!("a-cap-of-{cap}-is-reached");
        let draft = of(&name, json!({ "user_cap": cap }), 10);
        // A user of this home shard with this number of orders, the last of generation 77.
        let user = UserId::new("alice").expect("a user");
        let bought = keys(&draft, 0).bought_in(weir_sale::shard::bucket(&user));
        let orders: Vec<String> = (1..=cap).map(|n| format!("{}:1", 77 - cap + n)).collect();
        let orders = [("alice".to_owned(), orders.join(","))];
        let sums = keys(&draft, 0).sums();
        drafts.push(
            draft
                .stored(bought, Content::Hash(orders.into()))
                .text(sums, format!("9 0 0 {cap} 0 77"))
                .ask(buy("alice"), "409 cap_reached")
                .ask(buy("bob"), "goes on: granted"),
        );
    }
    drafts
}

/// Reservations and blocks, and checks that an operator disables.
fn checks() -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (word, skips, reserved, blocked, expected) in [
        ("reserved", json!({}), true, false, "goes on: granted"),
        ("not-reserved", json!({}), false, false, "403 not_reserved"),
        (
            "not-reserved-but-skipped",
            json!({ "skip_reservation": true }),
            false,
            false,
            "goes on: granted",
        ),
        ("blocked", json!({}), true, true, "403 blocked"),
        (
            "blocked-but-skipped",
            json!({ "skip_risk": true }),
            true,
            true,
            "goes on: granted",
        ),
        (
            "blocked-and-not-reserved",
            json!({}),
            false,
            true,
            "403 blocked",
        ),
    ] {
        let change = json!({ "reservation": true, "degrade": skips });
        let mut draft = gate(format!("sale/checks/{word}"), config(), change, 3);
        let bucket = weir_sale::shard::bucket(&UserId::new("alice").expect("a user"));
        let keys = keys(&draft, 0);
        let alice = || Content::Set(vec!["alice".into()]);
        if reserved {
            draft = draft.stored(keys.reserved(bucket), alice());
        }
        if blocked {
            draft = draft.stored(keys.blocked(bucket), alice());
        }
        drafts.push(draft.ask(buy("alice"), expected));
    }
    let page = json!({ "degrade": { "static_page": true } });
    drafts.push(
        gate("sale/checks/the-default-page", config(), page.clone(), 3)
            .ask(buy("alice"), "503 static_page"),
    );
    let mut with_page = config();
    with_page["static_page"] =
        json!({ "status": 200, "content_type": "text/plain", "body": "later" });
    drafts.push(
        gate("sale/checks/a-page-of-ones-own", with_page, page, 3)
            .ask(buy("alice"), "200 static_page"),
    );
    drafts.push(
        gate("sale/checks/paused", config(), json!({ "paused": true }), 3)
            .ask(buy("alice"), "503 paused"),
    );
    drafts
}

/// Several units in one request.
fn quantities() -> Vec<Draft> {
    let many = |user: &str, quantity: &str| buy(user).header("x-weir-quantity", quantity);
    let of = |name: &str, stock: i64| {
        gate(
            format!("sale/quantity/{name}"),
            config(),
            json!({ "user_cap": 3 }),
            stock,
        )
    };
    vec![
        of("all-that-the-cap-allows", 5)
            .ask(many("alice", "3"), "goes on: granted")
            .ask(many("bob", "2"), "goes on: granted"),
        of("the-claim-that-is-held", 5)
            .ask(many("alice", "2"), "goes on: granted")
            .ask(many("alice", "1"), "goes on: granted_again"),
        of("one-and-several", 5)
            .ask(many("alice", "1"), "goes on: granted")
            .ask(many("bob", "3"), "goes on: granted")
            .ask(buy("carol"), "goes on: granted"),
        of("more-than-the-cap", 5).ask(many("alice", "4"), "409 cap_reached"),
        of("more-than-are-left", 2)
            .ask(many("alice", "3"), "409 too_few")
            .ask(many("alice", "2"), "goes on: granted"),
        of("none", 5).ask(many("alice", "0"), "400 invalid_quantity"),
        of("no-number", 5).ask(many("alice", "two"), "400 invalid_quantity"),
    ]
}

/// An attempt with a key is bound to its claim.
fn retries() -> Vec<Draft> {
    let with_key = |user: &str, key: &str| buy(user).header("idempotency-key", key);
    let of = |name: &str, cap: u32| {
        gate(
            format!("sale/retries/{name}"),
            config(),
            json!({ "user_cap": cap }),
            5,
        )
    };
    vec![
        of("the-same-key", 1)
            .ask(with_key("alice", "\"a\""), "goes on: granted")
            .ask(with_key("alice", "\"a\""), "goes on: granted_again"),
        of("another-key-with-a-cap-of-one", 1)
            .ask(with_key("alice", "\"a\""), "goes on: granted")
            .ask(with_key("alice", "\"b\""), "goes on: granted_again"),
        of("another-key-with-a-cap-of-two", 2)
            .ask(with_key("alice", "\"a\""), "goes on: granted")
            .ask(with_key("alice", "\"b\""), "409 in_progress"),
        of("keys-of-two-users-are-two", 1)
            .ask(with_key("alice", "\"a\""), "goes on: granted")
            .ask(with_key("bob", "\"a\""), "goes on: granted"),
        of("without-quotes", 1).ask(with_key("alice", "a"), "goes on: granted"),
        of("too-long-a-key", 1).ask(
            with_key("alice", &"k".repeat(300)),
            "400 invalid_idempotency_key",
        ),
        of("an-empty-key", 1).ask(with_key("alice", ""), "400 invalid_idempotency_key"),
    ]
}

/// The origin's answer decides whether the claim is released.
fn origins() -> Vec<Draft> {
    let back = [400_u16, 403, 404, 409, 422, 429, 499];
    let stays = [200_u16, 201, 302, 408, 500, 503];
    let of = |status: u16| {
        gate(format!("sale/origin/{status}"), config(), json!({}), 1).origin(
            "/sales/s/orders",
            status,
            &[],
            "",
        )
    };
    let next = |draft: Draft, expected: &str| {
        draft
            .ask(buy("alice"), "goes on: granted")
            .ask(buy("bob"), expected)
    };
    back.map(|status| next(of(status), "goes on: granted"))
        .into_iter()
        .chain(stays.map(|status| next(of(status), "409 all_reserved")))
        .collect()
}

/// Each user has a home shard; units are transferred to it if it is empty.
fn shards() -> Vec<Draft> {
    let mut drafts = Vec::new();
    for count in [2_u32, 3, 8] {
        let mut draft = gate(
            format!("sale/shards/of-{count}"),
            config(),
            json!({ "shards": count }),
            4,
        );
        for shard in 1..count {
            draft = units(draft, shard, 4);
        }
        for user in ["alice", "bob", "carol", "dave"] {
            draft = draft.ask(buy(user), "goes on: granted");
        }
        drafts.push(draft);
    }
    let home = home_shard(&UserId::new("alice").expect("a user"), 2);
    let mut moved = gate(
        "sale/shards/units-move-to-an-empty-one",
        config(),
        json!({ "shards": 2 }),
        0,
    );
    moved = units(moved, home, 0);
    moved = units(moved, 1 - home, 8);
    drafts.push(moved.ask(buy("alice"), "goes on: granted"));
    let mut empty = gate(
        "sale/shards/all-are-empty",
        config(),
        json!({ "shards": 2, "band": "none" }),
        0,
    );
    empty = units(empty, 1, 0);
    drafts.push(
        empty
            .ask(buy("alice"), "409 sold_out")
            .ask(buy("bob"), "409 sold_out"),
    );
    drafts
}

fn statuses() -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (name, change) in [
        ("open", json!({})),
        ("shadow", json!({ "state": "shadow" })),
        ("drain", json!({ "state": "drain" })),
        ("closed", json!({ "state": "closed" })),
        ("later", json!({ "starts_at_ms": NOW_MS + 5_000 })),
        ("over", json!({ "ends_at_ms": NOW_MS })),
        ("half", json!({ "band": "medium" })),
        ("few-left", json!({ "band": "low" })),
        ("none-left", json!({ "band": "none" })),
        ("with-token", json!({ "token": true })),
        ("with-reservation", json!({ "reservation": true })),
        (
            "behind-a-page",
            json!({ "degrade": { "static_page": true } }),
        ),
        ("paused", json!({ "paused": true })),
    ] {
        let draft = gate(format!("sale/status/{name}"), config(), change, 2);
        drafts.push(draft.ask(Ask::get("/sales/s"), "200"));
    }
    let unknown = gate("sale/status/unknown", config(), json!({}), 2);
    drafts.push(unknown.ask(Ask::get("/sales/other"), "404 unknown_sale"));
    let head = gate("sale/status/head-goes-on", config(), json!({}), 2);
    drafts.push(head.ask(Ask::new("HEAD", "/sales/s"), "goes on"));
    // Polls detect an operator's changes.
    let mut quick = config();
    quick["poll_interval_ms"] = json!(50);
    let observed = gate("sale/status/a-poll-sees-the-switch", quick, json!({}), 2)
        .ask(Ask::get("/sales/s"), "200")
        .ask(buy("alice"), "goes on: granted");
    let key = catalogue(&observed.prefix());
    drafts.push(
        observed
            .text(key, document(2, &sale(json!({ "state": "closed" }))))
            .after_polls(1_000, 1)
            .ask(Ask::get("/sales/s"), "200")
            .ask(buy("bob"), "403 closed"),
    );
    drafts
}

/// The user's identity is signed for the origin.
fn identities() -> Vec<Draft> {
    let of = |name: &str, ask: Ask| {
        gate(format!("sale/identity/{name}"), config(), json!({}), 2).ask(ask, "goes on")
    };
    vec![
        of("signed", Ask::get("/orders/1").header("x-user-id", "alice")),
        of(
            "another-time-another-signature",
            Ask::get("/orders/1").header("x-user-id", "bob"),
        ),
        of("nobody", Ask::get("/orders/1")),
        of(
            "an-impossible-user",
            Ask::get("/orders/1").header("x-user-id", "a b"),
        ),
        of(
            "a-forged-one",
            Ask::get("/orders/1").header("x-weir-user", "root"),
        ),
        of(
            "not-elsewhere",
            Ask::get("/order/1").header("x-user-id", "alice"),
        ),
        of(
            "pays",
            Ask::new("POST", "/orders/1/pay").header("x-user-id", "alice"),
        ),
    ]
}

/// The gate's own limits, per user and per address.
fn gate_limits() -> Vec<Draft> {
    let limited = |limits: Value| {
        let mut config = config();
        config["limits"] = limits;
        config
    };
    // Names are unique across vectors, because all gateways share one memory of limits.
    let one = json!({ "rate": 1, "per": "1s", "burst": 1 });
    let two = json!({ "rate": 1, "per": "1s", "burst": 2 });
    let of = |name: &str, limits: Value| {
        gate(format!("sale/limits/{name}"), limited(limits), json!({}), 9)
    };
    let from = |user: &str, address: &str| buy(user).from(address);
    let of_edges = {
        let mut config = limited(json!({ "address": one }));
        config["edges"] = edges();
        let draft = gate("sale/limits/address-in-a-stamp", config, json!({}), 9);
        draft.secret(EDGE_SECRET.0)
    };
    let stamped =
        |user: &str, client: &str, secret: &str| buy(user).stamped(client, secret, NOW_MS);
    vec![
        of_edges
            .ask(
                stamped("lim-m", "198.51.100.21", EDGE_SECRET.1),
                "goes on: granted",
            )
            .ask(
                stamped("lim-n", "198.51.100.22", EDGE_SECRET.1),
                "goes on: granted",
            )
            .ask(
                stamped("lim-o", "198.51.100.21", EDGE_SECRET.1),
                "429 rate_limited",
            )
            // The connection determines the address of a client with a forged header.
            .ask(
                stamped("lim-o", "198.51.100.23", &"forged".repeat(8)),
                "goes on: granted",
            )
            .ask(
                stamped("lim-p", "198.51.100.24", &"forged".repeat(8)),
                "429 rate_limited",
            ),
        of("user-burst-of-one", json!({ "user": one }))
            .ask(buy("lim-a"), "goes on: granted")
            .ask(buy("lim-a"), "429 rate_limited")
            .ask(buy("lim-b"), "goes on: granted")
            .after(999)
            .ask(buy("lim-a"), "429 rate_limited")
            .after(1)
            .ask(buy("lim-a"), "goes on: granted_again"),
        of("user-burst-of-two", json!({ "user": two }))
            .ask(buy("lim-c"), "goes on: granted")
            .ask(buy("lim-c"), "goes on: granted_again")
            .ask(buy("lim-c"), "429 rate_limited"),
        of("address", json!({ "address": one }))
            .ask(from("lim-d", "198.51.100.1:1"), "goes on: granted")
            .ask(from("lim-e", "198.51.100.1:2"), "429 rate_limited")
            .ask(from("lim-e", "198.51.100.2:1"), "goes on: granted"),
        of("address-of-a-network", json!({ "address": one }))
            .ask(from("lim-f", "[2001:db8:1:1::1]:1"), "goes on: granted")
            .ask(
                from("lim-g", "[2001:db8:1:1:ffff::2]:1"),
                "429 rate_limited",
            )
            .ask(from("lim-g", "[2001:db8:1:2::1]:1"), "goes on: granted"),
        of("both", json!({ "user": one, "address": two }))
            .ask(from("lim-h", "198.51.100.9:1"), "goes on: granted")
            .ask(from("lim-h", "198.51.100.9:1"), "429 rate_limited")
            .ask(from("lim-i", "198.51.100.9:1"), "goes on: granted")
            .ask(from("lim-j", "198.51.100.9:1"), "429 rate_limited"),
        of("what-costs-nothing-is-not-counted", json!({ "user": one }))
            .ask(Ask::get("/sales/s").header("x-user-id", "lim-k"), "200")
            .ask(Ask::get("/sales/s").header("x-user-id", "lim-k"), "200")
            .ask(buy("lim-k"), "goes on: granted"),
        of("identified", json!({ "identified": { "user": one } }))
            .ask(
                Ask::get("/orders/1").header("x-user-id", "lim-l"),
                "goes on",
            )
            .ask(
                Ask::get("/orders/1").header("x-user-id", "lim-l"),
                "429 rate_limited",
            )
            .ask(buy("lim-l"), "goes on: granted"),
    ]
}

/// A gate that cannot reach Redis.
fn without_redis() -> Vec<Draft> {
    let mut nowhere = config();
    nowhere["redis"] = json!({ "cluster": "nowhere" });
    let of = |name: &str, ask: Ask, expected: &str| {
        Draft::new(format!("sale/no-redis/{name}"), ENGINE, nowhere.clone())
            .secret("WEIR_CLAIM_SECRET")
            .secret("WEIR_TOKEN_SECRET")
            .secret("WEIR_OLD_TOKEN_SECRET")
            .ask(ask, expected)
    };
    vec![
        of("buy", buy("alice"), "503 unavailable"),
        of("status", Ask::get("/sales/s"), "503 unavailable"),
        of(
            "checkout",
            Ask::new("POST", "/sales/s/checkout").header("x-user-id", "alice"),
            "503 unavailable",
        ),
        of("other-requests-go-on", Ask::get("/"), "goes on"),
    ]
}
