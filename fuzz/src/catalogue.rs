//! The catalogue of sales.

use std::collections::BTreeMap;

use weir_sale::sale::{Catalogue, Phase, SALES_MAX, SHARDS_MAX, Sale, USER_CAP_MAX};

/// [`Catalogue`]. Checks that an accepted one is within the limits, finds exactly its own sales, has windows with a
/// start before the end, and survives a round trip through JSON.
pub fn catalogue(data: &[u8]) {
    let Ok(written) = serde_json::from_slice::<Catalogue>(data) else {
        return;
    };
    // The first of two entries with one ID applies.
    let mut first: BTreeMap<&str, &Sale> = BTreeMap::new();
    for sale in &written.sales {
        first.entry(sale.id.as_str()).or_insert(sale);
    }
    let sound = written.sales.len() <= SALES_MAX && written.sales.iter().all(is_sound);
    let checked = match written.clone().checked() {
        Ok(checked) => checked,
        Err(refusal) => {
            assert!(!sound, "{refusal}");
            return;
        }
    };
    assert!(sound);

    assert_eq!(checked.sales.len(), first.len());
    for (id, sale) in first {
        assert_eq!(checked.find(id.as_bytes()), Some(sale));
        for other in [format!("{id}-"), format!("{id}\0"), id.to_uppercase() + "A"] {
            let listed = written.sales.iter().any(|sale| sale.id.as_str() == other);
            assert_eq!(checked.find(other.as_bytes()).is_some(), listed);
        }
        check_window(sale);
    }
    assert_eq!(checked.find(b""), None);
    assert_eq!(checked.find(data), None);

    let json = serde_json::to_vec(&checked).expect("a catalogue is written");
    assert_eq!(serde_json::from_slice::<Catalogue>(&json).unwrap(), checked);
    assert_eq!(checked.clone().checked().unwrap(), checked);
}

fn is_sound(sale: &Sale) -> bool {
    (1..=SHARDS_MAX).contains(&sale.shards)
        && (1..=USER_CAP_MAX).contains(&sale.user_cap)
        && sale.starts_at_ms < sale.ends_at_ms
}

fn check_window(sale: &Sale) {
    if let Some(before) = sale.starts_at_ms.checked_sub(1) {
        assert_eq!(sale.phase(before), Phase::NotStarted { wait_ms: 1 });
    }
    assert_eq!(sale.phase(sale.starts_at_ms), Phase::Running);
    assert_eq!(sale.phase(sale.ends_at_ms - 1), Phase::Running);
    assert_eq!(sale.phase(sale.ends_at_ms), Phase::Ended);
    assert_eq!(sale.phase(u64::MAX), Phase::Ended);
}
