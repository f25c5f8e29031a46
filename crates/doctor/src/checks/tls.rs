//! Whether Redis presents the certificate that gateways expect.

use super::bridge::{bridge_route, clusters};
use super::{Gateway, Subject};
use crate::diagnostic::Diagnostic;
use crate::envoy::Cluster;
use crate::facts::TlsTarget;
use crate::tree::{at, list, text, type_of};

const UPSTREAM_TLS: &str = "tls.v3.UpstreamTlsContext";

/// A target for each TLS cluster in front of Redis that checks both certificates and names.
pub(super) fn targets(gateway: &Gateway<'_>) -> Vec<TlsTarget> {
    let ways = clusters(gateway)
        .into_iter()
        .filter_map(|(cluster, requesting)| {
            bridge_route(gateway.envoy, &cluster, &requesting).ok()
        });
    // Several request clusters may share one upstream.
    let mut targets = Vec::new();
    for target in ways.flat_map(|route| of_cluster(&route.upstream)) {
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    targets
}

fn of_cluster(cluster: &Cluster<'_>) -> Vec<TlsTarget> {
    let Some(socket) = at(cluster.value, "transport_socket") else {
        return Vec::new();
    };
    let context = "typed_config.common_tls_context.validation_context";
    let ca_file = text(socket, &format!("{context}.trusted_ca.filename"));
    let names = list(socket, &format!("{context}.match_typed_subject_alt_names")).iter();
    let names: Vec<String> = names
        .filter_map(|name| Some(text(name, "matcher.exact")?.to_owned()))
        .collect();
    let (Some(ca_file), true) = (ca_file, type_of(socket).ends_with(UPSTREAM_TLS)) else {
        return Vec::new();
    };
    if names.is_empty() {
        return Vec::new();
    }
    let target = |address| TlsTarget {
        place: cluster.place(),
        address,
        names: names.clone(),
        ca_file: ca_file.to_owned(),
    };
    cluster.addresses().into_iter().map(target).collect()
}

pub(super) fn check(subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
    for facts in subject.tls {
        let Some(problem) = &facts.problem else {
            continue;
        };
        let TlsTarget {
            place,
            address,
            names,
            ca_file,
        } = &facts.target;
        let names = names.join(" or ");
        findings.push(Diagnostic::error(
            "redis-tls",
            place.as_str(),
            format!("TLS handshake with {address} fails for the name {names} and the CAs in \"{ca_file}\": {problem}"),
            "correct trusted_ca and match_typed_subject_alt_names, or Redis' certificate",
        ));
    }
}
