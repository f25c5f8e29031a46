//! What teams use: labels, statistics of many links, shared reports, UTM templates.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_link::agent::{Agent, Language, agent_hash};
use weir_link::click::{BatchId, MINUTE_MS, Row, encode};
use weir_link::redis::keys::{self, link_clicks};
use weir_origin::clock::now_ms;
use weir_origin::links::geo::Geo;

use super::api::{create_link, get};
use crate::support::{Answer, World};

async fn world() -> World {
    let domains = json!({ "domains": [
        { "id": "s", "hosts": ["s.example.com"] }, { "id": "t", "hosts": ["t.example"] },
    ] });
    World::with_links(domains, |_| {}).await
}

/// Counts one click of each visitor on each link, as a gateway reports them.
async fn click(world: &World, batch: u64, clicks: &[(&str, u8)]) {
    let at_ms = now_ms();
    let agent = b"Mozilla/5.0 (Linux; Android 14) Chrome/126.0.0.0 Mobile Safari/537.36";
    let row = |(name, visitor): &(&str, u8)| Row {
        link: name.parse().unwrap(),
        minute_ms: at_ms - at_ms % MINUTE_MS,
        last_ms: at_ms,
        clicks: 1,
        address: Some([203, 0, 113, *visitor].into()),
        agent_hash: agent_hash(agent),
        agent: Agent::read(agent),
        referrer: "news.example".to_owned(),
        language: Language::new(b"de").unwrap_or_default(),
    };
    let rows: Vec<Row> = clicks.iter().map(row).collect();
    let id = BatchId {
        counter: 1,
        sequence: batch,
    };
    let mut add = redis::cmd("XADD");
    add.arg(link_clicks(&world.prefix)).arg("*");
    add.arg(keys::BATCH_ID).arg(id.to_string());
    add.arg(keys::BATCH_ROWS).arg(encode(&rows));
    world.redis(&add).await;
    let links = world.origin.links().unwrap();
    let mut counter = links.click_counter(Geo::default(), format!("test-{batch}"));
    // A busy machine may exceed the time limits of Redis and SQL; the next round reads the batch again.
    let mut counted = 0;
    while counted == 0 {
        counted = counter.round().await.unwrap_or(0);
    }
    assert_eq!(counted, 1);
}

async fn labelled(world: &World, domain: &str, code: &str, labels: Value) -> Value {
    let mut body = json!({ "target": format!("https://target.example/{code}"), "domain": domain, "code": code });
    let members = labels.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(members);
    create_link(world, body).await
}

async fn stats(world: &World, query: &str) -> Value {
    let path = format!("/link-stats{query}");
    let answer = world.admin("GET", &path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

fn tops(stats: &Value) -> Vec<(String, u64)> {
    let links = stats["links"].as_array().unwrap().iter();
    let top = |link: &Value| {
        (
            link["code"].as_str().unwrap().to_owned(),
            link["clicks"].as_u64().unwrap(),
        )
    };
    links.map(top).collect()
}

async fn shared(world: &World, path: &str) -> Answer {
    world
        .public(Request::get(path).body(Body::empty()).unwrap())
        .await
}

#[tokio::test]
async fn labels_are_stored_searched_and_kept_in_the_history() {
    let world = world().await;
    let labels = json!({ "title": " Spring sale ", "note": "For the\nposter", "folder": "Spring", "external_id": "crm-7" });
    let link = labelled(&world, "s", "one-a", labels).await;
    assert_eq!(link["title"], "Spring sale");
    labelled(
        &world,
        "t",
        "two-b",
        json!({ "folder": "Spring", "tags": ["Spring"] }),
    )
    .await;
    labelled(&world, "s", "three-c", json!({})).await;
    world.origin.links().unwrap().log().drained().await;

    for (query, codes) in [
        ("folder=Spring", vec!["two-b", "one-a"]),
        ("folder=Spring&tag=Spring", vec!["two-b"]),
        ("external_id=crm-7", vec!["one-a"]),
        ("tag=crm-7", vec![]),
        ("q=POSTER", vec!["one-a"]),
        ("q=spring%20sale", vec!["one-a"]),
        ("folder=Spring&sort=clicks&domain=s", vec!["one-a"]),
    ] {
        let path = format!("/links?{query}");
        let listed = world.admin("GET", &path, &Value::Null).await;
        let listed = listed.body["links"].as_array().unwrap().clone();
        let found: Vec<_> = listed.iter().map(|link| &link["code"]).collect();
        assert_eq!(found, codes, "{query}");
    }
    let folders = world.admin("GET", "/link-folders", &Value::Null).await.body;
    assert_eq!(
        folders,
        json!({ "folders": [{ "name": "Spring", "links": 2 }] })
    );

    // An edit of one label leaves the others.
    let edit = json!({ "folder": "Summer", "note": null });
    let edited = world.admin("PATCH", "/links/one-a?domain=s", &edit).await;
    assert_eq!(edited.status, 200, "{edited:?}");
    let link = get(&world, "s/one-a").await.body;
    assert_eq!(
        [
            &link["title"],
            &link["note"],
            &link["folder"],
            &link["external_id"]
        ],
        [
            &json!("Spring sale"),
            &Value::Null,
            &json!("Summer"),
            &json!("crm-7")
        ]
    );
    let folders = world.admin("GET", "/link-folders", &Value::Null).await.body;
    assert_eq!(folders["folders"].as_array().unwrap().len(), 2);
    let history = world
        .admin("GET", "/links/one-a/history?domain=s", &Value::Null)
        .await;
    let past = history.body["history"].as_array().unwrap().clone();
    let folders: Vec<_> = past.iter().map(|past| &past["folder"]).collect();
    assert!(folders.contains(&&json!("Spring")) && folders.contains(&&json!("Summer")));

    for (name, value) in [
        ("title", "x".repeat(201)),
        ("title", "a\u{7}b".to_owned()),
        ("note", "x".repeat(2_001)),
        ("folder", "x".repeat(64)),
        ("folder", "a\nb".to_owned()),
        ("external_id", "\u{1e}x\u{1f}y".to_owned()),
    ] {
        let body = json!({ "target": "https://target.example/", name: value });
        let refused = world.admin("POST", "/links", &body).await;
        assert!(
            [400, 422].contains(&refused.status.as_u16()),
            "{name} {refused:?}"
        );
    }

    // Gateways and edges do not get them.
    let record = world
        .redis(redis::cmd("KEYS").arg(format!("{}:*one-a*", world.prefix)))
        .await;
    assert!(format!("{record:?}").contains("one-a"), "{record:?}");
    let links = world.origin.links().unwrap();
    let stored = links
        .store()
        .link(&"s/one-a".parse().unwrap())
        .await
        .unwrap();
    let record = String::from_utf8(stored.unwrap().link.encode()).unwrap();
    assert!(!record.contains("Spring"), "{record}");
}

#[tokio::test]
async fn statistics_cover_all_links_a_folder_or_a_tag() {
    let world = world().await;
    labelled(
        &world,
        "s",
        "one-a",
        json!({ "title": "One", "folder": "Spring", "tags": ["mail"] }),
    )
    .await;
    labelled(
        &world,
        "s",
        "two-b",
        json!({ "tags": ["mail"], "password": "open sesame" }),
    )
    .await;
    labelled(&world, "t", "three-c", json!({ "folder": "Spring" })).await;
    world.origin.links().unwrap().log().drained().await;
    click(
        &world,
        1,
        &[
            ("s/one-a", 1),
            ("s/one-a", 2),
            ("s/two-b", 1),
            ("t/three-c", 1),
        ],
    )
    .await;
    click(&world, 2, &[("s/one-a", 3), ("s/two-b", 3)]).await;

    let all = stats(&world, "").await;
    assert_eq!(all["clicks"], 6);
    let expected = [("one-a", 3), ("two-b", 2), ("three-c", 1)];
    assert_eq!(tops(&all), expected.map(|(code, n)| (code.to_owned(), n)));
    // Three visitors of the domain `s`, one of `t`: a visitor of two links counts once.
    assert_eq!(all["visitors"], 4);
    assert_eq!(all["devices"], json!({ "mobile": 6 }));
    assert_eq!(all["countries"], json!({ "unknown": 6 }));
    assert_eq!(all["referrers"], json!({ "news.example": 6 }));
    assert_eq!(all["series"].as_array().unwrap().len(), 30);
    let links = all["links"].as_array().unwrap();
    assert_eq!(
        (&links[0]["title"], &links[0]["target"]),
        (&json!("One"), &json!("https://target.example/one-a"))
    );
    assert_eq!(links[1]["target"], Value::Null);

    let domain = stats(&world, "?domain=s&by=hour").await;
    assert_eq!(
        (&domain["clicks"], &domain["visitors"]),
        (&json!(5), &json!(3))
    );
    let folder = stats(&world, "?folder=Spring").await;
    assert_eq!(
        (&folder["clicks"], &folder["partial"]),
        (&json!(4), &json!(false))
    );
    assert_eq!(
        tops(&folder),
        [("one-a".to_owned(), 3), ("three-c".to_owned(), 1)]
    );
    assert_eq!(folder["devices"], json!({ "mobile": 4 }));
    let tag = stats(&world, "?tag=mail&domain=s&tz=Europe/Berlin").await;
    assert_eq!(tag["clicks"], 5);
    assert_eq!(stats(&world, "?folder=None").await["clicks"], 0);
    for (query, status) in [
        ("?domain=x", 404),
        ("?folder=a&tag=b", 400),
        ("?from_ms=0", 400),
    ] {
        let path = format!("/link-stats{query}");
        let refused = world.admin("GET", &path, &Value::Null).await;
        assert_eq!(refused.status, status, "{query} {refused:?}");
    }

    // Keys see only their domains and tags.
    let scopes = json!(["links:read", "links:write"]);
    let (_, of_domain) = world
        .key(json!({ "scopes": scopes, "domains": ["t"] }))
        .await;
    let (_, of_tag) = world
        .key(json!({ "scopes": scopes, "tags": ["mail"] }))
        .await;
    for (key, query, status, clicks) in [
        (&of_domain, "", 200, 1),
        (&of_domain, "?folder=Spring", 200, 1),
        (&of_domain, "?domain=s", 403, 0),
        (&of_tag, "?tag=mail", 200, 5),
        (&of_tag, "", 403, 0),
        (&of_tag, "?folder=Spring", 403, 0),
        (&of_tag, "?tag=other", 403, 0),
    ] {
        let path = format!("/link-stats{query}");
        let answer = world.with_key(key, "GET", &path, &Value::Null).await;
        assert_eq!(answer.status, status, "{query} {answer:?}");
        if status == 200 {
            assert_eq!(answer.body["clicks"], clicks, "{query}");
        }
    }
    let folders = world
        .with_key(&of_domain, "GET", "/link-folders", &Value::Null)
        .await;
    assert_eq!(
        folders.body["folders"],
        json!([{ "name": "Spring", "links": 1 }])
    );
    let folders = world
        .with_key(&of_tag, "GET", "/link-folders", &Value::Null)
        .await;
    assert_eq!(folders.status, 403);
}

#[tokio::test]
async fn links_without_clicks_are_listed_alone() {
    let world = world().await;
    for code in ["one-a", "two-b", "three-c"] {
        labelled(&world, "s", code, json!({})).await;
    }
    world.origin.links().unwrap().log().drained().await;
    click(&world, 1, &[("s/two-b", 1)]).await;
    let mut after = String::new();
    for code in ["three-c", "one-a"] {
        let path = format!("/links?sort=unclicked&limit=1&after={after}");
        let page = world.admin("GET", &path, &Value::Null).await.body;
        assert_eq!(page["links"][0]["code"], code, "{page}");
        after = page["next"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(after, "", "the clicked link is not a match");
    let foreign = "/links?sort=unclicked&after=c1.s.two-b";
    let refused = world.admin("GET", foreign, &Value::Null).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn shared_report_needs_no_key_until_it_is_revoked() {
    let world = world().await;
    labelled(
        &world,
        "s",
        "one-a",
        json!({ "title": "<b>One</b>", "folder": "Spring" }),
    )
    .await;
    labelled(
        &world,
        "s",
        "two-b",
        json!({ "folder": "Spring", "password": "open sesame" }),
    )
    .await;
    world.origin.links().unwrap().log().drained().await;
    click(&world, 1, &[("s/one-a", 1), ("s/two-b", 1), ("s/two-b", 2)]).await;

    let new = json!({ "title": "<i>Spring", "folder": "Spring", "days": 7, "tz": "Europe/Berlin" });
    let created = world.admin("POST", "/link-reports", &new).await;
    assert_eq!(created.status, 201, "{created:?}");
    let path = created.body["path"].as_str().unwrap().to_owned();
    let id = created.body["id"].as_str().unwrap().to_owned();
    assert!(!path.contains(&id) && path.len() > 40);

    let page = shared(&world, &path).await;
    assert_eq!(page.status, 200);
    let html = page.body.as_str().unwrap();
    assert!(
        html.contains("&lt;i&gt;Spring") && html.contains("&lt;b&gt;One&lt;/b&gt;"),
        "{html}"
    );
    assert!(html.contains("https://target.example/one-a") && html.contains("s.example.com/two-b"));
    assert!(
        !html.contains("<i>")
            && !html.contains("target.example/two-b")
            && !html.contains("<script")
    );
    assert!(html.contains("<dt>Clicks</dt><dd>3</dd>"), "{html}");
    let raw = Request::get(&path).body(Body::empty()).unwrap();
    let headers = world.raw(raw).await.headers().clone();
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["referrer-policy"], "no-referrer");
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );

    let listed = world.admin("GET", "/link-reports", &Value::Null).await.body;
    assert_eq!(listed["reports"][0]["id"], json!(id));
    assert!(
        !listed
            .to_string()
            .contains(path.rsplit('/').next().unwrap())
    );
    // SQL does not have the token.
    let sql = "SELECT COUNT(*) FROM link_team_items WHERE kind = 'report'";
    assert_eq!(world.number(sql).await, 1);

    let delete = format!("/link-reports/{id}");
    assert_eq!(
        world.admin("DELETE", &delete, &Value::Null).await.status,
        204
    );
    assert_eq!(shared(&world, &path).await.status, 404);
    assert_eq!(
        world.admin("DELETE", &delete, &Value::Null).await.status,
        404
    );
    for token in ["x", &"A".repeat(32), &"A".repeat(33)] {
        let path = format!("/shared-reports/{token}");
        assert_eq!(shared(&world, &path).await.status, 404);
    }
}

#[tokio::test]
async fn shared_report_of_a_link_ends_and_is_limited() {
    let world = world().await;
    labelled(&world, "s", "one-a", json!({ "tags": ["mail"] })).await;
    labelled(&world, "t", "two-b", json!({ "tags": ["other"] })).await;
    world.origin.links().unwrap().log().drained().await;
    click(&world, 1, &[("s/one-a", 1)]).await;
    let scopes = json!(["links:read", "links:write"]);
    let (_, key) = world
        .key(json!({ "scopes": scopes, "domains": ["s"], "tags": ["mail"] }))
        .await;
    for (body, status) in [
        (json!({ "title": "x", "code": "one-a", "domain": "s" }), 201),
        (json!({ "title": "x", "tag": "mail" }), 201),
        (json!({ "title": "x" }), 403),
        (json!({ "title": "x", "tag": "other" }), 403),
        (json!({ "title": "x", "code": "two-b", "domain": "t" }), 404),
        (json!({ "title": "x", "code": "none", "domain": "s" }), 404),
        (json!({ "title": " ", "tag": "mail" }), 422),
        (
            json!({ "title": "x", "tag": "mail", "expires_at_ms": 1 }),
            422,
        ),
        (json!({ "title": "x", "tag": "mail", "tz": "Mars" }), 422),
    ] {
        let answer = world.with_key(&key, "POST", "/link-reports", &body).await;
        assert_eq!(answer.status, status, "{body} {answer:?}");
    }
    let ends = json!({ "title": "x", "code": "one-a", "expires_at_ms": now_ms() + 1_500 });
    let created = world.admin("POST", "/link-reports", &ends).await;
    let path = created.body["path"].as_str().unwrap().to_owned();
    let read = shared(&world, &path).await;
    let html = read.body.as_str().unwrap();
    assert!(html.contains("<dt>Clicks</dt><dd>1</dd>"), "{html}");
    tokio::time::sleep(std::time::Duration::from_millis(1_600)).await;
    assert_eq!(shared(&world, &path).await.status, 404);

    let created = world
        .admin(
            "POST",
            "/link-reports",
            &json!({ "title": "x", "code": "one-a" }),
        )
        .await;
    let path = created.body["path"].as_str().unwrap().to_owned();
    let mut refused = None;
    // A new minute may begin once.
    for _ in 0..130 {
        let answer = shared(&world, &path).await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
    }
    assert_eq!(refused.unwrap().body["error"], "too_many_reads");

    // A deleted link has no report.
    assert_eq!(
        world
            .admin("DELETE", "/links/one-a?domain=s", &Value::Null)
            .await
            .status,
        204
    );
    let again = world.origin.links().unwrap();
    assert!(
        again
            .store()
            .link(&"s/one-a".parse().unwrap())
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn utm_templates_are_stored_replaced_and_deleted() {
    let world = world().await;
    let list = async || {
        world
            .admin("GET", "/link-utm-templates", &Value::Null)
            .await
            .body
    };
    let mail = json!({ "source": "newsletter", "medium": "email" });
    let put = world.admin("PUT", "/link-utm-templates/Mail", &mail).await;
    assert_eq!(put.status, 204, "{put:?}");
    assert_eq!(
        list().await,
        json!({ "templates": [{ "name": "Mail", "utm": mail }] })
    );
    let poster = json!({ "source": "poster" });
    world
        .admin("PUT", "/link-utm-templates/Mail", &poster)
        .await;
    assert_eq!(
        list().await["templates"],
        json!([{ "name": "Mail", "utm": poster }])
    );
    for (name, utm) in [
        ("Mail", json!({ "source": "" })),
        ("a%07b", poster.clone()),
        (&"x".repeat(65), poster),
    ] {
        let path = format!("/link-utm-templates/{name}");
        let refused = world.admin("PUT", &path, &utm).await;
        assert!([400, 422].contains(&refused.status.as_u16()), "{refused:?}");
    }
    assert_eq!(
        world
            .admin("DELETE", "/link-utm-templates/Mail", &Value::Null)
            .await
            .status,
        204
    );
    assert_eq!(
        world
            .admin("DELETE", "/link-utm-templates/Mail", &Value::Null)
            .await
            .status,
        404
    );
    assert_eq!(list().await["templates"], json!([]));
}
