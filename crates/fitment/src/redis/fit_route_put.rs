//! `fit_route_put.lua`: writes the locations of SKUs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{Placement, Sku};
use weir_base::resp::{Arguments, Value};

use crate::redis::fit_put::NewerEntryPolicy;
use crate::redis::keys::RouteBucket;
use weir_scripts::reply::unsigned;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "fit_route_put",
    source: include_str!("../../lua/fit_route_put.lua"),
};

/// A route to write.
#[derive(Clone, Copy, Debug)]
pub struct NewRoute<'a> {
    /// The SKU.
    pub sku: &'a Sku,
    /// The version: an older one changes nothing.
    pub version: u64,
    /// The location; `None`: deleted.
    pub place: Option<&'a Placement>,
}

/// The calls that write routes. They go to the home cluster.
pub fn calls<'a>(
    prefix: &str,
    newer: NewerEntryPolicy,
    routes: impl IntoIterator<Item = NewRoute<'a>>,
) -> Vec<Call> {
    of(prefix, newer.label(), routes)
}

/// The calls that remove routes, up to these versions. They go to the home cluster.
pub fn forget<'a>(prefix: &str, skus: impl IntoIterator<Item = (&'a Sku, u64)>) -> Vec<Call> {
    let nowhere = |(sku, version)| NewRoute {
        sku,
        version,
        place: None,
    };
    of(prefix, b"forget", skus.into_iter().map(nowhere))
}

fn of<'a>(
    prefix: &str,
    word: &'static [u8],
    routes: impl IntoIterator<Item = NewRoute<'a>>,
) -> Vec<Call> {
    let mut by_tag = BTreeMap::<u64, Call>::new();
    for NewRoute {
        sku,
        version,
        place,
    } in routes
    {
        let bucket = RouteBucket::for_sku(sku);
        let call = by_tag.entry(bucket.tag).or_insert_with(|| Call {
            script: &SCRIPT,
            keys: Arguments::default(),
            args: [word].into(),
        });
        call.keys.push(&bucket.key(prefix));
        call.args.push(sku.as_str().as_bytes());
        call.args.push_decimal(version);
        call.args
            .push(place.map_or("", |place| place.cluster.as_str()).as_bytes());
        call.args
            .push(place.map_or("", |place| place.spu.as_str()).as_bytes());
    }
    by_tag.into_values().collect()
}

/// Parses the reply to one call: how many routes were written or removed. For the others, Redis has newer ones.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<usize, ReplyError> {
    unsigned(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
