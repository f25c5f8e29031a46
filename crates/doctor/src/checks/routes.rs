//! Checks that requests that a filter passes reach the origin, and that the rest of the origin is not exposed.

use serde_json::Value;
use weir_event::engine::config::Config as EventsConfig;
use weir_fitment::engine::config::Config as FitmentConfig;
use weir_link::engine::config::Config as LinksConfig;
use weir_registry::EVENTS;
use weir_sale::engine::Config as GateConfig;

use super::Gateway;
use crate::diagnostic::{Diagnostic, Severity};
use crate::envoy::Manager;
use crate::facts::OriginFacts;
use crate::filters::Filter;
use crate::route::{Request, RouteOutcome, resolve};
use crate::tree::{at, field, is_set, list, name, text};

/// A sale and an order that do not exist.
const SALE: &str = "weir-doctor";
const ORDER: &str = "weir-doctor";

/// The origin's route for orders.
const ORDERS: &str = "/orders";

/// The route of a user's own orders.
const MY_ORDERS: &str = "/my-orders";

/// The route of a user's garage, and of one vehicle in it.
const GARAGE: &str = "/fitment/garage";
const GARAGE_VEHICLE: &str = "/fitment/garage/1000001";

/// A path outside Weir's routes.
const UNKNOWN: Request<'_> = Request {
    method: "GET",
    path: "/weir-doctor-knows-no-such-path",
};

pub(super) fn check(gateway: &Gateway<'_>, findings: &mut Vec<Diagnostic>) {
    for filter in &gateway.filters {
        let Some(routes) = gateway.envoy.routes(&filter.manager) else {
            findings.extend(unknown_routes(filter));
            continue;
        };
        let hosts = list(routes, "virtual_hosts").iter();
        let hosts: Vec<&Value> = hosts.filter(|host| !is_off(host, filter)).collect();
        if let Some(gate) = filter.gate() {
            findings.extend(provider_missing(gateway, filter, gate));
            for host in hosts {
                Sale {
                    gateway,
                    filter,
                    gate,
                    routes,
                    host,
                }
                .check(findings);
            }
        } else if let Some(links) = filter.settings::<LinksConfig>() {
            findings.extend(cluster_missing(gateway, filter, &links.origin.cluster));
            findings.extend(misrouted_lookups(filter, &hosts));
        } else if filter.settings::<FitmentConfig>().is_some() {
            let paths = [("POST", "/fitment/check"), ("GET", "/fitment/skus")];
            findings.extend(misrouted("fitment-route", filter, &hosts, paths));
        } else if let Some(events) = filter.settings::<EventsConfig>() {
            if let Some(observe) = &events.observe {
                findings.extend(cluster_missing(gateway, filter, &observe.outbox.cluster));
            }
            if let Some(collect) = &events.collect {
                let paths = [("POST", &*collect.path), ("GET", &*collect.pixel_path)];
                findings.extend(misrouted("events-route", filter, &hosts, paths));
            }
        }
    }
    for manager in gateway.envoy.managers() {
        exposed(gateway, &manager, findings);
    }
}

/// Checks that lookups of links that are not in Redis reach the origin.
fn misrouted_lookups(filter: &Filter<'_>, hosts: &[&Value]) -> Option<Diagnostic> {
    let path = "/abc1234";
    let expected = format!("/l{path}");
    let mut hosts = hosts.iter();
    let leads = hosts.any(|host| leads_to(host, "GET", path, &expected).is_some());
    (!leads).then(|| {
        Diagnostic::error(
            "links-route",
            filter.place(),
            "links that are not in Redis are not looked up at the origin: no route with the prefix /l/ reaches it",
            "add route: { cluster: weir_origin, prefix_rewrite: /l/ } as in envoy/shortlink.yaml",
        )
    })
}

/// Requests that no virtual host routes to the origin.
fn misrouted(
    check: &'static str,
    filter: &Filter<'_>,
    hosts: &[&Value],
    requests: [(&str, &str); 2],
) -> Vec<Diagnostic> {
    let leads = |method, path| {
        let mut hosts = hosts.iter();
        hosts.any(|host| leads_to(host, method, path, path).is_some())
    };
    let astray = requests
        .into_iter()
        .filter(|(method, path)| !leads(method, path));
    astray
        .map(|(method, path)| not_routed(check, filter, method, path))
        .collect()
}

fn unknown_routes(filter: &Filter<'_>) -> Option<Diagnostic> {
    filter.kind.needs_routes.then(|| {
        Diagnostic::warning(
            "routes-unknown",
            filter.place(),
            "the routes come from the network (RDS) and were not checked",
            "check a running Envoy instead: --envoy-admin http://127.0.0.1:9901",
        )
    })
}

/// Whether the filter is disabled on a virtual host.
fn is_off(host: &Value, filter: &Filter<'_>) -> bool {
    let own = at(host, "typed_per_filter_config").and_then(|own| own.get(name(filter.value)));
    own.is_some_and(|own| is_set(own, "disabled"))
}

fn not_routed(check: &'static str, filter: &Filter<'_>, method: &str, path: &str) -> Diagnostic {
    Diagnostic::error(
        check,
        filter.place(),
        format!("{method} {path} does not reach the origin: no route matches that path"),
        format!("add a route for it to the origin's cluster: match: {{ path: {path} }}"),
    )
}

fn cluster_missing(
    gateway: &Gateway<'_>,
    filter: &Filter<'_>,
    cluster: &str,
) -> Option<Diagnostic> {
    let is_there = gateway.envoy.cluster(cluster).is_some() || gateway.envoy.is_partial();
    (!is_there).then(|| {
        Diagnostic::error(
            "origin-cluster",
            filter.place(),
            format!("the configuration names the unknown cluster \"{cluster}\" as the origin"),
            "add the cluster, or correct the name",
        )
    })
}

/// Checks that the gate can reach its captcha's provider.
fn provider_missing(
    gateway: &Gateway<'_>,
    filter: &Filter<'_>,
    gate: &GateConfig,
) -> Option<Diagnostic> {
    let cluster = &gate.captcha.as_ref()?.cluster;
    let is_there = gateway.envoy.cluster(cluster).is_some() || gateway.envoy.is_partial();
    (!is_there).then(|| {
        Diagnostic::error(
            "captcha-cluster",
            filter.place(),
            format!(
                "the configuration names the unknown cluster \"{cluster}\" as the CAPTCHA provider"
            ),
            "add the cluster as in docs/sales.md, or correct the name",
        )
    })
}

/// The cluster and route of such a request, if it has the path `expected` there.
fn leads_to<'a>(
    host: &'a Value,
    method: &str,
    path: &str,
    expected: &str,
) -> Option<(&'a str, &'a Value)> {
    match resolve(host, Request { method, path }) {
        RouteOutcome::Clusters { names, path, route } if path == expected => {
            Some((names.first().copied().unwrap_or_default(), route))
        }
        _ => None,
    }
}

/// The routes of a sale on a virtual host.
struct Sale<'a> {
    gateway: &'a Gateway<'a>,
    filter: &'a Filter<'a>,
    gate: &'a GateConfig,
    routes: &'a Value,
    host: &'a Value,
}

impl<'a> Sale<'a> {
    fn place(&self) -> String {
        format!(
            "{}, virtual host {}",
            self.filter.manager.place(),
            name(self.host)
        )
    }

    fn check(&self, findings: &mut Vec<Diagnostic>) {
        let mut origin = None;
        for route in &self.gate.routes {
            let method = route.method.as_deref().unwrap_or("POST");
            let path = route.path.replace("{sale}", SALE);
            match leads_to(self.host, method, &path, ORDERS) {
                Some((cluster, found)) => {
                    origin = origin.or(Some(cluster));
                    findings.extend(self.verdict(found));
                    findings.extend(self.retries(found));
                }
                None => findings.push(self.misrouted_order(method, &route.path, &path)),
            }
        }
        let Some(origin) = origin else {
            return;
        };
        findings.extend(self.origin_known(origin));
        findings.extend(self.user_routes(origin));
        findings.extend(self.public_routes(origin));
        findings.extend(self.identified());
        let exposed = leads_to(self.host, UNKNOWN.method, UNKNOWN.path, UNKNOWN.path);
        findings.extend(exposed.filter(|(cluster, _)| *cluster == origin).map(|_| {
            Diagnostic::warning(
                "origin-exposed",
                self.place(),
                "all paths without their own route reach the origin",
                "send only the routes of envoy/weir.yaml there",
            )
        }));
    }

    /// A claim would be taken before the request goes to another service.
    fn misrouted_order(&self, method: &str, pattern: &str, path: &str) -> Diagnostic {
        let astray = match resolve(self.host, Request { method, path }) {
            RouteOutcome::Clusters { names, path, .. } => {
                format!("goes to the cluster {} as {path}", names.join(", "))
            }
            RouteOutcome::Answered => "is answered by Envoy itself".to_owned(),
            RouteOutcome::Nowhere => "has no route".to_owned(),
        };
        Diagnostic::error(
            "orders-route",
            self.place(),
            format!(
                "{method} {pattern} {astray}, but the origin takes orders at POST {ORDERS}: the gate would reserve a unit for an order that never arrives"
            ),
            "put the route `orders` of envoy/weir.yaml before all other routes that match the path",
        )
    }

    fn verdict(&self, route: &Value) -> Option<Diagnostic> {
        let has = [route, self.host, self.routes].into_iter().any(|level| {
            let mut headers = list(level, "response_headers_to_add").iter();
            headers.any(|header| {
                text(header, "header.key")
                    .is_some_and(|key| key.eq_ignore_ascii_case(weir_base::headers::VERDICT))
            })
        });
        (!has).then(|| {
            Diagnostic::warning(
                "orders-verdict",
                self.place(),
                "the order route does not return x-weir-verdict to buyers",
                "add response_headers_to_add: x-weir-verdict with the value %REQ(x-weir-verdict)%",
            )
        })
    }

    fn retries(&self, route: &Value) -> Option<Diagnostic> {
        let policy = at(route, "route.retry_policy").or_else(|| field(self.host, "retry_policy"));
        // An order that could not be sent has no outcome yet.
        let repeats = |policy: &Value| {
            let retry_on = text(policy, "retry_on").unwrap_or_default();
            retry_on.split(',').any(|on| on.trim() != "connect-failure")
        };
        policy.is_some_and(repeats).then(|| {
            Diagnostic::warning(
                "orders-retried",
                self.place(),
                "Envoy retries orders: the buyer sees only one of two outcomes",
                "set retry_on in that route's retry_policy to connect-failure; clients retry with the same Idempotency-Key",
            )
        })
    }

    fn origin_known(&self, cluster: &str) -> Option<Diagnostic> {
        let is_there = self.gateway.envoy.cluster(cluster).is_some();
        (!is_there && !self.gateway.envoy.is_partial() && !cluster.is_empty()).then(|| {
            Diagnostic::error(
                "origin-cluster",
                self.place(),
                format!("the order route uses the unknown cluster \"{cluster}\""),
                "add it, as envoy/weir.yaml has it in part (5), or correct the name",
            )
        })
    }

    /// The users' routes at the origin, besides orders.
    fn user_routes(&self, origin: &str) -> Vec<Diagnostic> {
        let facts = self.gateway.origin;
        let of_sale = format!("/sales/{SALE}/reservations");
        let of_order = format!("{ORDERS}/{ORDER}");
        let (pay, cancel) = (format!("{of_order}/pay"), format!("{of_order}/cancel"));
        let mut needed = vec![
            ("POST", of_sale.as_str(), "users cannot reserve"),
            ("GET", &of_sale, "users cannot see their reservations"),
            ("DELETE", &of_sale, "users cannot cancel a reservation"),
            ("GET", &of_order, "buyers cannot read their orders"),
            ("POST", &pay, "buyers cannot pay"),
            ("POST", &cancel, "buyers cannot cancel"),
        ];
        if facts.is_some_and(|facts| facts.has_payments) {
            let callback = "the payment provider cannot report payments";
            needed.push(("POST", "/payments/callback", callback));
        }
        if facts.is_some_and(|facts| facts.has_history) {
            needed.push(("GET", "/history", "users cannot see their browse history"));
        }
        if facts.is_some_and(|facts| facts.has_fitment) {
            needed.push(("GET", GARAGE, "users cannot see their garage"));
            needed.push(("PUT", GARAGE_VEHICLE, "users cannot add a vehicle"));
            needed.push(("DELETE", GARAGE_VEHICLE, "users cannot remove a vehicle"));
        }
        let needed = needed.into_iter();
        needed
            .filter_map(|needed| self.not_served(origin, needed))
            .collect()
    }

    /// Routes that pages of a shop may read. A missing one is a warning, because not every shop needs them.
    fn public_routes(&self, origin: &str) -> Vec<Diagnostic> {
        let draw = format!("/sales/{SALE}/draw");
        let entries = format!("{draw}/entries");
        let promised = [
            ("GET", "/public-sales", "pages cannot list sales"),
            ("GET", MY_ORDERS, "users cannot list their orders"),
            ("GET", &draw, "draws cannot be verified"),
            ("GET", &entries, "draws cannot be verified"),
        ];
        let missing = promised
            .into_iter()
            .filter_map(|route| self.not_served(origin, route));
        let warning = |finding| Diagnostic {
            severity: Severity::Warning,
            ..finding
        };
        missing.map(warning).collect()
    }

    /// Whether two clusters have the same addresses: an origin may have one for orders and one for the rest.
    fn is_same_server(&self, one: &str, other: &str) -> bool {
        let endpoints = |cluster| {
            let cluster = self.gateway.envoy.cluster(cluster)?;
            at(cluster.value, "load_assignment.endpoints")
        };
        one == other || endpoints(one).is_some_and(|of_one| endpoints(other) == Some(of_one))
    }

    /// The finding for a route that does not lead to the origin, with the consequence.
    fn not_served(
        &self,
        origin: &str,
        (method, path, effect): (&str, &str, &str),
    ) -> Option<Diagnostic> {
        let found = leads_to(self.host, method, path, path);
        let is_served = found.is_some_and(|(cluster, _)| self.is_same_server(cluster, origin));
        let path = path.replace(&format!("{ORDERS}/{ORDER}"), "/orders/{order}");
        let path = path.replace(SALE, "{sale}");
        (!is_served).then(|| {
            Diagnostic::error(
                "sale-routes",
                self.place(),
                format!(
                    "{method} {path} does not reach the origin's cluster \"{origin}\" unchanged: {effect}"
                ),
                "add that route of envoy/weir.yaml before all other routes that match the path",
            )
        })
    }

    /// The origin accepts a user only with the gate's signature.
    fn identified(&self) -> Vec<Diagnostic> {
        let mut needed = vec!["/sales/", "/orders/", MY_ORDERS];
        if self.gateway.origin.is_some_and(|facts| facts.has_history) {
            needed.push("/history");
        }
        if self.gateway.origin.is_some_and(|facts| facts.has_fitment) {
            needed.push(GARAGE);
        }
        let is_signed = |path: &str| {
            let mut prefixes = self.gate.identify_prefixes.iter();
            prefixes.any(|prefix| path.starts_with(prefix.as_str()))
        };
        let missing: Vec<&str> = needed.into_iter().filter(|path| !is_signed(path)).collect();
        if missing.is_empty() {
            return Vec::new();
        }
        vec![Diagnostic::error(
            "identify-prefixes",
            self.filter.place(),
            format!(
                "identify_prefixes lack {}: the origin does not get the user there, and answers 401",
                missing.join(", ")
            ),
            "set \"identify_prefixes\": [\"/sales/\", \"/orders/\", \"/my-orders\", \"/history\", \"/fitment/garage\"]",
        )]
    }
}

/// Checks that the origin's admin port and its endpoint for events are not exposed.
fn exposed(gateway: &Gateway<'_>, manager: &Manager<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(routes) = gateway.envoy.routes(manager) else {
        return;
    };
    let takes_events = gateway.filters.iter().any(|filter| {
        *filter.kind == EVENTS && filter.manager.listener.name() == manager.listener.name()
    });
    let origin = gateway.origin;
    for host in list(routes, "virtual_hosts") {
        let place = format!("{}, virtual host {}", manager.place(), name(host));
        if let Some(cluster) = origin.and_then(|origin| admin_cluster(gateway, host, origin)) {
            findings.push(Diagnostic::error(
                "admin-exposed",
                place.clone(),
                format!("a route exposes the cluster \"{cluster}\", the origin's admin port"),
                "use the origin's public port, WEIR_LISTEN",
            ));
        }
        let open = leads_to(host, "POST", "/events", "/events");
        let is_open = open.is_some_and(|(cluster, _)| is_origin(gateway, cluster));
        let has_events = origin.is_none_or(|origin| origin.has_events);
        if is_open && has_events && !takes_events {
            findings.push(Diagnostic::error(
                "events-exposed",
                place,
                "POST /events reaches the origin without the events filter: clients can forge gateway metadata",
                "remove that route, or add the filter of envoy/events.yaml to this listener",
            ));
        }
    }
}

/// A routed cluster on this machine with the port of the origin's admin routes.
fn admin_cluster<'a>(
    gateway: &'a Gateway<'a>,
    host: &'a Value,
    origin: &OriginFacts,
) -> Option<&'a str> {
    let clusters = list(host, "routes").iter();
    let mut clusters = clusters.filter_map(|route| text(route, "route.cluster"));
    clusters.find(|cluster| {
        let cluster = gateway.envoy.cluster(cluster);
        super::origin::local_port(cluster) == Some(origin.admin_port)
    })
}

/// Whether orders, links or fitment queries go to this cluster.
fn is_origin(gateway: &Gateway<'_>, cluster: &str) -> bool {
    super::origin::clusters(gateway)
        .iter()
        .any(|existing| existing == cluster)
}

/// The cluster of a gate's orders.
pub(super) fn orders_cluster<'a>(
    gateway: &Gateway<'a>,
    filter: &Filter<'a>,
) -> Option<(&'a str, &'a Value)> {
    let gate = filter.gate()?;
    let routes = gateway.envoy.routes(&filter.manager)?;
    list(routes, "virtual_hosts").iter().find_map(|host| {
        gate.routes.iter().find_map(|route| {
            let method = route.method.as_deref().unwrap_or("POST");
            leads_to(host, method, &route.path.replace("{sale}", SALE), ORDERS)
        })
    })
}
