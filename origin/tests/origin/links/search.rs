//! Searches of links by text and by number of clicks.

use serde_json::{Value, json};
use weir_origin::links::model::labels::LabelFilter;
use weir_origin::links::model::stats::{Batch, Clicks, UniquesBySlot};
use weir_origin::links::search::{Cursor, LinkQuery, SCAN_MAX, search};
use weir_origin::links::store::{Action, Change, LinkStore};

use super::api::{create_link, get, in_redis, name, world};
use super::{id, new_link, tagged};

on_every_database! {
    LinkStore:
    links_are_found_by_content_and_ordered_by_clicks,
    page_scans_a_bounded_number_of_links_and_next_resumes,
}

fn clicks(name: &str, count: u32, is_bot: bool) -> Clicks {
    let values = ["mobile", "ios", "safari", "direct", "DE-BE", "Netz", "de"];
    Clicks {
        link: id(name),
        at_ms: 1,
        count,
        is_bot,
        values: values.map(str::to_owned),
    }
}

/// All pages of `limit` links.
async fn found(store: &LinkStore, query: &LinkQuery, first: Cursor, limit: usize) -> Vec<String> {
    let (mut names, mut next) = (Vec::new(), Some(first));
    while let Some(cursor) = next {
        // The cursor as a client returns it.
        let cursor = Cursor::read_text(&cursor.write()).unwrap();
        let page = search(store, query, cursor, limit).await.unwrap();
        assert!(page.links.len() <= limit);
        names.extend(page.links.iter().map(|link| link.id.to_string()));
        next = page.next;
    }
    names
}

async fn links_are_found_by_content_and_ordered_by_clicks(store: &LinkStore) {
    for (n, one) in ["s/aaa", "s/bbb", "t/ccc", "s/ddd", "s/eee"]
        .into_iter()
        .enumerate()
    {
        let tags: &[&str] = if n % 2 == 0 { &["Spring", "ü"] } else { &[] };
        assert!(
            store
                .log()
                .insert(&tagged(one, 1_000 + n as u64, tags))
                .await
                .unwrap()
        );
    }
    let batch = Batch {
        id: "vm-1".into(),
        clicks: vec![
            clicks("s/bbb", 3, false),
            clicks("s/bbb", 4, false),
            clicks("t/ccc", 9, false),
            clicks("s/ddd", 7, false),
            clicks("s/eee", 99, true),
        ],
    };
    for is_new in [true, false] {
        let batch = std::slice::from_ref(&batch);
        let counted = store
            .clicks()
            .count_clicks(batch, &UniquesBySlot::new(), 1)
            .await;
        assert_eq!(counted.unwrap(), [is_new]);
    }
    let text = |text: &str| Some(text.to_owned());
    let all = LinkQuery::default();
    let check = async |query: &LinkQuery, first: Cursor, expected: &[&str]| {
        for limit in [1, 2, 5, 6] {
            let names = found(store, query, first.clone(), limit).await;
            assert_eq!(names, expected, "{query:?} {first:?} {limit}");
        }
    };
    let (age, by_clicks) = (Cursor::Age(None), Cursor::Clicks(None));
    check(
        &all,
        age.clone(),
        &["s/eee", "s/ddd", "t/ccc", "s/bbb", "s/aaa"],
    )
    .await;
    // Bots do not count; unclicked links come last, newest first.
    check(
        &all,
        by_clicks.clone(),
        &["t/ccc", "s/ddd", "s/bbb", "s/eee", "s/aaa"],
    )
    .await;
    let query = |change: &dyn Fn(&mut LinkQuery)| {
        let mut query = LinkQuery::default();
        change(&mut query);
        query
    };
    let tagged = query(&|query| query.labels = vec![LabelFilter::Tag("Spring".to_owned())]);
    check(&tagged, age.clone(), &["s/eee", "t/ccc", "s/aaa"]).await;
    check(&tagged, by_clicks.clone(), &["t/ccc", "s/eee", "s/aaa"]).await;
    let response = query(&|query| query.text = text("DD"));
    check(&response, age.clone(), &["s/ddd"]).await;
    let response = query(&|query| query.text = text("spring"));
    check(&response, age.clone(), &["s/eee", "t/ccc", "s/aaa"]).await;
    let of_domain = query(&|query| query.domain = text("t"));
    check(&of_domain, by_clicks.clone(), &["t/ccc"]).await;
    let target = query(&|query| query.target = text("example.com/S/b"));
    check(&target, age.clone(), &["s/bbb"]).await;
    let dated = query(&|query| (query.from_ms, query.to_ms) = (1_001, Some(1_004)));
    check(&dated, age.clone(), &["s/ddd", "t/ccc", "s/bbb"]).await;
    check(&dated, by_clicks.clone(), &["t/ccc", "s/ddd", "s/bbb"]).await;

    // A deleted link is in no list, and its total is deleted.
    let before = store.link(&id("t/ccc")).await.unwrap().unwrap();
    assert_eq!(before.clicks, 9);
    let mut link = before.link.clone();
    link.version += 1;
    let change = Change {
        before: &before,
        link: &link,
        labels: &before.labels,
        action: Action::Delete,
        now_ms: 5_000,
    };
    assert!(store.edits().change(change).await.unwrap());
    check(
        &all,
        by_clicks.clone(),
        &["s/ddd", "s/bbb", "s/eee", "s/aaa"],
    )
    .await;
    let ended = store.ends().ended(5_000, 5_001, 10).await.unwrap();
    assert_eq!(store.ends().remove(&ended).await.unwrap(), 1);
    assert!(store.log().insert(&new_link("t/ccc", 6_000)).await.unwrap());
    assert_eq!(store.link(&id("t/ccc")).await.unwrap().unwrap().clicks, 0);
}

async fn page_scans_a_bounded_number_of_links_and_next_resumes(store: &LinkStore) {
    use weir_log::Position;
    use weir_origin::links::store::Entry;

    let count = SCAN_MAX + 600;
    let created = |n: usize| Entry::Made(new_link(&format!("s/code-{n:05}"), n as u64));
    let entries: Vec<Entry> = (0..count).map(created).collect();
    let log = "0123456789abcdef0123456789abcdef";
    let at = Position { file: 1, byte: 1 };
    store.log().drain(log, at, &entries).await.unwrap();
    let query = LinkQuery {
        text: Some("code-00007".into()),
        ..LinkQuery::default()
    };
    let page = search(store, &query, Cursor::Age(None), 10).await.unwrap();
    assert_eq!(page.links.len(), 0);
    let page = search(store, &query, page.next.unwrap(), 10).await.unwrap();
    assert_eq!((page.links.len(), page.next), (1, None));
}

#[tokio::test]
async fn link_search_refuses_a_cursor_of_another_order() {
    let world = world().await;
    for (target, tag) in [
        ("https://example.com/One", "x"),
        ("https://two.example/", "y"),
    ] {
        create_link(
            &world,
            json!({"target": target, "tags": [tag], "code": format!("made-{tag}")}),
        )
        .await;
    }
    let response = async |query: &str| {
        world
            .admin("GET", &format!("/links?{query}"), &Value::Null)
            .await
    };
    let codes = |answer: &Value| -> Vec<String> {
        let links = answer["links"].as_array().unwrap().iter();
        links
            .map(|link| link["code"].as_str().unwrap().to_owned())
            .collect()
    };
    let answer = response("q=one&domain=s").await;
    assert_eq!(codes(&answer.body), ["made-x"]);
    assert_eq!(answer.body["links"][0]["clicks"], 0);
    let answer = response("target=two.EXAMPLE&sort=clicks").await;
    assert_eq!(codes(&answer.body), ["made-y"]);
    let answer = response("sort=clicks&limit=1").await;
    let next = answer.body["next"].as_str().unwrap().to_owned();
    let rest = response(&format!("sort=clicks&limit=1&after={next}")).await;
    assert_eq!(
        (codes(&rest.body).len(), &rest.body["next"]),
        (1, &Value::Null)
    );
    // The export contains all of them, independent of page sizes.
    let table = world
        .admin("GET", "/links.csv?sort=clicks", &Value::Null)
        .await;
    let lines: Vec<&str> = table.body.as_str().unwrap().lines().collect();
    assert_eq!(lines.len(), 3, "{table:?}");
    assert!(lines[0].starts_with("domain,code,url,target,tags,clicks,state"));
    assert!(
        lines[1].contains("\"[\"\"y\"\"]\",0,active,"),
        "{}",
        lines[1]
    );
    let stream = world
        .admin("GET", "/links.ndjson?tag=x", &Value::Null)
        .await;
    let one = &stream.body;
    assert_eq!(
        (&one["code"], &one["state"]),
        (&json!("made-x"), &json!("active"))
    );
    for query in [
        format!("after={next}"),
        "sort=size".into(),
        "after=1.s".into(),
    ] {
        assert_eq!(response(&query).await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn rules_ends_and_previews_are_created_edited_and_validated() {
    let world = world().await;
    let rules = json!([
        {"countries": ["de", "AT"], "target": "https://de.example/"},
        {"query": [{"name": "ref", "value": "a b"}, {"name": "x"}], "target": "https://q.example/"},
        {"percent": 30, "target": "https://new.example/"},
    ]);
    let preview =
        json!({"title": "<Spring>", "text": "All of it", "image": "https://i.example/a.png"});
    let body = json!({"target": "https://example.com/", "rules": rules, "preview": preview,
        "ended_target": "https://over.example/"});
    let link = create_link(&world, body).await;
    assert_eq!(link["rules"][0]["countries"], json!(["DE", "AT"]));
    assert_eq!(link["rules"][1]["query"], rules[1]["query"]);
    assert_eq!(link["rules"][2], rules[2]);
    assert_eq!(
        (&link["preview"], &link["ended_target"]),
        (&preview, &json!("https://over.example/"))
    );
    let name = name(&link);
    let stored = in_redis(&world, &name).await.unwrap();
    assert_eq!(
        (
            stored.rules[2].percent,
            stored.preview.unwrap().title.as_str()
        ),
        (30, "<Spring>")
    );

    let path = format!("/links/{}", link["code"].as_str().unwrap());
    let edit = json!({"preview": null, "ended_target": null, "rules": []});
    assert_eq!(world.admin("PATCH", &path, &edit).await.status, 200);
    let edited = get(&world, &name).await.body;
    for field in ["preview", "ended_target"] {
        assert_eq!(edited[field], Value::Null);
    }
    for (field, value, word) in [
        (
            "rules",
            json!([{"countries": ["Germany"], "target": "https://a.example/"}]),
            "invalid_link",
        ),
        (
            "rules",
            json!([{"percent": 0, "target": "https://a.example/"}]),
            "invalid_link",
        ),
        (
            "rules",
            json!([{"percent": 100, "target": "https://a.example/"}]),
            "invalid_link",
        ),
        (
            "rules",
            json!([{"query": [{"name": ""}], "target": "https://a.example/"}]),
            "invalid_link",
        ),
        (
            "ended_target",
            json!("javascript:alert(1)"),
            "target_scheme",
        ),
        (
            "ended_target",
            json!("https://evil.example/"),
            "target_denied_host",
        ),
        ("preview", json!({"title": " "}), "invalid_link"),
        (
            "preview",
            json!({"title": "a", "image": "http://127.0.0.1/"}),
            "target_private",
        ),
    ] {
        let mut edit = json!({});
        edit[field] = value;
        let answer = world.admin("PATCH", &path, &edit).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["error"]),
            (422, &json!(word)),
            "{edit}"
        );
    }
}
