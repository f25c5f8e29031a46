//! Shared types of the scripts for browse history.

use alloc::string::String;
use alloc::vec::Vec;

use crate::{LoadedLists, Owner, Sku, ViewedProduct};
use weir_base::resp::{Arguments, Value};

use weir_scripts::reply::{array, text};

/// The owner of a changed list, and its limits.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The owner.
    pub owner: &'a Owner,
    /// Maximum views.
    pub max: usize,
    /// Lifetime of the list after this change, in milliseconds.
    pub life_ms: u64,
}

/// The set of active owners.
#[derive(Clone, Copy, Debug)]
pub struct Active<'a> {
    /// Its key: [`history_active_of`](crate::redis::keys::history_active_of) the owner.
    pub key: &'a [u8],
    /// Its lifetime after the last added owner, in milliseconds.
    pub life_ms: u64,
}

/// A list in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The loaded parts.
    pub loaded: LoadedLists,
    /// The generation of the list, until its keys are lost or expire: see `history_fill.lua`.
    pub generation: String,
    /// The views, the newest first.
    pub views: Vec<ViewedProduct>,
}

pub(crate) fn push_pairs(args: &mut Arguments, views: &[ViewedProduct]) {
    for ViewedProduct { sku, at_ms } in views {
        push_pair(args, sku, *at_ms);
    }
}

pub(crate) fn push_pair(args: &mut Arguments, sku: &Sku, at_ms: u64) {
    args.push_decimal(at_ms);
    args.push(sku.as_str().as_bytes());
}

pub(crate) fn list(value: &Value) -> Option<List> {
    let [loaded, generation, views] = array(value)? else {
        return None;
    };
    let loaded = match text(loaded)? {
        b"n" => LoadedLists::Nothing,
        b"r" => LoadedLists::Removals,
        b"a" => LoadedLists::All,
        _ => return None,
    };
    let generation = core::str::from_utf8(text(generation)?).ok()?.into();
    let pairs = array(views)?.chunks(2);
    let views = pairs.map(viewed_product).collect::<Option<_>>()?;
    Some(List {
        loaded,
        generation,
        views,
    })
}

fn viewed_product(pair: &[Value]) -> Option<ViewedProduct> {
    let [sku, at_ms] = pair else {
        return None;
    };
    let at_ms = core::str::from_utf8(text(at_ms)?).ok()?.parse().ok()?;
    let sku = Sku::new(text(sku)?).ok()?;
    Some(ViewedProduct { sku, at_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn list_reply_needs_a_loaded_state_and_valid_view_pairs() {
        let reply = |loaded, views: &[&str]| {
            let views = views.iter().map(|text| bulk(text)).collect();
            list(&Value::Array(vec![
                bulk(loaded),
                bulk("g"),
                Value::Array(views),
            ]))
        };
        let read = reply("a", &["7", "1700000000000"]).unwrap();
        assert_eq!(read.loaded, LoadedLists::All);
        assert_eq!(read.views[0].sku.as_str(), "7");
        assert_eq!(read.views[0].at_ms, 1_700_000_000_000);
        for (loaded, views) in [
            ("x", vec![]),
            ("n", vec!["7"]),
            ("n", vec!["", "1"]),
            ("n", vec!["7", "1.5"]),
            ("n", vec!["7", "-1"]),
        ] {
            assert_eq!(reply(loaded, &views), None, "{loaded} {views:?}");
        }
        assert_eq!(list(&Value::Null), None);
    }
}
