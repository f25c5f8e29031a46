//! Short links in real Envoys, with a real Redis and a real origin.

mod follow;
mod measure;
mod metrics;
mod outage;
mod passwords;
mod targets;

use weir_tests::LinkSetup;

const TARGET: &str = "https://target.example/page";

/// One shipped gateway with two workers.
const SHIPPED: LinkSetup<'_> = LinkSetup {
    gateways: 1,
    workers: 2,
    config: None,
};
