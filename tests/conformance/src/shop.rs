//! A shop at an edge: a sale, a link, and a link with a click limit. The edges' own tests and measurements use it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use serde_json::{Value, json};
use weir_base::feed::document::{Content, seal};
use weir_base::feed::routes::{DOMAINS, SOLD_OUT, links_after};
use weir_link::feed::{Cursor, DomainList, Entry, Page, Source, State};
use weir_link::record::Link;
use weir_sale::feed::{FRESH_MS, SaleList};

use crate::hosts::wasi::feeds::{EDGE_SECRET, keys};

/// The ID of the edge.
pub const EDGE: &str = "test-1";

/// The links' host.
pub const HOST: &str = "d.example";

/// The paths of the link, of the link with a click limit, of the sale, and of its orders.
pub const LINK: &str = "/abc";
/// The path of the link with a click limit.
pub const LIMITED: &str = "/max";
/// The path of the sale.
pub const SALE: &str = "/sales/s";
/// The path for orders.
pub const ORDERS: &str = "/sales/s/orders";

/// The edge's configuration.
pub fn config() -> Value {
    json!({
        "edge": EDGE,
        "keys": [{ "id": "e1", "secret": { "env": EDGE_SECRET.0 } }],
        "links": {},
        "gate": {
            "routes": [{ "path": "/sales/{sale}/orders" }],
            "status_routes": [{ "path": "/sales/{sale}" }],
            "user_header": "x-user-id",
        },
    })
}

/// The environment variables of the edge, with origin and gateway at these URLs.
pub fn variables(config: &Value, origin: &str, gateway: &str) -> BTreeMap<String, String> {
    let all = [
        (EDGE_SECRET.0, EDGE_SECRET.1),
        ("WEIR_EDGE_CONFIG", &config.to_string()),
        ("WEIR_EDGE_ORIGIN", origin),
        ("WEIR_EDGE_GATEWAY", gateway),
    ];
    let all = all.map(|(name, value)| (name.to_owned(), value.to_owned()));
    all.into()
}

/// The same with both at one address.
pub fn variables_at(config: &Value, world: SocketAddr) -> BTreeMap<String, String> {
    let at = format!("http://{world}");
    variables(config, &at, &at)
}

/// All feeds as of now, by path: the sale with this band, and the link with this target. `version` must increase.
///
/// # Errors
/// They cannot be signed.
pub fn feeds(
    version: u64,
    band: &str,
    target: &str,
    now_ms: u64,
) -> Result<BTreeMap<String, String>> {
    let source = Source::new("f1")?;
    let (before, seq) = (version * 2 - 2, version * 2);
    let path = |seq: u64| {
        let cursor = Cursor {
            source: source.clone(),
            seq,
        };
        links_after(Some(&cursor.to_string()))
    };
    let page = |after: u64, links: &[Entry]| Page {
        source: source.clone(),
        after,
        next: seq,
        is_last: true,
        links: links.to_vec(),
    };
    let links = links(before, target)?;
    let mut feeds = BTreeMap::from([
        (
            SOLD_OUT.to_owned(),
            sealed(&sales(version, band, now_ms)?, now_ms)?,
        ),
        (DOMAINS.to_owned(), sealed(&domains()?, now_ms)?),
        (links_after(None), sealed(&page(0, &links), now_ms)?),
        (path(seq), sealed(&page(seq, &[]), now_ms)?),
    ]);
    if before > 0 {
        feeds.insert(path(before), sealed(&page(before, &links), now_ms)?);
    }
    Ok(feeds)
}

fn sealed<T: Content>(body: &T, now_ms: u64) -> Result<String> {
    Ok(seal(&keys()?, now_ms, body)?)
}

/// The feed of sales. `Some`: the stock is in Durable Objects, of shards with this prefix.
///
/// # Errors
/// It cannot be signed.
pub fn sales_in_objects(
    version: u64,
    stock_in_objects: Option<&str>,
    now_ms: u64,
) -> Result<BTreeMap<String, String>> {
    let list = SaleList {
        stock_in_objects: stock_in_objects.map(str::to_owned),
        // Tests take longer than the freshness of a real origin's sales.
        fresh_ms: weir_sale::feed::FRESH_MS_MAX,
        ..sales(version, "high", now_ms)?
    };
    Ok([(SOLD_OUT.to_owned(), sealed(&list, now_ms)?)].into())
}

/// All feeds of an origin that counts click limits in objects, for links with this prefix, or in Redis. The link with a click
/// limit has this record.
///
/// # Errors
/// When they cannot be signed.
pub fn click_limits_in_objects(
    prefix: Option<&str>,
    record: &str,
    now_ms: u64,
) -> Result<BTreeMap<String, String>> {
    let target = "https://t.example/";
    let mut feeds = feeds(1, "high", target, now_ms)?;
    let list = DomainList {
        click_limits_in_objects: prefix.map(str::to_owned),
        ..domains()?
    };
    feeds.insert(DOMAINS.to_owned(), sealed(&list, now_ms)?);
    let mut links = links(0, target)?;
    for entry in &mut links {
        if entry.state == State::AtGateway {
            entry.state = State::Counted(record.to_owned());
        }
    }
    let page = Page {
        source: Source::new("f1")?,
        after: 0,
        next: links.len() as u64,
        is_last: true,
        links,
    };
    feeds.insert(links_after(None), sealed(&page, now_ms)?);
    Ok(feeds)
}

fn sales(version: u64, band: &str, now_ms: u64) -> Result<SaleList> {
    let sale = json!({
        "id": "s", "starts_at_ms": 1, "ends_at_ms": now_ms * 2, "shards": 2, "user_cap": 1, "state": "open", "band": band,
    });
    let catalogue = json!({ "version": version, "sales": [sale] });
    Ok(SaleList {
        fresh_ms: FRESH_MS,
        catalogue: serde_json::from_value(catalogue)?,
        stock_in_objects: None,
    })
}

fn domains() -> Result<DomainList> {
    let domains = json!({ "domains": [{ "id": "d", "hosts": [HOST] }] });
    Ok(DomainList {
        version: 1,
        domains: serde_json::from_value(domains)?,
        click_limits_in_objects: None,
    })
}

fn links(before: u64, target: &str) -> Result<Vec<Entry>> {
    let record = String::from_utf8(Link::to(target).encode())?;
    let states = [(LINK, State::Record(record)), (LIMITED, State::AtGateway)];
    let entry = |(seq, (path, state)): (u64, (&str, State))| {
        let id = format!("d{path}").parse();
        let id = id.map_err(|_| anyhow::anyhow!("no link: {path}"))?;
        Ok(Entry { seq, id, state })
    };
    (before + 1..).zip(states).map(entry).collect()
}
