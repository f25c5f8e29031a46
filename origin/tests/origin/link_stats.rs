//! Reports about a link: its clicks as JSON and CSV, and its QR code.

use serde_json::{Value, json};
use weir_link::code::LinkId;
use weir_origin::clock::now_ms;
use weir_origin::links::model::stats::{
    Batch, Clicks, DAY_MS, HOUR_MS, Slot, Span, Uniques, UniquesBySlot,
};

use crate::support::{TOKEN, World};

fn domains() -> Value {
    json!({ "domains": [
        { "id": "s", "hosts": ["s.example.com"] },
        { "id": "t", "hosts": ["t.example"], "scheme": "http" },
    ] })
}

async fn world() -> World {
    World::with_links(domains(), |_| {}).await
}

/// Creates a link with this code.
async fn create_link(world: &World, domain: &str, code: &str) {
    let body = json!({ "target": "https://a.example/", "domain": domain, "code": code });
    let create_link = world.admin("POST", "/links", &body).await;
    assert_eq!(create_link.status, 201, "{create_link:?}");
}

/// Counts clicks like the consumer.
async fn count(world: &World, id: &str, name: &str, at_ms: u64, count: u32, referrer: &str) {
    let values = [
        "mobile", "ios", "safari", referrer, "unknown", "=1+1,2", "de",
    ];
    let link: LinkId = name.parse().unwrap();
    let observed = Uniques {
        visitors: 3,
        addresses: 2,
    };
    let uniques: UniquesBySlot = [Span::Hour, Span::Day]
        .map(|span| (Slot::at(&link, span, at_ms), observed))
        .into();
    let clicks = Clicks {
        link,
        at_ms,
        count,
        is_bot: false,
        values: values.map(str::to_owned),
    };
    let batches = [Batch {
        id: id.to_owned(),
        clicks: vec![clicks],
    }];
    let counted =
        world
            .origin
            .links()
            .unwrap()
            .store()
            .clicks()
            .count_clicks(&batches, &uniques, now_ms());
    assert_eq!(counted.await.unwrap(), [true]);
}

#[tokio::test]
async fn clicks_are_reported_by_hour_and_day() {
    let world = world().await;
    create_link(&world, "s", "abc").await;
    let now_ms = now_ms();
    count(&world, "1", "s/abc", now_ms, 5, "b.example").await;
    count(&world, "2", "s/abc", now_ms, 2, "direct").await;
    count(&world, "3", "t/abc", now_ms, 9, "direct").await;
    let answer = world.admin("GET", "/links/abc/stats", &Value::Null).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.body;
    assert_eq!(body["by"], "day");
    assert_eq!(
        [&body["clicks"], &body["visitors"], &body["addresses"]],
        [&json!(7), &json!(3), &json!(2)]
    );
    let series = body["series"].as_array().unwrap();
    assert_eq!(series.len(), 30);
    let today = json!({ "at_ms": now_ms - now_ms % DAY_MS, "clicks": 7, "bots": 0, "visitors": 3, "addresses": 2 });
    assert_eq!(
        series.iter().filter(|point| point["clicks"] != 0).count(),
        1
    );
    assert!(series.contains(&today), "{series:?}");
    assert_eq!(body["referrers"], json!({ "b.example": 5, "direct": 2 }));
    assert_eq!(body["devices"], json!({ "mobile": 7 }));

    let hour_ms = now_ms - now_ms % HOUR_MS;
    let path = format!(
        "/links/abc/stats?domain=s&by=hour&from_ms={}&to_ms={}",
        hour_ms,
        hour_ms + 1
    );
    let body = world.admin("GET", &path, &Value::Null).await.body;
    let series = body["series"].as_array().unwrap();
    assert_eq!((series.len(), &series[0]["at_ms"]), (1, &json!(hour_ms)));
    assert_eq!(body["clicks"], 7);
    assert_eq!(body["languages"], json!({ "de": 7 }));
}

/// A code may be reused: earlier clicks do not belong to the new link.
#[tokio::test]
async fn clicks_before_creation_are_not_counted() {
    let world = world().await;
    create_link(&world, "s", "abc").await;
    let now_ms = now_ms();
    count(&world, "1", "s/abc", now_ms - DAY_MS, 8, "direct").await;
    count(&world, "2", "s/abc", now_ms, 1, "direct").await;
    for query in ["", "?by=hour"] {
        let path = format!("/links/abc/stats{query}");
        let body = world.admin("GET", &path, &Value::Null).await.body;
        assert_eq!(body["clicks"], 1, "{query}");
        assert_eq!(body["devices"], json!({ "mobile": 1 }), "{query}");
    }
}

#[tokio::test]
async fn stats_csv_has_no_formulas() {
    let world = world().await;
    create_link(&world, "s", "abc").await;
    count(&world, "1", "s/abc", now_ms(), 5, "b.example").await;
    let answer = world
        .admin("GET", "/links/abc/stats.csv", &Value::Null)
        .await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/csv")
    );
    assert_eq!(
        answer.headers["content-disposition"],
        "attachment; filename=\"s-abc.csv\""
    );
    let text = answer.body.as_str().unwrap();
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(
        lines[0],
        "part,value,clicks,visitors,addresses,bots,too_many_by"
    );
    assert!(lines[1].starts_with("day,") && lines[1].ends_with("T00:00:00Z,0,0,0,0,"));
    assert!(
        lines
            .iter()
            .any(|line| line.ends_with("T00:00:00Z,5,3,2,0,"))
    );
    assert!(lines.contains(&"operator,\"'=1+1,2\",5,,,,0"), "{text}");
    assert!(lines.contains(&"referrer,b.example,5,,,,0"), "{text}");
}

#[tokio::test]
async fn qr_code_decodes_to_the_link() {
    let world = world().await;
    create_link(&world, "s", "abc").await;
    create_link(&world, "t", "xyz").await;
    let query = "size=300&level=Q&margin=2&dark=102030&light=ffeecc";
    for (path, expected) in [
        (
            format!("/links/abc/qr.png?{query}"),
            "https://s.example.com/abc?qr",
        ),
        (
            "/links/xyz/qr.png?domain=t&scans=false".to_owned(),
            "http://t.example/xyz",
        ),
    ] {
        let image = world.admin_bytes(&path).await;
        let mut reader = png::Decoder::new(std::io::Cursor::new(image))
            .read_info()
            .unwrap();
        let mut rows = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut rows).unwrap();
        let side = info.width as usize;
        let brightness =
            |x: usize, y: usize| match rows[y * info.line_size + x / 8] >> (7 - x % 8) & 1 {
                1 => 0,
                _ => 255,
            };
        let mut read = rqrr::PreparedImage::prepare_from_greyscale(side, side, brightness);
        assert_eq!(read.detect_grids()[0].decode().unwrap().1, expected);
    }
    let answer = world
        .admin("GET", &format!("/links/abc/qr.svg?{query}"), &Value::Null)
        .await;
    assert_eq!(answer.headers["content-type"], "image/svg+xml");
    let svg = answer.body.as_str().unwrap();
    assert!(svg.contains("width=\"300\"") && svg.contains("#102030") && svg.contains("#ffeecc"));
}

#[tokio::test]
async fn invalid_parameters_are_refused_by_name() {
    let world = world().await;
    create_link(&world, "s", "abc").await;
    for (path, words) in [
        ("/links/abc/stats?by=minute", "minute"),
        ("/links/abc/stats?from=1", "from"),
        ("/links/abc/stats?from_ms=x", "from_ms"),
        ("/links/abc/stats?from_ms=2&to_ms=1", "to_ms: must be later"),
        ("/links/abc/stats.csv?by=hour&from_ms=0", "744 hours"),
        ("/links/abc/qr.svg?size=63", "size: must be 64 to 2048"),
        ("/links/abc/qr.png?size=large", "size"),
        ("/links/abc/qr.png?margin=99", "margin: must be 0 to 16"),
        ("/links/abc/qr.png?level=X", "level: must be L, M, Q or H"),
        ("/links/abc/qr.svg?dark=red", "dark: must be a colour"),
        ("/links/abc/qr.svg?light=%23fff", "light: must be a colour"),
        (
            "/links/abc/qr.svg?dark=ffffff&light=000000",
            "dark must be darker",
        ),
        ("/links/abc/qr.svg?colour=red", "colour"),
    ] {
        let answer = world.admin("GET", path, &Value::Null).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, "invalid_query"),
            "{path}"
        );
        assert!(
            answer.detail().contains(words),
            "{path}: {}",
            answer.detail()
        );
    }
    for path in ["stats", "stats.csv", "qr.svg", "qr.png"] {
        for link in ["nope", "ab", "abc%2f"] {
            let answer = world
                .admin("GET", &format!("/links/{link}/{path}"), &Value::Null)
                .await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (404, "unknown_link")
            );
        }
        let path = format!("/links/abc/{path}?domain=t");
        assert_eq!(
            world.admin("GET", &path, &Value::Null).await.code(),
            "unknown_link"
        );
        let answer = world.admin_as("GET", "/links/abc/stats", "", None).await;
        assert_eq!(answer.status, 401);
    }
}

/// Clicks from a country, by a device type and a referrer.
async fn cell(world: &World, id: &str, at_ms: u64, count: u32, cell: [&str; 3]) {
    let [region, device, referrer] = cell;
    let values = [device, "ios", "safari", referrer, region, "x", "de"];
    let clicks = Clicks {
        link: "s/abc".parse().unwrap(),
        at_ms,
        count,
        is_bot: false,
        values: values.map(str::to_owned),
    };
    let batches = [Batch {
        id: id.to_owned(),
        clicks: vec![clicks],
    }];
    let store = world.origin.links().unwrap().store();
    let slot = UniquesBySlot::new();
    let counted = store.clicks().count_clicks(&batches, &slot, now_ms());
    assert_eq!(counted.await.unwrap(), [true]);
}

#[tokio::test]
async fn clicks_are_filtered_by_several_fields_and_scans_are_separate() {
    let world = world().await;
    create_link(&world, "s", "abc").await;
    let at_ms = now_ms();
    for (id, count, of) in [
        ("1", 1, ["DE-BE", "mobile", "qr"]),
        ("2", 2, ["DE-BY", "mobile", "direct"]),
        ("3", 4, ["DE-BY", "desktop", "a.example"]),
        ("4", 8, ["FR", "mobile", "qr"]),
    ] {
        cell(&world, id, at_ms, count, of).await;
    }
    let get = |path: &str| {
        let (world, path) = (&world, format!("/links/abc/{path}"));
        async move { world.admin("GET", &path, &Value::Null).await }
    };
    let stats = get("stats").await.body;
    assert_eq!((&stats["clicks"], &stats["scans"]), (&json!(15), &json!(9)));
    let all = get("crosstab?by=hour").await.body;
    assert_eq!(
        (&all["clicks"], &all["off_by_max"]),
        (&json!(15), &json!(0))
    );
    assert_eq!(all["countries"], json!({"DE": 7, "FR": 8}));
    let body = get("crosstab?country=de&device=mobile&tz=Europe/Berlin")
        .await
        .body;
    assert_eq!(
        (&body["clicks"], &body["tz"]),
        (&json!(3), &json!("Europe/Berlin"))
    );
    assert_eq!(body["referrers"], json!({"direct": 2, "qr": 1}));
    assert_eq!(body["devices"], json!({"desktop": 4, "mobile": 3}));
    assert_eq!(body["countries"], json!({"DE": 3, "FR": 8}));
    assert_eq!(
        body["filter"],
        json!({"country": "de", "device": "mobile", "referrer": null})
    );
    let series = body["series"].as_array().unwrap();
    let total: u64 = series
        .iter()
        .map(|point| point["clicks"].as_u64().unwrap())
        .sum();
    assert_eq!((series.len(), total), (30, 3));
    for (query, words) in [
        ("crosstab?tz=Mars", "tz"),
        ("crosstab?city=x", "city"),
        ("crosstab?from_ms=0&to_ms=86400000", "31 days"),
        ("stats?tz=Nowhere/Else", "tz"),
        ("stats?tz=Europe/Berlin&from_ms=0&to_ms=86400000", "90 days"),
    ] {
        let answer = get(query).await;
        let detail = answer.body["detail"].as_str().unwrap();
        assert!(
            answer.status == 400 && detail.contains(words),
            "{query}: {detail}"
        );
    }
}

/// Clicks just before a zone's midnight belong to its previous day, and to the current UTC day.
#[tokio::test]
async fn days_follow_the_requested_time_zone() {
    let world = world().await;
    create_link(&world, "s", "abc").await;
    let now_ms = now_ms();
    count(&world, "1", "s/abc", now_ms, 5, "direct").await;
    for (zone, offset_ms) in [("Etc/GMT+12", -12), ("Etc/GMT-14", 14), ("UTC", 0)] {
        let path = format!("/links/abc/stats?tz={}", zone.replace('+', "%2B"));
        let body = world.admin("GET", &path, &Value::Null).await.body;
        assert_eq!((&body["clicks"], &body["tz"]), (&json!(5), &json!(zone)));
        let series = body["series"].as_array().unwrap();
        let last = series.last().unwrap();
        let local_ms = (now_ms as i64 + offset_ms * HOUR_MS as i64) as u64;
        let start_ms = (local_ms - local_ms % DAY_MS) as i64 - offset_ms * HOUR_MS as i64;
        assert_eq!(
            (&last["at_ms"], &last["clicks"]),
            (&json!(start_ms), &json!(5)),
            "{zone}"
        );
        assert_eq!(last["visitors"], 3);
        assert_eq!(series.len(), 30);
    }
}

#[tokio::test]
async fn qr_code_has_the_logo_in_its_middle() {
    let world = world().await;
    create_link(&world, "s", "abc").await;
    let mut picture = Vec::new();
    let mut encoder = png::Encoder::new(&mut picture, 40, 40);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&[200, 0, 0].repeat(1_600)).unwrap();
    writer.finish().unwrap();
    let post = |path: &str, body: Vec<u8>| {
        let request = axum::http::Request::post(path);
        let request = request.header("authorization", format!("Bearer {TOKEN}"));
        world.admin_request(request.body(body.into()).unwrap())
    };
    let answer = post("/links/abc/qr.svg?size=300", picture.clone()).await;
    assert_eq!(answer.headers["content-type"], "image/svg+xml");
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("img-src data:"), "{policy}");
    assert!(
        answer
            .body
            .as_str()
            .unwrap()
            .contains("data:image/png;base64,")
    );
    assert_eq!(post("/links/abc/qr.png", picture).await.status, 200);
    for (path, body) in [
        ("/links/abc/qr.png", b"GIF89a".to_vec()),
        ("/links/abc/qr.svg", vec![0; 300_000]),
    ] {
        let answer = post(path, body).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["error"]),
            (422, &json!("invalid_picture"))
        );
    }
}

#[tokio::test]
async fn utm_parameters_are_added_to_the_target() {
    let world = world().await;
    let body = json!({"target": "https://a.example/p?x=1&utm_source=old#f", "code": "spring",
        "utm": {"source": "news letter", "campaign": "spring"}});
    let link = world.admin("POST", "/links", &body).await;
    let target = "https://a.example/p?x=1&utm_source=news%20letter&utm_campaign=spring#f";
    assert_eq!(link.body["target"], target, "{link:?}");
    let edit = json!({"utm": {"medium": "mail", "campaign": "summer"}});
    let link = world.admin("PATCH", "/links/spring", &edit).await;
    let target =
        "https://a.example/p?x=1&utm_source=news%20letter&utm_medium=mail&utm_campaign=summer#f";
    assert_eq!(link.body["target"], target);
    let wrong = json!({"utm": {"source": ""}});
    let refused = world.admin("PATCH", "/links/spring", &wrong).await;
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(
        refused.status == 422 && detail.contains("utm.source"),
        "{refused:?}"
    );
}
