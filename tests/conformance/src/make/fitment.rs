//! Vehicle fitment: which parts fit according to Redis, and which requests continue to the origin.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use serde_json::{Value, json};
use weir_fitment::redis::keys::{FitmentKeys, RouteBucket, VehicleMapKeys};
use weir_fitment::{Sku, Spu};

use super::{Ask, Draft};
use crate::text::escape;
use crate::vector::{Content, Entry, Vector};

const ENGINE: &str = "fitment";
const PATH: &str = "/fitment/check";

/// The ID before the first vehicle: the vehicle with offset 1 is 1000001.
const BEFORE_FIRST: u32 = 1_000_000;
const VEHICLES: u32 = 10;

fn config() -> Value {
    // The map of vehicles is read in parts; frequent polls complete it soon.
    json!({ "redis": {}, "poll_interval_ms": 50, "origin": { "limit": { "rate": 1, "per": "1s", "burst": 2 } } })
}

/// A gateway that has loaded ten vehicles.
fn gateway(name: &str, config: Value) -> Draft {
    let draft = Draft::new(format!("fitment/{name}"), ENGINE, config);
    let keys = VehicleMapKeys::new(&draft.prefix());
    let ids: Vec<u8> = (1..=VEHICLES)
        .flat_map(|offset| (BEFORE_FIRST + offset).to_be_bytes())
        .collect();
    draft
        .text(keys.head(), format!("1 {VEHICLES} 1"))
        .stored(keys.block(1, 0), Entry::string(escape(&ids)))
}

fn sku(name: &str) -> Sku {
    Sku::new(name).expect("a SKU")
}

/// Stores the route of a SKU.
fn routed(draft: Draft, name: &str, route: &str) -> Draft {
    let key = RouteBucket::for_sku(&sku(name)).key(&draft.prefix());
    draft.stored(
        key,
        Content::Hash([(name.to_owned(), route.to_owned())].into()),
    )
}

fn keys(draft: &Draft, spu: &str) -> FitmentKeys {
    FitmentKeys::new(&draft.prefix(), &Spu::new(spu).expect("an SPU"))
}

/// A shop: of product P1, S1 fits the vehicles 1 and 3 and S2 none; of P2, S3 fits vehicle 2.
fn shop(name: &str) -> Draft {
    let draft = gateway(name, config());
    let (one, other) = (keys(&draft, "P1"), keys(&draft, "P2"));
    let set = |members: &[&str]| {
        Content::Set(members.iter().map(|member| (*member).to_owned()).collect())
    };
    let hash = |fields: &[(&str, &str)]| {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Content::Hash(fields.iter().map(pair).collect())
    };
    let draft = draft
        .stored(one.directory(), hash(&[("S1", "s1"), ("S2", "n1")]))
        .stored(one.set(&sku("S1")), set(&["0", "1", "3"]))
        .stored(other.directory(), hash(&[("S3", "s1")]))
        .stored(other.set(&sku("S3")), set(&["0", "2"]));
    let draft = routed(draft, "S1", "1 home P1");
    let draft = routed(draft, "S2", "1 home P1");
    routed(draft, "S3", "1 home P2")
}

fn question(vehicles: &[u32], skus: &[&str]) -> String {
    let vehicles: Vec<String> = vehicles
        .iter()
        .map(|offset| (BEFORE_FIRST + offset).to_string())
        .collect();
    json!({ "vehicles": vehicles, "skus": skus }).to_string()
}

fn ask(body: impl Into<String>) -> Ask {
    let mut ask = Ask::new("POST", PATH).header("content-type", "application/json");
    ask.0.body = body.into();
    ask
}

pub(super) fn vectors() -> Vec<Vector> {
    let mut drafts = answers();
    drafts.extend(unknown());
    drafts.extend(refused());
    drafts.into_iter().map(Draft::done).collect()
}

fn answers() -> Vec<Draft> {
    let of = |name: &str, vehicles: &[u32], skus: &[&str], expected: &str| {
        shop(&format!("answer/{name}"))
            .ask(ask(question(vehicles, skus)), format!("200 {expected}"))
    };
    let hint = |name: &str, spu: &str, expected: &str| {
        let body = json!({ "vehicles": ["1000002"], "skus": [{ "sku": "S3", "spu": spu }] });
        shop(&format!("answer/{name}")).ask(ask(body.to_string()), format!("200 {expected}"))
    };
    vec![
        of("fits", &[1], &["S1"], "fits"),
        of("does-not-fit", &[2], &["S1"], "does_not"),
        of("fits-nothing", &[1, 2], &["S2"], "does_not does_not"),
        of(
            "in-the-order-of-the-question",
            &[3, 1, 2],
            &["S3", "S1", "S2"],
            "does_not does_not fits, fits fits does_not, does_not does_not does_not",
        ),
        of("asked-twice-in-one", &[1], &["S1", "S1"], "fits, fits"),
        of(
            "five-vehicles",
            &[1, 2, 3, 4, 5],
            &["S1"],
            "fits does_not fits does_not does_not",
        ),
        of("the-last-vehicle", &[10], &["S1"], "does_not"),
        hint("a-right-hint", "P2", "fits"),
        hint("a-wrong-hint", "P1", "fits"),
        shop("answer/once-more-from-memory")
            .ask(ask(question(&[1], &["S1"])), "200 fits")
            .ask(ask(question(&[3], &["S1"])), "200 fits"),
    ]
}

/// Data missing from Redis never results in "does not fit".
fn unknown() -> Vec<Draft> {
    let removed = routed(shop("unknown/a-sku-that-is-gone"), "S1", "9");
    let lost = shop("unknown/a-set-that-is-lost");
    let lost_key = escape(&keys(&lost, "P1").set(&sku("S1")));
    let mut lost = lost;
    lost.vector.stored.remove(&lost_key);
    let mut nowhere = config();
    nowhere["redis"] = json!({ "cluster": "nowhere" });
    vec![
        removed.ask(ask(question(&[1], &["S1"])), "200 unknown"),
        lost.ask(ask(question(&[1], &["S1"])), "goes on"),
        shop("unknown/a-sku-that-nobody-knows").ask(ask(question(&[1], &["S9"])), "goes on"),
        shop("unknown/a-vehicle-beyond-the-map").ask(ask(question(&[11], &["S1"])), "goes on"),
        shop("unknown/the-origin-is-asked-only-so-often")
            .ask(ask(question(&[1], &["S9", "S1"])), "goes on")
            .ask(ask(question(&[1], &["S9", "S1"])), "goes on")
            .ask(ask(question(&[1], &["S9", "S1"])), "200 unknown, fits"),
        Draft::new("fitment/unknown/a-redis-never-reached", ENGINE, nowhere)
            .ask(ask(question(&[1], &["S1"])), "503 unavailable"),
    ]
}

fn refused() -> Vec<Draft> {
    let of = |name: &str, body: &str, expected: &str| {
        shop(&format!("refused/{name}")).ask(ask(body), expected)
    };
    let many: Vec<String> = (0..201).map(|n| format!("S{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    vec![
        of(
            "too-many-skus",
            &question(&[1], &many),
            "422 invalid_sku_count",
        ),
        of("no-skus", &question(&[1], &[]), "422 invalid_sku_count"),
        of(
            "six-vehicles",
            &question(&[1, 2, 3, 4, 5, 6], &["S1"]),
            "422 invalid_vehicle_count",
        ),
        of(
            "no-vehicles",
            &question(&[], &["S1"]),
            "422 invalid_vehicle_count",
        ),
        of(
            "no-vehicle-at-all",
            r#"{"vehicles":["10000x1"],"skus":["S1"]}"#,
            "422 invalid_vehicle",
        ),
        of("half-of-it", "{", "400 invalid_body"),
        shop("refused/no-body").ask(Ask::new("POST", PATH), "400 invalid_body"),
        of("too-long", &" ".repeat(70_000), "413 body_too_long"),
        shop("refused/get").ask(Ask::get(PATH), "405 method_not_allowed"),
        shop("refused/a-page-of-no-vehicle")
            .ask(Ask::get("/fitment/skus?vehicle=abc"), "422 invalid_vehicle"),
        shop("refused/a-page-posted").ask(
            Ask::new("POST", "/fitment/skus?vehicle=1000001"),
            "405 method_not_allowed",
        ),
        shop("refused/elsewhere").ask(Ask::new("POST", "/fitment"), "goes on"),
    ]
}
