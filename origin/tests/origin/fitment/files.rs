//! Files as written by catalogues and spreadsheets: VCdb ids, qualifiers, encodings, delimiters.

use serde_json::{Value, json};

use super::imports::{done, failed, start, uploaded};
use super::{catalogue, check};
use crate::support::World;

const ACES: &str = "kind=relations&format=aces";

async fn vcdb(records_staged: usize) -> World {
    let world = World::with_fitment(|settings| settings.records_staged = records_staged).await;
    catalogue(&world, 3, &[("700001", "P1")]).await;
    world
}

fn app(id: u32, elements: &str) -> String {
    format!(
        "<App action=\"A\" id=\"{id}\">{elements}<Qty>1</Qty><PartType id=\"1896\"/><Part>700001</Part></App>\n"
    )
}

fn aces(apps: &[String]) -> String {
    format!("<ACES version=\"4.2\">\n{}</ACES>", apps.concat())
}

fn utf16(text: &str, is_big: bool) -> Vec<u8> {
    let units = "\u{feff}".encode_utf16().chain(text.encode_utf16());
    let bytes = |unit: u16| match is_big {
        true => unit.to_be_bytes(),
        false => unit.to_le_bytes(),
    };
    units.flat_map(bytes).collect()
}

#[tokio::test]
async fn ids_of_a_vcdb_have_1_to_7_digits() {
    let world = vcdb(100).await;
    let _background = start(&world);
    done(
        &world,
        "kind=vehicles",
        "vehicle,make\n2771,Ford\n018242,VW\n",
    )
    .await;
    done(&world, ACES, &aces(&[app(1, "<BaseVehicle id=\"2771\"/>")])).await;
    done(&world, "kind=relations", "sku,vehicle\n700001,18242\n").await;
    let question = json!({ "vehicles": ["2771", "0018242", "1"], "skus": ["700001"] });
    let answer = world.admin("POST", "/fitment/check", &question).await;
    assert_eq!(
        answer.body["vehicles"],
        json!(["0002771", "0018242", "0000001"])
    );
    assert_eq!(
        answer.body["skus"][0]["answers"],
        json!(["fits", "fits", "unknown"])
    );
    let vehicle = world
        .admin("GET", "/fitment/vehicles/2771", &Value::Null)
        .await;
    assert_eq!(vehicle.body["vehicle"], "0002771");
    let page = world
        .admin("GET", "/fitment/skus?vehicle=2771", &Value::Null)
        .await;
    assert_eq!(page.body["vehicle"], "0002771");
}

#[tokio::test]
async fn dropped_qualifiers_are_counted_and_refused_if_strict() {
    // Pieces of one App each: counts continue across pieces.
    for records_staged in [1, 100] {
        let world = vcdb(records_staged).await;
        let _background = start(&world);
        let vehicle = |n| format!("<BaseVehicle id=\"100000{n}\"/>");
        let text = aces(&[
            app(1, &vehicle(1)),
            app(
                2,
                &format!("{}<SubModel id=\"20\"/><BodyType id=\"5\"/>", vehicle(2)),
            ),
            app(
                3,
                &format!(
                    "{}<Position id=\"22\"/><Years from=\"2001\" to=\"2004\"/>",
                    vehicle(3)
                ),
            ),
            app(
                4,
                &format!(
                    "{}<Qual id=\"1\"><param value=\"2\"/><text>2 Door</text></Qual>",
                    vehicle(1)
                ),
            ),
            app(5, &format!("{}<Note>w/o sport package</Note>", vehicle(1))),
            app(6, &format!("{}<MfrLabel>OE</MfrLabel>", vehicle(1))),
            app(7, &format!("{}<DriveType id=\"7\"/>", vehicle(1))),
        ]);
        let import = done(&world, ACES, &text).await;
        assert_eq!(
            (&import["records"], &import["qualifiers_dropped"]),
            (&json!(7), &json!(5))
        );
        assert_eq!(import["strict"], false);
        assert_eq!(check(&world, "700001", &[1, 2]).await, ["fits", "fits"]);
        let strict = format!("{ACES}&strict=true");
        let (import, errors) = failed(&world, &strict, &text).await;
        assert_eq!(
            (&import["strict"], &import["errors"]),
            (&json!(true), &json!(5))
        );
        let reasons: Vec<&str> = errors.iter().map(|(_, _, reason)| &**reason).collect();
        assert!(
            reasons[0].starts_with("App 2: cannot store SubModel, BodyType:"),
            "{reasons:?}"
        );
        assert!(
            reasons[1].starts_with("App 4: cannot store Qual:"),
            "{reasons:?}"
        );
        done(&world, &strict, &aces(&[app(1, &vehicle(1))])).await;
    }
}

#[tokio::test]
async fn errors_in_aces_use_the_words_of_aces() {
    let world = vcdb(100).await;
    let _background = start(&world);
    let vehicle = "<BaseVehicle id=\"1000001\"/>";
    let text = aces(&[
        app(
            1,
            "<Years from=\"2001\" to=\"2004\"/><Make id=\"54\"/><Model id=\"7\"/>",
        ),
        app(2, "<BaseVehicle id=\"27x\"/>"),
        app(3, "<BaseVehicle id=\"2771\"/>"),
        app(4, &format!("{vehicle}<Years from=\"20\" to=\"2004\"/>")),
        app(5, vehicle).replace("action=\"A\"", "action=\"X\""),
        app(6, vehicle).replace("<Part>700001</Part>", ""),
        app(7, vehicle).replace("700001", "7 0"),
        app(8, vehicle).replace("700001", "700002"),
        app(
            9,
            &format!("{vehicle}<Position id=\"{}\"/>", "x".repeat(65)),
        ),
        app(10, "").replace(" id=\"10\"", ""),
    ]);
    let (_, mut errors) = failed(&world, ACES, &text).await;
    errors.sort();
    let expected = [
        ("BaseVehicle", "App 1 has no BaseVehicle"),
        (
            "BaseVehicle",
            "App 2: BaseVehicle must be 1 to 7 digits, not all of them 0",
        ),
        ("BaseVehicle", "App 3: BaseVehicle 0002771 is unknown"),
        (
            "Years",
            "App 4: Years must be 1880 to 2100, with from before to",
        ),
        ("action", "App 5: action is \"X\", must be A or D"),
        ("Part", "App 6 has no Part"),
        ("Part", "App 7: Part has an invalid byte at position 1"),
        ("Part", "Part 700002 is unknown: import its product first"),
        ("Position", "App 9: Position has more than 64 characters"),
        ("BaseVehicle", "the App has no BaseVehicle"),
    ];
    let replies: Vec<_> = errors
        .iter()
        .map(|(_, of, reason)| (&**of, &**reason))
        .collect();
    assert_eq!(replies, expected);
}

#[tokio::test]
async fn aces_is_decoded_by_its_bom_or_declaration() {
    let world = vcdb(1).await;
    let _background = start(&world);
    let declared = |encoding: &str, position: &str| {
        let app = app(
            1,
            &format!("<BaseVehicle id=\"1000001\"/><Position id=\"{position}\"/>"),
        );
        format!(
            "<?xml version=\"1.0\" encoding=\"{encoding}\"?>\n{}",
            aces(&[app.clone(), app])
        )
    };
    let position = async || {
        let path = "/fitment/products/700001";
        let product = world.admin("GET", path, &Value::Null).await;
        product.body["vehicles"][0]["qualifiers"]["position"].clone()
    };
    let windows = |text: String| -> Vec<u8> {
        text.chars()
            .map(|char| u8::try_from(u32::from(char)).unwrap())
            .collect()
    };
    for (position_told, bytes) in [
        ("größer 1", utf16(&declared("UTF-16", "größer 1"), false)),
        ("größer 2", utf16(&declared("UTF-16", "größer 2"), true)),
        ("größer 3", windows(declared("Windows-1252", "größer 3"))),
        ("größer 4", windows(declared("iso-8859-1", "größer 4"))),
    ] {
        let import = uploaded(&world, ACES, bytes).await;
        assert_eq!(import["state"], "done", "{import}");
        let number = |name: &str| import[name].as_u64().unwrap();
        assert!(number("position") <= number("size"), "{import}");
        assert_eq!(position().await, position_told);
    }
    for (encoding, expected) in [
        (
            "EBCDIC-CP-US",
            "unsupported encoding \"EBCDIC-CP-US\": save and declare the file as UTF-8",
        ),
        (
            "UTF-8",
            "line 3: the text is not UTF-8 and looks like Windows-1252: declare",
        ),
    ] {
        let import = uploaded(&world, ACES, windows(declared(encoding, "größer"))).await;
        let message = import["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn spreadsheet_exports_are_read_or_their_encoding_is_named() {
    let world = vcdb(1).await;
    let _background = start(&world);
    let rows = "vehicle;make;model\r\n2771;Škoda;\"a;b\"\r\n2772;VW;Käfer\r\n";
    let tabs = rows.replace(';', "\t").replace("\"a\tb\"", "a;b");
    for bytes in [
        rows.into(),
        format!("\u{feff}{rows}").into(),
        tabs.clone().into(),
        utf16(&tabs, false),
        utf16(&tabs, true),
        utf16(rows, false)[2..].to_vec(),
    ] {
        let import = uploaded(&world, "kind=vehicles", bytes).await;
        assert_eq!(
            (&import["state"], &import["records"]),
            (&json!("done"), &json!(2))
        );
        let skoda = world
            .admin("GET", "/fitment/vehicles/2771", &Value::Null)
            .await;
        assert_eq!(
            (&skoda.body["make"], &skoda.body["model"]),
            (&json!("Škoda"), &json!("a;b"))
        );
        let path = "/fitment/vehicles/2771";
        let document = json!({ "make": "", "model": "", "year": 0, "engine": "" });
        assert_eq!(world.admin("PUT", path, &document).await.status, 204);
    }
    let import = uploaded(
        &world,
        "kind=vehicles",
        b"vehicle;make\n2773;K\xe4fer\n".to_vec(),
    )
    .await;
    let errors = format!("/fitment/imports/{}/errors", import["id"]);
    let body = world.admin("GET", &errors, &Value::Null).await.body;
    let reason = body["errors"][0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("is not UTF-8 and looks like Windows-1252"),
        "{reason}"
    );
    for (bytes, expected) in [
        (
            b"vehicle;k\xe4fer\n".to_vec(),
            "line 1 is not UTF-8 and looks like Windows-1252",
        ),
        (
            utf16("vehicle;colour\n", false),
            "unknown column \"colour\"; the columns are vehicle, make, model, year, engine (the file is UTF-16LE)",
        ),
    ] {
        let import = uploaded(&world, "kind=vehicles", bytes).await;
        let message = import["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
}
