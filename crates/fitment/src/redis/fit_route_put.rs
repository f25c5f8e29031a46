//! `fit_route_put.lua`: the places of SKUs.

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

/// A route that is written.
#[derive(Clone, Copy, Debug)]
pub struct NewRoute<'a> {
    /// Whose.
    pub sku: &'a Sku,
    /// Of which version: an older one changes nothing.
    pub version: u64,
    /// Where; `None`: nowhere any more.
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

/// The calls that take routes away, up to these versions. They go to the home cluster.
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

/// Reads the reply to one of them: how many routes were written, or taken away. Of the others a newer one is there.
///
/// # Errors
/// When it is not one of the script.
pub fn parse(value: &Value) -> Result<usize, ReplyError> {
    unsigned(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
