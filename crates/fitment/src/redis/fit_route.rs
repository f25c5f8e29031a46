//! `fit_route.lua`: reads the locations of SKUs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{Cluster, Placement, Sku, Spu};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::RouteBucket;
use weir_scripts::reply::{array, digits, text};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "fit_route",
    source: include_str!("../../lua/fit_route.lua"),
};

/// A SKU's route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The version.
    pub version: u64,
    /// The location; `None`: deleted.
    pub place: Option<Placement>,
}

/// The calls that read routes, each with the indices of its SKUs in the order of its reply. They go to the home
/// cluster.
pub fn calls<'a>(prefix: &str, skus: impl IntoIterator<Item = &'a Sku>) -> Vec<(Call, Vec<usize>)> {
    let mut by_tag = BTreeMap::<u64, (Call, Vec<usize>)>::new();
    for (index, sku) in skus.into_iter().enumerate() {
        let bucket = RouteBucket::for_sku(sku);
        let (call, indices) = by_tag.entry(bucket.tag).or_insert_with(|| {
            let (keys, args) = (Arguments::default(), Arguments::default());
            let script = &SCRIPT;
            (Call { script, keys, args }, Vec::new())
        });
        call.keys.push(&bucket.key(prefix));
        call.args.push(sku.as_str().as_bytes());
        indices.push(index);
    }
    by_tag.into_values().collect()
}

/// Parses the reply to one call with `skus` SKUs. `None`: no route.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value, skus: usize) -> Result<Vec<Option<Route>>, ReplyError> {
    let one = |value: &Value| match value {
        Value::Null => Some(None),
        value => read(text(value)?).map(Some),
    };
    let all = array(value).filter(|values| values.len() == skus);
    let all = all.and_then(|values| values.iter().map(one).collect());
    all.ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

/// Parses a route as stored in Redis; `None` if it is invalid.
pub fn read(text: &[u8]) -> Option<Route> {
    let mut words = text.splitn(3, |byte| *byte == b' ');
    let version = digits(words.next()?)?;
    let place = match words.next() {
        None => None,
        Some(cluster) => Some(Placement {
            cluster: Cluster::new(core::str::from_utf8(cluster).ok()?)?,
            spu: Spu::new(words.next()?).ok()?,
        }),
    };
    Some(Route { version, place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_fit_routes_are_parsed() {
        let route = read(b"7 home P1").unwrap();
        let place = route.place.unwrap();
        assert_eq!(
            (route.version, place.cluster, place.spu.as_str()),
            (7, Cluster::home(), "P1")
        );
        assert_eq!(read(b"7").unwrap().place, None);
        for bad in [
            "",
            "x",
            "7 home",
            "7 home ",
            "7 home a b",
            "7 HOME P1",
            "07",
        ] {
            assert_eq!(read(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn route_query_for_200_skus_needs_16_calls() {
        let skus: Vec<Sku> = (0..200_u64)
            .map(|number| Sku::new(alloc::format!("{number}")).unwrap())
            .collect();
        let calls = calls("w", &skus);
        assert_eq!(calls.len(), 16);
        let requests: usize = calls.iter().map(|(_, indices)| indices.len()).sum();
        assert_eq!(requests, 200);
    }
}
