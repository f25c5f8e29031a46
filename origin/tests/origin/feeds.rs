//! The feeds for edges: signed, resumable, and only for holders of a key.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use weir_base::feed::document::{Content, Document, open};
use weir_base::feed::routes::{CONTENT_TYPE, DOMAINS, LINKS, SOLD_OUT, links_after};
use weir_base::headers::{EDGE, EDGE_SIGNATURE};
use weir_base::key::{KeyRing, SigningKey};
use weir_base::stamp::Stamp;
use weir_link::code::LinkId;
use weir_link::feed::{Cursor, DomainList, Links, Page, State};
use weir_link::record::{Link, PasswordGuard};
use weir_origin::clock::now_ms;
use weir_origin::links::model::labels::Labels;
use weir_origin::links::store::NewLink;
use weir_sale::feed::{SaleList, SaleListCache};

use crate::support::World;

pub(crate) fn ring(keys: &[(&str, u8)]) -> KeyRing {
    let key = |&(id, byte): &(&str, u8)| SigningKey::new(id, &[byte; 32]).unwrap();
    KeyRing::new(keys.iter().map(key).collect()).unwrap()
}

fn keys() -> KeyRing {
    ring(&[("e1", 1), ("e0", 2)])
}

async fn world() -> World {
    let domains = json!({"domains": [{"id": "s", "hosts": ["s.example"]}]});
    World::with_links(domains, |_| ()).await.and_edges(keys())
}

/// A request of an edge with these keys, signed for `path`.
fn request(keys: &KeyRing, path: &str, at_ms: u64, etag: &str) -> Request<Body> {
    let stamp = Stamp {
        at_ms,
        edge: "fra-1",
        client: "",
        method: "GET",
        path,
    };
    let signed = stamp.sign(keys);
    let request = Request::builder().uri(path).header("if-none-match", etag);
    let request = request.header(EDGE, signed.value);
    let request = request.header(EDGE_SIGNATURE, signed.signature);
    request.body(Body::empty()).unwrap()
}

async fn text(world: &World, path: &str) -> (u16, String, String) {
    let response = world.raw(request(&keys(), path, now_ms(), "")).await;
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).cloned();
    let etag = header("etag").map_or(String::new(), |etag| etag.to_str().unwrap().to_owned());
    if status == 200 {
        assert_eq!(header("content-type").unwrap(), CONTENT_TYPE);
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, etag, String::from_utf8(body.to_vec()).unwrap())
}

async fn read<T: Content>(world: &World, path: &str) -> Document<T> {
    let (status, _, text) = text(world, path).await;
    assert_eq!(status, 200, "{text}");
    open(&keys(), text.as_bytes()).unwrap()
}

/// Reads all pages from an edge's position to the end.
async fn follow(world: &World, edge: &mut Links) -> usize {
    for pages in 1.. {
        let cursor = edge.progress.cursor.as_ref().map(ToString::to_string);
        let page: Document<Page> = read(world, &links_after(cursor.as_deref())).await;
        edge.take(&page, now_ms()).unwrap();
        if page.body.is_last {
            return pages;
        }
    }
    unreachable!("the feed has an end")
}

fn id(text: &str) -> LinkId {
    text.parse().unwrap()
}

fn new_link(code: &str, link: &Link) -> NewLink {
    NewLink {
        id: id(&format!("s/{code}")),
        record: String::from_utf8(link.encode()).unwrap(),
        labels: Labels::default(),
        life_ms: link.life_ms,
        ends_at_ms: 0,
        created_at_ms: now_ms(),
    }
}

async fn insert(world: &World, code: &str, link: &Link) {
    let store = world.origin.links().unwrap().store();
    assert!(store.log().insert(&new_link(code, link)).await.unwrap());
}

fn target<'a>(edge: &'a Links, code: &str) -> Option<&'a State> {
    edge.find(&id(&format!("s/{code}")))
}

async fn admin(world: &World, method: &str, code: &str, body: Value) {
    let path = format!("/links/{code}?domain=s");
    let answer = world.admin(method, &path, &body).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

#[tokio::test]
async fn feed_has_new_links_edits_and_deletions() {
    let world = world().await;
    let mut edge = Links::default();
    assert_eq!(follow(&world, &mut edge).await, 1);
    let began_ms = edge.progress.whole_at_ms;
    assert!(began_ms > 0 && began_ms <= now_ms());
    for code in ["abc", "abd"] {
        insert(&world, code, &Link::to("https://1.example/")).await;
    }
    follow(&world, &mut edge).await;
    let first = target(&edge, "abc").unwrap().clone();
    assert!(matches!(&first, State::Record(record) if record.contains("https://1.example/")));

    admin(
        &world,
        "PATCH",
        "abc",
        json!({"target": "https://2.example/"}),
    )
    .await;
    admin(&world, "DELETE", "abd", Value::Null).await;
    follow(&world, &mut edge).await;
    let edited = target(&edge, "abc").unwrap();
    assert!(matches!(edited, State::Record(record) if record.contains("https://2.example/")));
    assert_eq!(target(&edge, "abd"), Some(&State::Gone));

    // A new edge has the same data.
    let mut other = Links::default();
    follow(&world, &mut other).await;
    for code in ["abc", "abd"] {
        assert_eq!(target(&other, code), target(&edge, code));
    }
}

#[tokio::test]
async fn gateway_only_links_are_marked_without_content() {
    let world = world().await;
    let plain = Link::to("https://secret.example/");
    let counted = Link {
        max_clicks: 3,
        ..plain.clone()
    };
    let living = Link {
        life_ms: 86_400_000,
        ..plain.clone()
    };
    insert(&world, "counted", &counted).await;
    let guarded = Link {
        guard: Some(PasswordGuard::new("secret.example")),
        ..plain.clone()
    };
    insert(&world, "living", &living).await;
    insert(&world, "guarded", &guarded).await;
    insert(&world, "plain", &plain).await;
    let (_, _, text) = text(&world, LINKS).await;
    assert_eq!(text.matches("secret.example").count(), 1, "{text}");
    let mut edge = Links::default();
    follow(&world, &mut edge).await;
    for code in ["counted", "living", "guarded"] {
        assert_eq!(target(&edge, code), Some(&State::AtGateway));
    }
    // An edit that sets a click limit removes the link from edges.
    admin(&world, "PATCH", "plain", json!({"max_clicks": 2})).await;
    follow(&world, &mut edge).await;
    assert_eq!(target(&edge, "plain"), Some(&State::AtGateway));
}

#[tokio::test]
async fn feed_has_click_limits_and_their_objects() {
    let mut world = world().await;
    world.origin = world.origin.with_click_limits_in_objects(true);
    let world = world.and_edges(keys());
    let counted = Link {
        max_clicks: 3,
        ..Link::to("https://counted.example/")
    };
    let living = Link {
        life_ms: 86_400_000,
        ..counted.clone()
    };
    insert(&world, "counted", &counted).await;
    insert(&world, "living", &living).await;
    insert(&world, "plain", &Link::to("https://plain.example/")).await;
    let mut edge = Links::default();
    follow(&world, &mut edge).await;
    let record = String::from_utf8(counted.encode()).unwrap();
    assert_eq!(target(&edge, "counted"), Some(&State::Counted(record)));
    assert_eq!(target(&edge, "living"), Some(&State::AtGateway));
    assert!(matches!(target(&edge, "plain"), Some(State::Record(_))));
    let list: Document<DomainList> = read(&world, DOMAINS).await;
    assert_eq!(
        list.body.click_limits_in_objects.as_deref(),
        Some(&*world.prefix)
    );
}

#[tokio::test]
async fn feed_pages_have_no_gaps_while_links_are_created() {
    let world = world().await;
    for number in 0..60 {
        insert(
            &world,
            &format!("a{number:03}"),
            &Link::to("https://t.example/"),
        )
        .await;
    }
    let mut edge = Links::default();
    follow(&world, &mut edge).await;
    let long = format!("https://t.example/{}", "x".repeat(2_000));
    let store = world.origin.links().unwrap().store();
    // More links than fit into a page, by number and by bytes, with concurrent readers that assign numbers.
    let created = async {
        for chunk in 0..12 {
            let entries: Vec<_> = (0..64)
                .map(|number| {
                    let code = format!("b{chunk:02}{number:02}");
                    weir_origin::links::store::Entry::Made(new_link(&code, &Link::to(&long)))
                })
                .collect();
            let position = weir_log::Position {
                file: 1,
                byte: chunk,
            };
            store
                .log()
                .drain("other", position, &entries)
                .await
                .unwrap();
        }
    };
    let mut second = Links::default();
    let read = async {
        for _ in 0..10 {
            follow(&world, &mut second).await;
        }
    };
    tokio::join!(created, read);
    assert!(follow(&world, &mut edge).await > 1);
    follow(&world, &mut second).await;
    for chunk in 0..12 {
        for number in 0..64 {
            let code = format!("b{chunk:02}{number:02}");
            for edge in [&edge, &second] {
                assert!(
                    matches!(target(edge, &code), Some(State::Record(_))),
                    "{code}"
                );
            }
        }
    }
}

#[tokio::test]
async fn unknown_feed_position_is_gone() {
    let world = world().await;
    let page: Document<Page> = read(&world, LINKS).await;
    let source = page.body.source.as_str();
    let cursor = Cursor {
        source: page.body.source.clone(),
        seq: page.body.next,
    };
    assert_eq!(
        text(&world, &links_after(Some(&cursor.to_string())))
            .await
            .0,
        200
    );
    for other in [format!("{source}.99999999999999"), "other.0".to_owned()] {
        assert_eq!(
            text(&world, &links_after(Some(&other))).await.0,
            410,
            "{other}"
        );
    }
    assert_eq!(text(&world, &links_after(Some("no-cursor"))).await.0, 400);
}

/// A link whose code becomes free and is reused.
#[tokio::test]
async fn cleaned_link_leaves_the_feed_and_can_return() {
    let world = world().await;
    let store = world.origin.links().unwrap().store().clone();
    let ended = NewLink {
        ends_at_ms: 1,
        created_at_ms: 1,
        ..new_link("abc", &Link::to("https://1.example/"))
    };
    store.log().insert(&ended).await.unwrap();
    let mut edge = Links::default();
    follow(&world, &mut edge).await;
    let removed = store.ends().ended(0, 10, 10).await.unwrap();
    assert_eq!(store.ends().remove(&removed).await.unwrap(), 1);
    follow(&world, &mut edge).await;
    assert_eq!(target(&edge, "abc"), Some(&State::Gone));
    insert(&world, "abc", &Link::to("https://2.example/")).await;
    follow(&world, &mut edge).await;
    assert!(
        matches!(target(&edge, "abc"), Some(State::Record(record)) if record.contains("2.example"))
    );
}

#[tokio::test]
async fn feeds_need_an_edge_assertion() {
    let world = world().await;
    let requested = |keys: &KeyRing, signed: &str, path: &str, at_ms| {
        let mut request = request(keys, signed, at_ms, "");
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let good = keys();
    for path in [LINKS, DOMAINS] {
        let forged = ring(&[("e1", 9)]);
        for request in [
            Request::builder().uri(path).body(Body::empty()).unwrap(),
            requested(&forged, path, path, now_ms()),
            requested(&good, "/other", path, now_ms()),
            requested(&good, path, path, now_ms() - 61_000),
            requested(&good, path, path, now_ms() + 62_000),
        ] {
            let refused = world.public(request).await;
            assert_eq!(
                (refused.status.as_u16(), refused.code()),
                (401, "unauthorized")
            );
        }
        // An edge that still uses the previous secret.
        let old = ring(&[("e0", 2)]);
        let response = world.raw(request(&old, path, now_ms(), "")).await;
        assert_eq!(response.status(), 200);
    }
    let without = World::new().await;
    let refused = without.public(request(&good, SOLD_OUT, now_ms(), "")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (404, "edges_off")
    );
}

#[tokio::test]
async fn unchanged_feed_is_not_sent_again() {
    let world = world().await;
    for _ in 0..20 {
        let (_, etag, first) = text(&world, DOMAINS).await;
        let again = world.raw(request(&keys(), DOMAINS, now_ms(), &etag)).await;
        if again.status() == 304 {
            let (_, _, second) = text(&world, DOMAINS).await;
            let same: [Document<DomainList>; 2] =
                [&first, &second].map(|text| open(&keys(), text.as_bytes()).unwrap());
            assert_eq!(same[0].body, same[1].body);
            assert_eq!(same[0].body.version, 1);
            return;
        }
        // A second has passed in between.
    }
    panic!("it was sent again each time");
}

#[tokio::test]
async fn sold_out_feed_follows_the_catalogue() {
    let world = World::new().await.and_edges(keys());
    assert_eq!(text(&world, SOLD_OUT).await.0, 503, "nothing is published");
    world.sale("s", 1).await;
    let first: Document<SaleList> = read(&world, SOLD_OUT).await;
    assert_eq!(first.body.sold_out().count(), 0);
    assert_eq!(first.body.catalogue.sales.len(), 1);
    let mut cache = SaleListCache::default();
    cache.take(first.clone(), now_ms()).unwrap();

    let ticket = world.claim("s", "alice").await;
    assert_eq!(world.order(&ticket).await.status, 201);
    world.origin.sales().publisher().publish().await.unwrap();
    let second: Document<SaleList> = read(&world, SOLD_OUT).await;
    let sold_out: Vec<_> = second
        .body
        .sold_out()
        .map(|sale| sale.id.as_str())
        .collect();
    assert_eq!(sold_out, ["s"]);
    cache.take(second, now_ms()).unwrap();
    assert!(cache.take(first, now_ms()).is_err(), "an older one");
    assert_eq!(cache.current(now_ms()).unwrap().sold_out().count(), 1);
}
