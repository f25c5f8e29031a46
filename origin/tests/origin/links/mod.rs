//! Short links on real SQL, Redis and files.

mod api;
mod capacity;
mod clean;
mod click_store;
mod codes;
mod cold;
mod domains;
mod edits;
mod import;
mod log;
mod numbers;
mod outbox;
mod passwords;
mod process;
mod search;
mod store;
mod team;

use weir_link::code::LinkId;
use weir_link::record::Link;
use weir_origin::links::model::labels::Labels;
use weir_origin::links::store::NewLink;

fn id(text: &str) -> LinkId {
    text.parse().unwrap()
}

/// A link with this code, created at `created_at_ms`, with a life of 1,000 ms.
fn new_link(name: &str, created_at_ms: u64) -> NewLink {
    let mut link = Link::to(format!("https://example.com/{name}?a=\"1\""));
    link.life_ms = 1_000;
    NewLink {
        id: id(name),
        record: String::from_utf8(link.encode()).unwrap(),
        labels: Labels::default(),
        life_ms: 1_000,
        ends_at_ms: 0,
        created_at_ms,
    }
}

fn tagged(name: &str, created_at_ms: u64, tags: &[&str]) -> NewLink {
    NewLink {
        labels: Labels::tagged(tags.iter().map(|tag| (*tag).to_owned()).collect()),
        ..new_link(name, created_at_ms)
    }
}
