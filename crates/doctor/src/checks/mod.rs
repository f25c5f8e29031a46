//! The checks, one file per subject. Each checks one thing, and skips what another check has reported: one mistake
//! gives one finding.

mod bridge;
mod durations;
mod logins;
mod origin;
mod redis;
mod redis_routes;
mod replies;
mod routes;
mod secrets;
mod settings;
mod sql;
mod stats;
mod tls;

use crate::diagnostic::Diagnostic;
use crate::envoy::Envoy;
use crate::facts::{
    GatewayEnvironment, Login, OriginFacts, RedisFacts, SqlFacts, TlsFacts, TlsTarget,
};
use crate::filters::{self, Filter};

/// The subject of an examination. Missing facts are not checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject<'a> {
    /// Envoy's configuration.
    pub envoy: Option<&'a Envoy>,
    /// The origin's settings.
    pub origin: Option<&'a OriginFacts>,
    /// Facts that each node of Redis reported.
    pub redis: &'a [RedisFacts],
    /// Facts that SQL reported.
    pub sql: Option<&'a SqlFacts>,
    /// The environment of Envoy.
    pub gateway: Option<&'a GatewayEnvironment>,
    /// Results of TLS handshakes with Redis.
    pub tls: &'a [TlsFacts],
}

/// The subject of checks of Envoy's configuration.
pub(crate) struct Gateway<'a> {
    pub(crate) envoy: &'a Envoy,
    pub(crate) filters: Vec<Filter<'a>>,
    pub(crate) origin: Option<&'a OriginFacts>,
    pub(crate) environment: Option<&'a GatewayEnvironment>,
}

/// All findings, the worst first.
pub fn examine(subject: &Subject<'_>) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    if let Some(envoy) = subject.envoy {
        let gateway = Gateway {
            filters: filters::find_all(envoy),
            origin: subject.origin,
            environment: subject.gateway,
            envoy,
        };
        examine_gateway(&gateway, &mut findings);
    }
    redis::check(subject, &mut findings);
    sql::check(subject, &mut findings);
    tls::check(subject, &mut findings);
    // The sort is stable: checks keep their order within each severity.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// Whether any filter of Weir uses Redis.
pub fn uses_redis(envoy: &Envoy) -> bool {
    let filters = filters::find_all(envoy);
    filters.iter().any(|filter| !filter.redis().is_empty())
}

/// The logins of gateways to Redis. The caller queries Redis with each of them.
pub fn redis_logins(envoy: &Envoy, environment: &GatewayEnvironment) -> Vec<Login> {
    let gateway = Gateway {
        filters: filters::find_all(envoy),
        origin: None,
        environment: Some(environment),
        envoy,
    };
    logins::logins(&gateway, environment)
}

/// The certificates that gateways expect of Redis. The caller makes the handshakes.
pub fn redis_tls(envoy: &Envoy) -> Vec<TlsTarget> {
    tls::targets(&Gateway {
        filters: filters::find_all(envoy),
        origin: None,
        environment: None,
        envoy,
    })
}

fn examine_gateway(gateway: &Gateway<'_>, findings: &mut Vec<Diagnostic>) {
    settings::check(gateway, findings);
    bridge::check(gateway, findings);
    redis_routes::check(gateway, findings);
    routes::check(gateway, findings);
    replies::check(gateway, findings);
    durations::check(gateway, findings);
    origin::check(gateway, findings);
    secrets::check(gateway, findings);
    stats::check(gateway, findings);
}
