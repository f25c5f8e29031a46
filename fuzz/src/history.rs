//! Browse history in the cold store.

use std::collections::BTreeSet;

use weir_history::cold::{VALUE_LEN_MAX, decode, encode};
use weir_history::{AT_MS_MAX, VIEWS_MAX};

/// A value of the cold store. Checks that a parsed list is ordered, bounded and without duplicate products, and that
/// its encoding parses to the same list and is not longer.
pub fn history_cold(data: &[u8]) {
    let Ok(views) = decode(data) else {
        return;
    };
    assert!(data.len() <= VALUE_LEN_MAX && views.len() <= VIEWS_MAX);
    assert!(views.iter().all(|observed| observed.at_ms <= AT_MS_MAX));
    let in_order =
        |two: &[weir_history::ViewedProduct]| matches!(two, [a, b] if a.newest_first(b).is_lt());
    assert!(views.windows(2).all(in_order));
    let names: BTreeSet<_> = views.iter().map(|observed| &observed.sku).collect();
    assert_eq!(names.len(), views.len());
    let written = encode(&views);
    assert!(written.len() <= VALUE_LEN_MAX);
    assert_eq!(decode(&written), Ok(views));
}
