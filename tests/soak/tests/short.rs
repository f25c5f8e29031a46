//! A soak test of a few short periods, with real parts, real faults and checked sales.

use std::time::Duration;
use weir_soak::{Settings, run};

#[test]
fn each_period_has_a_fault_and_a_balanced_stock() {
    let settings = Settings {
        periods: 3,
        period: Duration::from_secs(12),
        seed: 3,
        per_second: Some(60.0),
    };
    let report = run(&settings).unwrap();
    assert_eq!(report.problems(), Vec::<String>::new());
    // One sale was open before the first period.
    assert_eq!(report.sales(), 3);
    let (buyers, followers) = report.answers();
    assert!(buyers > 100 && followers > 100, "{}", report.text());
}
