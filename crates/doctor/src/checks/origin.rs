//! Checks that gateways reach the origin, and that it has the features that they need.

use weir_link::engine::config::Config as LinksConfig;
use weir_registry::{EVENTS, FITMENT, LINKS};

use super::Gateway;
use super::routes::orders_cluster;
use crate::diagnostic::Diagnostic;
use crate::envoy::Cluster;
use crate::facts::OriginFacts;
use crate::filters::Filter;
use crate::place::is_loopback;

pub(super) fn check(gateway: &Gateway<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(origin) = gateway.origin else {
        return;
    };
    for filter in &gateway.filters {
        findings.extend(has_domain(filter, origin));
    }
    for name in clusters(gateway) {
        findings.extend(elsewhere(gateway, &name, origin));
    }
}

fn has_domain(filter: &Filter<'_>, origin: &OriginFacts) -> Option<Diagnostic> {
    filter.accepted()?;
    let (has, subject, flag) = match *filter.kind {
        LINKS => (origin.has_links, "short links", "--links (WEIR_LINKS)"),
        EVENTS => (
            origin.has_events,
            "events",
            "--events-log (WEIR_EVENTS_LOG)",
        ),
        FITMENT => (
            origin.has_fitment,
            "vehicle fitment",
            "--fitment (WEIR_FITMENT)",
        ),
        _ => return None,
    };
    (!has).then(|| {
        Diagnostic::error(
            "origin-without",
            filter.place(),
            format!("the origin runs without {subject}"),
            format!("start it with {flag}"),
        )
    })
}

/// The clusters that filters use as the origin.
pub(super) fn clusters(gateway: &Gateway<'_>) -> Vec<String> {
    let mut clusters: Vec<String> = Vec::new();
    for filter in &gateway.filters {
        let of_links = || filter.settings::<LinksConfig>();
        let cluster = match filter.gate() {
            Some(_) => orders_cluster(gateway, filter).map(|(name, _)| name),
            None => of_links().map(|links| links.origin.cluster.as_str()),
        };
        if let Some(cluster) = cluster
            && !clusters.iter().any(|existing| existing == cluster)
        {
            clusters.push(cluster.to_owned());
        }
    }
    clusters
}

/// The port of a cluster on this machine.
pub(super) fn local_port(cluster: Option<Cluster<'_>>) -> Option<u16> {
    let address = cluster?.addresses().into_iter().next()?;
    let (host, port) = address.rsplit_once(':')?;
    port.parse().ok().filter(|_| is_loopback(host))
}

fn elsewhere(gateway: &Gateway<'_>, name: &str, origin: &OriginFacts) -> Option<Diagnostic> {
    let port = local_port(gateway.envoy.cluster(name))?;
    // Using the admin port is worse, and has its own finding.
    (port != origin.port && port != origin.admin_port).then(|| {
        Diagnostic::error(
            "origin-other",
            format!("cluster {name}"),
            format!(
                "it connects to port {port} of this machine, but the origin listens on {}",
                origin.port
            ),
            "use the same port in WEIR_LISTEN of the origin and in the cluster's endpoint",
        )
    })
}
