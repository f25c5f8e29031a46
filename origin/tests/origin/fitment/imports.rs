//! Imports: a valid file is applied at once, and errors are reported by line.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{add, catalogue, check, fitment, follow, in_redis};
use crate::support::{TOKEN, World};
use weir_fitment::Answer;

pub(super) fn start(world: &World) -> DropGuard {
    let stop = CancellationToken::new();
    fitment(world).spawn(&stop);
    stop.drop_guard()
}

async fn upload(world: &World, subject: &str, text: impl Into<Body>) -> u64 {
    let path = format!("/fitment/imports?{subject}");
    let request = Request::post(&path).header("authorization", format!("Bearer {TOKEN}"));
    let answer = world
        .admin_request(request.body(text.into()).unwrap())
        .await;
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.body["id"].as_u64().unwrap()
}

/// Uploads a file and waits until the import has ended.
pub(super) async fn uploaded(world: &World, subject: &str, bytes: Vec<u8>) -> Value {
    ended(world, upload(world, subject, bytes).await).await
}

async fn ended(world: &World, id: u64) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        let import = world
            .admin("GET", &format!("/fitment/imports/{id}"), &Value::Null)
            .await
            .body;
        if ["done", "failed"].contains(&import["state"].as_str().unwrap()) {
            return import;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("import {id} does not end");
}

pub(super) async fn done(world: &World, subject: &str, text: &str) -> Value {
    let import = ended(world, upload(world, subject, text.to_owned()).await).await;
    assert_eq!(import["state"], "done", "{import}");
    import
}

/// The errors of an import that must fail: line, column, reason.
pub(super) async fn failed(
    world: &World,
    subject: &str,
    text: &str,
) -> (Value, Vec<(u64, String, String)>) {
    let id = upload(world, subject, text.to_owned()).await;
    let import = ended(world, id).await;
    assert_eq!(import["state"], "failed", "{import}");
    let errors = world
        .admin(
            "GET",
            &format!("/fitment/imports/{id}/errors"),
            &Value::Null,
        )
        .await;
    let errors = errors.body["errors"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let one = |error: &Value| {
        let line = error["line"].as_u64().unwrap();
        (line, text(&error["column"]), text(&error["reason"]))
    };
    (import, errors.iter().map(one).collect())
}

const VEHICLES: &str = "\u{feff}vehicle,make,model,year,engine\r\n\
    1000001,VW,\"Golf, \"\"Variant\"\"\",2015,2.0 TDI\r\n1000002,Škoda,Octavia,,\r\n1000003,Ford,Focus,2018,\r\n";
const PRODUCTS: &str = "sku,spu,type,merchant\nS1,P1,tyre,m1\nS2,P1,tyre,m1\n\"S,3\",P2,oil,m2\n";

#[tokio::test]
async fn catalogue_is_imported_from_three_files() {
    let world = World::with_fitment(|settings| settings.records_staged = 2).await;
    let _background = start(&world);
    assert_eq!(done(&world, "kind=vehicles", VEHICLES).await["records"], 3);
    assert_eq!(done(&world, "kind=products", PRODUCTS).await["records"], 3);
    let relations = "vehicle,sku,position\n1000001,S1,\n1000002,S1,front\n1000001,S2,\n1000003,\"S,3\",\n1000003,S1,\n";
    let import = done(&world, "kind=relations&mode=merge", relations).await;
    assert_eq!(
        (&import["records"], &import["errors"]),
        (&json!(5), &json!(0))
    );
    assert_eq!(
        check(&world, "S1", &[1, 2, 3, 4]).await,
        ["fits", "fits", "fits", "unknown"]
    );
    assert_eq!(check(&world, "S2", &[1, 2]).await, ["fits", "does_not"]);
    let octavia = world
        .admin("GET", "/fitment/vehicles/1000002", &Value::Null)
        .await;
    assert_eq!(octavia.body["make"], "Škoda");
    let golf = world
        .admin("GET", "/fitment/vehicles/1000001", &Value::Null)
        .await;
    assert_eq!(golf.body["model"], "Golf, \"Variant\"");
    let product = world
        .admin("GET", "/fitment/products/S1", &Value::Null)
        .await;
    assert_eq!(
        product.body["vehicles"][1]["qualifiers"]["position"],
        "front"
    );
    follow(&world).await;
    assert_eq!(in_redis(&world, "S,3", 3).await, Answer::Fits);
    // The other direction, too.
    let page = world
        .admin("GET", "/fitment/skus?vehicle=1000003", &Value::Null)
        .await;
    assert_eq!(page.body["skus"], json!(["S1", "S,3"]));
    let list = world.admin("GET", "/fitment/imports", &Value::Null).await;
    assert_eq!(list.body["imports"].as_array().unwrap().len(), 3);
    assert_eq!(list.body["imports"][0]["kind"], "relations");
    assert_eq!(
        std::fs::read_dir(world.dir.path().join("imports"))
            .unwrap()
            .count(),
        0
    );
    // A repetition changes nothing, and an earlier file of vehicles gives no new offsets.
    done(&world, "kind=vehicles", VEHICLES).await;
    assert_eq!(fitment(&world).store().vehicle_count().await.unwrap(), 3);
}

#[tokio::test]
async fn relations_are_merged_or_replaced() {
    let world = World::with_fitment(|settings| settings.records_staged = 3).await;
    let _background = start(&world);
    catalogue(&world, 9, &[("S1", "P1"), ("S2", "P1")]).await;
    add(&world, "S1", 1).await;
    add(&world, "S2", 2).await;
    // The later line takes precedence, also across pieces.
    let text = "sku,vehicle,action\nS1,1000003,\nS1,1000004,add\nS1,1000001,remove\nS1,1000004,remove\n\
                S2,1000005,\nS1,1000001,\nS1,1000006,\nS1,1000006,remove\n";
    done(&world, "kind=relations", text).await;
    let expected = [
        "fits", "does_not", "fits", "does_not", "does_not", "does_not",
    ];
    assert_eq!(check(&world, "S1", &[1, 2, 3, 4]).await, expected[..4]);
    assert_eq!(check(&world, "S1", &[5, 6]).await, expected[4..]);
    done(
        &world,
        "kind=relations&mode=replace",
        "sku,vehicle\nS1,1000007\n",
    )
    .await;
    assert_eq!(
        check(&world, "S1", &[1, 3, 7]).await,
        ["does_not", "does_not", "fits"]
    );
    assert_eq!(
        check(&world, "S2", &[2, 5]).await,
        ["fits", "fits"],
        "the file does not name it"
    );
    let page = world
        .admin("GET", "/fitment/skus?vehicle=1000003", &Value::Null)
        .await;
    assert_eq!(page.body["skus"], json!([]));
}

#[tokio::test]
async fn broken_line_is_reported_and_nothing_is_applied() {
    let world = World::with_fitment(|settings| settings.records_staged = 4).await;
    let _background = start(&world);
    catalogue(&world, 9, &[("S1", "P1"), ("S2", "P1")]).await;
    let text = "sku,vehicle,action,year_from,year_to\nS1,1000001,,,\nS1,100000a,,,\nS1,1999999,,,\nS1,1000002\n\
                none,1000001,,,\nS1,1000003,drop,,\nS1,1000004,,20x,\nS1,1000004,,2015,2012\nS2,1000005,,,\na b,1000001,,,\n";
    let (import, errors) = failed(&world, "kind=relations", text).await;
    let places: Vec<_> = errors
        .iter()
        .map(|(line, column, _)| (*line, column.as_str()))
        .collect();
    let mut sorted = places.clone();
    sorted.sort_unstable();
    let expected = [
        (3, "vehicle"),
        (4, "vehicle"),
        (5, ""),
        (6, "sku"),
        (7, "action"),
        (8, "year_from"),
        (9, "year_to"),
        (11, "sku"),
    ];
    assert_eq!(sorted, expected);
    assert_eq!(import["errors"], 8);
    assert!(
        errors
            .iter()
            .any(|(_, _, reason)| reason.contains("1999999 is unknown")),
        "{errors:?}"
    );
    assert_eq!(
        check(&world, "S1", &[1]).await,
        ["unknown"],
        "nothing is applied"
    );
    assert_eq!(world.number("SELECT COUNT(*) FROM fitment_staged").await, 0);
    let (_, errors) = failed(
        &world,
        "kind=vehicles",
        "vehicle,year\n1000031,2015\n1000032,15\n1x,\n",
    )
    .await;
    assert_eq!(
        errors.iter().map(|error| error.0).collect::<Vec<_>>(),
        [3, 4]
    );
    assert_eq!(fitment(&world).store().vehicle_count().await.unwrap(), 9);
    let (_, errors) = failed(
        &world,
        "kind=products",
        "sku,spu,type,merchant\nS9,P{,t,m\nS9,P,,m\n",
    )
    .await;
    assert_eq!(
        errors.iter().map(|error| &*error.1).collect::<Vec<_>>(),
        ["spu", "type"]
    );
}

#[tokio::test]
async fn unreadable_import_file_is_refused_as_a_whole() {
    let world = World::with_fitment(|_| ()).await;
    let _background = start(&world);
    let endless = "S3,1000001\n".repeat(200_000);
    for (subject, text, expected) in [
        ("kind=relations", "", "the column sku is missing"),
        (
            "kind=relations",
            "sku;colour\nS1;red\n",
            "unknown column \"colour\"",
        ),
        (
            "kind=products",
            "sku,spu,type\n",
            "the column merchant is missing",
        ),
        (
            "kind=relations",
            "sku,vehicle,colour\n",
            "unknown column \"colour\"",
        ),
        (
            "kind=relations&format=aces",
            "<ACES><App action=\"A\"><Part>S1</Part>",
            "an App has no end",
        ),
        (
            "kind=relations&format=aces",
            "<ACES><App action=\"A></App></ACES>",
            "line 1",
        ),
        // A reader without a limit would read this record to the end of the file.
        (
            "kind=relations",
            &format!("sku,vehicle\nS1,1000001\n\"S2,1000001\n{endless}"),
            "line 3: is too long",
        ),
        (
            "kind=relations&format=aces",
            &format!("<ACES>\n<App action=\"A\"><Part>S1</Part><!-- {endless}"),
            "line 2: an element has no end tag",
        ),
    ] {
        let (import, _) = failed(&world, subject, text).await;
        let message = import["message"].as_str().unwrap();
        assert!(message.contains(expected), "{subject}: {message}");
    }
    for query in [
        "kind=x",
        "",
        "kind=vehicles&format=aces",
        "kind=relations&mode=x",
        "kind=relations&x=1",
    ] {
        let answer = world
            .admin_text("POST", &format!("/fitment/imports?{query}"), "x")
            .await;
        assert!([400, 422].contains(&answer.status.as_u16()), "{query}");
    }
    let unknown = world
        .admin("GET", "/fitment/imports/999999", &Value::Null)
        .await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.code()),
        (404, "unknown_import")
    );
}

#[tokio::test]
async fn errors_are_counted_and_the_first_thousand_are_kept() {
    let world = World::with_fitment(|settings| settings.records_staged = 700).await;
    let _background = start(&world);
    let lines: String = (0..2_500).map(|n| format!("x{n}\n")).collect();
    let id = upload(&world, "kind=vehicles", format!("vehicle\n{lines}")).await;
    assert_eq!(ended(&world, id).await["errors"], 2_500);
    let at = |from| format!("/fitment/imports/{id}/errors?from={from}");
    let last = world.admin("GET", &at(950), &Value::Null).await.body;
    assert_eq!(
        (last["errors"].as_array().unwrap().len(), &last["count"]),
        (50, &json!(2_500))
    );
    assert_eq!(last["errors"][49]["line"], 1_001);
}

const ACES: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<ACES version="4.2">
  <Header><Company>Weir &amp; Sons</Company></Header>
  <App action="A" id="1">
    <BaseVehicle id="1000001"/><Years from="2012" to="2015"/><EngineBase id="2.0 &lt;TDI&gt;"/>
    <Qty>1</Qty><PartType id="1896"/><Position id="front"/><Part>S&amp;1</Part>
  </App>
  <App action="A" id="2"><BaseVehicle id="1000002"/><Part><![CDATA[S&1]]></Part></App>
  <App action="D" id="3"><BaseVehicle id="1000003"></BaseVehicle><Part>S&#38;1</Part></App>
  <Footer><RecordCount>3</RecordCount></Footer>
</ACES>
"#;

#[tokio::test]
async fn catalogue_is_imported_from_aces() {
    // One record at a time, so that reads start in the middle of the file.
    for records_staged in [1, 100] {
        let world = World::with_fitment(|settings| settings.records_staged = records_staged).await;
        let _background = start(&world);
        catalogue(&world, 9, &[("S&1", "P1")]).await;
        add(&world, "S&1", 3).await;
        let import = done(&world, "kind=relations&format=aces", ACES).await;
        assert_eq!(import["records"], 3);
        assert_eq!(
            check(&world, "S&1", &[1, 2, 3]).await,
            ["fits", "fits", "does_not"]
        );
        let product = world
            .admin("GET", "/fitment/products/S&1", &Value::Null)
            .await;
        let of = &product.body["vehicles"][0]["qualifiers"];
        assert_eq!(
            (&of["engine"], &of["year_to"]),
            (&json!("2.0 <TDI>"), &json!(2015))
        );
        let broken = ACES.replace("1000002", "100000x");
        let (_, errors) = failed(&world, "kind=relations&format=aces", &broken).await;
        assert_eq!((errors[0].0, &*errors[0].1), (8, "BaseVehicle"));
    }
}

/// An import whose file is lost, or that was a mistake, can be cancelled.
#[tokio::test]
async fn unfinished_import_can_be_cancelled() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 9, &[("S1", "P1")]).await;
    let text = "sku,vehicle\nS1,1000001\n";
    let (lost, mistake) = (
        upload(&world, "kind=relations", text).await,
        upload(&world, "kind=relations", text).await,
    );
    let folder = world.dir.path().join("imports");
    let lost_file = fitment(&world)
        .store()
        .import_jobs()
        .import(lost)
        .await
        .unwrap()
        .unwrap()
        .file;
    std::fs::remove_file(folder.join(lost_file)).unwrap();
    for id in [lost, mistake] {
        let path = format!("/fitment/imports/{id}");
        assert_eq!(world.admin("DELETE", &path, &Value::Null).await.status, 204);
        let again = world.admin("DELETE", &path, &Value::Null).await;
        assert_eq!((again.status.as_u16(), again.code()), (409, "import_ended"));
        assert_eq!(ended(&world, id).await["message"], "cancelled");
    }
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
    // The origin that started it can no longer finish it.
    let store = fitment(&world).store();
    let third = upload(&world, "kind=relations", text).await;
    assert!(
        store
            .import_jobs()
            .take_import("one", 60_000, &|_| true)
            .await
            .unwrap()
            .is_some()
    );
    assert!(fitment(&world).give_up_import(third).await.unwrap());
    let applied =
        store
            .import_jobs()
            .apply_relations((third, "one"), Default::default(), false, &|_| ());
    assert!(!applied.await.unwrap());
    assert_eq!(check(&world, "S1", &[1]).await, ["unknown"]);
}

/// A dead origin has read a part. An origin that lost the import cannot store anything more.
#[tokio::test]
async fn origin_that_lost_its_import_lease_writes_nothing() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 9, &[("S1", "P1")]).await;
    let id = upload(&world, "kind=relations", "sku,vehicle\nS1,1000001\n").await;
    let store = fitment(&world).store();
    assert!(
        store
            .import_jobs()
            .take_import("one", 0, &|_| true)
            .await
            .unwrap()
            .is_some()
    );
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(
        store
            .import_jobs()
            .take_import("two", 60_000, &|_| true)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(
        store
            .import_jobs()
            .take_import("one", 60_000, &|_| true)
            .await
            .unwrap(),
        None
    );
    let progress = Default::default();
    let state = weir_origin::fitment::store::State::Applying;
    assert!(
        !store
            .import_jobs()
            .stage((id, "one"), state, progress, &[], (0, &[]))
            .await
            .unwrap()
    );
    assert!(
        !store
            .import_jobs()
            .apply_relations((id, "one"), progress, false, &|_| ())
            .await
            .unwrap()
    );
    assert!(
        store
            .import_jobs()
            .apply_relations((id, "two"), progress, false, &|_| ())
            .await
            .unwrap()
    );
    assert!(
        !store
            .import_jobs()
            .apply_relations((id, "two"), progress, false, &|_| ())
            .await
            .unwrap(),
        "it has ended"
    );
}
