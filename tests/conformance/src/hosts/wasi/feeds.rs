//! Converts a vector's Redis contents into the feeds that the origin would publish.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use weir_base::feed::document::{Content as Feed, seal};
use weir_base::feed::routes::{DOMAINS, SOLD_OUT, links_after};
use weir_base::key::KeyRing;
use weir_link::feed::{Cursor, DomainList, Entry, Page, Source, State};
use weir_link::record::Link;
use weir_sale::feed::{FRESH_MS, SaleList};
use weir_sale::redis::catalogue;

use crate::text::unescape;
use crate::vector::{Content, Vector};

/// The variable and the value of the secret shared by edges and origin.
pub const EDGE_SECRET: (&str, &str) = ("WEIR_EDGE_SECRET", "edge-secret-edge-secret-edge-secret");

/// The ID of the edge.
pub const EDGE: &str = "conformance";

/// The key ring with that secret.
///
/// # Errors
/// The secret is invalid.
pub fn keys() -> Result<KeyRing> {
    let key = weir_base::key::SigningKey::new("e1", EDGE_SECRET.1.as_bytes())?;
    Ok(key.into())
}

/// The edge configuration for a vector's filter; `None` if edges have no such filter.
pub fn config(vector: &Vector) -> Option<Value> {
    let (part, absent): (_, &[&str]) = match vector.engine.as_str() {
        "seckill-gate" => ("gate", &["redis", "claim"]),
        "shortlink-redirect" => ("links", &["redis", "clicks", "origin"]),
        "ratelimit" => ("limits", &["redis"]),
        _ => return None,
    };
    let mut config: Map<String, Value> = vector.config.as_object()?.clone();
    config.retain(|name, _| !absent.contains(&name.as_str()));
    let keys = json!([{ "id": "e1", "secret": { "env": EDGE_SECRET.0 } }]);
    Some(json!({ "edge": EDGE, "keys": keys, part: config }))
}

/// The feeds at this time, by path.
///
/// # Errors
/// They cannot be signed.
pub fn feeds(vector: &Vector, at_ms: u64) -> Result<BTreeMap<String, String>> {
    let prefix = vector.key_prefix().unwrap_or_default();
    let string = |key: String| match &vector.stored.get(&key)?.value {
        Content::String(text) => unescape(text).ok(),
        _ => None,
    };
    let mut feeds = BTreeMap::new();
    let mut publish = |path: String, sealed: Result<String>| -> Result<()> {
        feeds.insert(path, sealed?);
        Ok(())
    };
    if let Some(catalogue) = string(format!("{prefix}:catalogue"))
        && let Ok(catalogue) = catalogue::read(&catalogue)
    {
        let list = SaleList {
            fresh_ms: FRESH_MS,
            catalogue,
            stock_in_objects: None,
        };
        publish(SOLD_OUT.into(), sealed(&list, at_ms))?;
    }
    if let Some(domains) = string(format!("{prefix}:link:domains"))
        && let Ok(domains) = serde_json::from_slice(&domains)
    {
        let list = DomainList {
            version: 1,
            domains,
            click_limits_in_objects: None,
        };
        publish(DOMAINS.into(), sealed(&list, at_ms))?;
    }
    let whole = page(vector, prefix)?;
    let end = Page {
        after: whole.next,
        links: vec![],
        ..whole.clone()
    };
    let cursor = Cursor {
        source: whole.source.clone(),
        seq: whole.next,
    };
    publish(links_after(None), sealed(&whole, at_ms))?;
    publish(links_after(Some(&cursor.to_string())), sealed(&end, at_ms))?;
    Ok(feeds)
}

fn sealed<T: Feed>(body: &T, at_ms: u64) -> Result<String> {
    Ok(seal(&keys()?, at_ms, body)?)
}

/// All links of a vector.
fn page(vector: &Vector, prefix: &str) -> Result<Page> {
    let begins = format!("{prefix}:link:{{");
    let mut links = Vec::new();
    for (key, entry) in &vector.stored {
        let id = key
            .strip_prefix(&begins)
            .and_then(|rest| rest.strip_suffix('}'));
        let (Some(id), Content::String(record)) = (id, &entry.value) else {
            continue;
        };
        let record = unescape(record)?;
        // The origin does not publish invalid or expiring records.
        let state = match (Link::decode(&record), String::from_utf8(record)) {
            (Ok(link), Ok(record)) if entry.expires_at_ms.is_none() => {
                State::for_link(&link, record)
            }
            _ => State::AtGateway,
        };
        let id = id.parse().ok().context("no link")?;
        links.push(Entry {
            seq: links.len() as u64 + 1,
            id,
            state,
        });
    }
    Ok(Page {
        source: Source::new("f1")?,
        after: 0,
        next: links.len() as u64,
        is_last: true,
        links,
    })
}
