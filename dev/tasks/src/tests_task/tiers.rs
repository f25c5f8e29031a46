//! The only place that defines which tests are in the second tier.

use weir_stack::{native, tools};

/// Tests of the second tier: an executable, and modules or tests in it. `m::` is a module of that name at any depth.
/// All other tests are in the first tier.
const SECOND: [(&str, &[&str]); 11] = [
    // Edges in their runtimes, and the native module.
    (
        "conformance",
        &[
            "edges_on_platforms_pass_the_vectors_or_forward",
            "native_module_in_envoy_passes_the_vectors",
            "served::",
            "shard::",
            "signatures_of_one_host_verify_on_another",
            "wasi::",
            "wasi_edge_passes_the_vectors_or_forwards",
        ],
    ),
    ("demo_edge", &[""]),
    // Releases on five Envoy versions, in containers and from the chart.
    ("dist", &[""]),
    // Browsers, control planes, and a Redis Cluster.
    (
        "e2e",
        &[
            "challenges::page_solves_its_challenge",
            "events::sdk::",
            "kubernetes::",
            "pages::",
            "product_page::",
            "ratelimit::cluster::",
            "redis_kinds::sale_is_exact_after_a_cluster_node_restarts",
            "redis_kinds::sale_works_with_a_redis_cluster_of_three_nodes",
            "waiting_room::page::",
        ],
    ),
    ("log", &["kafka::"]),
    ("native", &[""]),
    (
        "origin",
        &[
            // Clients installed by pip: a generated one, and schemathesis.
            "clients::",
            "events::pull_table::",
            // Separately compiled programs with some of the domains.
            "features::",
            "links::numbers::eight_origins_get_unique_numbers_on_mysql",
            "mysql::",
            "origin_archive::",
            "origin_on_cassandra::",
            "origin_on_kafka::",
            "postgres::",
            "silent_cluster::",
        ],
    ),
    // Servers that Weir is compared with.
    (
        "weir-bench",
        &["compare::tests::every_compared_system_completes_the_workload"],
    ),
    ("weir_soak", &["short::"]),
    ("weir_stack", &["mariadb::", "postgres::"]),
    ("weir_tests", &["browser::"]),
];

/// Executables whose tests mostly wait for real servers. Their first-tier tests run in parallel with all other tests of
/// that tier.
pub(super) const WAITING: [&str; 1] = ["e2e"];

/// Second-tier tests that mostly wait for Java servers and killed processes: they run in parallel with the rest of the
/// tier.
const BESIDE: [(&str, &[&str]); 2] = [
    ("log", &["kafka::"]),
    (
        "origin",
        &[
            "origin_archive::",
            "origin_on_cassandra::",
            "origin_on_kafka::",
        ],
    ),
];

/// A server that a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    MariaDb,
    Postgres,
    /// One of [`tools::PACKAGED_REDIS`], by its name.
    Redis(&'static str),
}

/// Tests of the second tier that start a database server.
const ON_SERVER: [(Server, &str, &[&str]); 4] = [
    (
        Server::MariaDb,
        "origin",
        &[
            "events::pull_table::",
            "links::numbers::eight_origins_get_unique_numbers_on_mysql",
            "mysql::",
        ],
    ),
    (Server::MariaDb, "weir_stack", &["mariadb::"]),
    (Server::Postgres, "origin", &["postgres::"]),
    (Server::Postgres, "weir_stack", &["postgres::"]),
];

/// Tests that run only in the environment of `AGAIN`.
const ON_OTHER_GROUND: [(&str, &[&str]); 1] = [("origin", &["origin_on_mysql_and_cluster::"])];

/// Tests that the second tier repeats in another environment.
pub(super) struct RepeatedTests {
    pub(super) title: &'static str,
    pub(super) executable: &'static str,
    /// The variable that selects the environment.
    pub(super) variable: (&'static str, &'static str),
    /// The server of the environment.
    pub(super) server: Option<Server>,
    /// Top-level modules of the executable.
    pub(super) modules: &'static [&'static str],
}

/// Modules of the origin's tests whose database the environment selects. The excluded tests already use all databases,
/// or run processes, whose stack uses SQLite.
const ON_ANY_DATABASE: &[&str] = &[
    "access::",
    "archive::",
    "attempts::",
    "auth::",
    "clicks::",
    "draws::",
    "events::",
    "fitment::",
    "groups::",
    "history::",
    "link_stats::",
    "openapi::",
    "order_admin::",
    "orders::",
    "origin_on_mysql_and_cluster::",
    "outbox::",
    "payloads::",
    "payments::",
    "reconcile::",
    "reservations::",
    "risk::",
    "rooms::",
    "sales::",
    "shop::",
    "stock_changes::",
    "switches::",
    "tenants::",
    "user_list::",
    "warm::",
];

/// End-to-end tests of sales with one server, Cluster and Sentinel. The packaged servers have no TLS.
const ON_ANY_REDIS: &[&str] = &[
    "redis_kinds::connections_to_a_demoted_redis_are_replaced",
    "redis_kinds::sale_follows_a_promoted_replica_and_is_exact",
    "redis_kinds::sale_is_exact_after_a_cluster_node_restarts",
    "redis_kinds::sale_is_exact_while_redis_repeatedly_drops_connections",
    "redis_kinds::sale_works_with_a_redis_cluster_of_three_nodes",
];

pub(super) const AGAIN: [RepeatedTests; 7] = [
    RepeatedTests {
        title: "The origin over MySQL's protocol and a Redis Cluster",
        executable: "origin",
        variable: ("WEIR_TEST_BACKING", "mysql-and-cluster"),
        server: Some(Server::MariaDb),
        modules: ON_ANY_DATABASE,
    },
    RepeatedTests {
        title: "The origin on PostgreSQL",
        executable: "origin",
        variable: ("WEIR_TEST_BACKING", "postgres"),
        server: Some(Server::Postgres),
        modules: ON_ANY_DATABASE,
    },
    // In addition to the module's own tests and the conformance suite: sales, limits, links and waiting rooms,
    // including failures. The other tests concern parts behind the filters and take minutes longer. `WEIR_HOST=native
    // cargo xtask test -- --test e2e` runs all of them.
    RepeatedTests {
        title: "End to end on the native module",
        executable: "e2e",
        variable: (native::HOST, "native"),
        server: None,
        modules: &[
            "disconnect::",
            "limits::",
            "links::",
            "outage::",
            "ratelimit::",
            "storm::",
            "waiting_room::",
            "whole_sale::",
        ],
    },
    on_redis("Scripts on Redis 8", "scripts", "redis-8", &[""]),
    on_redis("Scripts on Valkey 9", "scripts", "valkey-9", &[""]),
    on_redis("End to end on Redis 8", "e2e", "redis-8", ON_ANY_REDIS),
    on_redis("End to end on Valkey 9", "e2e", "valkey-9", ON_ANY_REDIS),
];

const fn on_redis(
    title: &'static str,
    executable: &'static str,
    name: &'static str,
    modules: &'static [&'static str],
) -> RepeatedTests {
    RepeatedTests {
        title,
        executable,
        variable: (tools::REDIS_SERVER, name),
        server: Some(Server::Redis(name)),
        modules,
    }
}

/// When a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    First,
    Second,
    /// In the second tier, in parallel with the rest of it.
    Beside,
    /// In the second tier, only in the environment of `AGAIN`.
    OnOtherGround,
}

/// The tier of a test.
pub(super) fn for_test(executable: &str, test: &str) -> Tier {
    if is_in(&BESIDE, executable, test) {
        Tier::Beside
    } else if is_in(&ON_OTHER_GROUND, executable, test) {
        Tier::OnOtherGround
    } else if is_in(&SECOND, executable, test) {
        Tier::Second
    } else {
        Tier::First
    }
}

/// Whether the test starts one of these servers.
pub(super) fn is_on(servers: &[Server], executable: &str, test: &str) -> bool {
    let mut tables = ON_SERVER
        .iter()
        .filter(|(server, name, _)| servers.contains(server) && *name == executable);
    tables.any(|(_, _, places)| places.iter().any(|place| is_at(place, test)))
}

/// Whether the tables name tests of the executable.
pub(super) fn names(executable: &str) -> bool {
    !is_first(executable) || AGAIN.iter().any(|again| again.executable == executable)
}

/// Whether all tests of the executable are in the first tier.
pub(super) fn is_first(executable: &str) -> bool {
    SECOND.iter().all(|(name, _)| *name != executable)
}

fn is_in(table: &[(&str, &[&str])], executable: &str, test: &str) -> bool {
    let of_executable = table.iter().filter(|(name, _)| *name == executable);
    let mut places = of_executable.flat_map(|(_, places)| *places);
    places.any(|place| is_at(place, test))
}

/// The entries of these tables that match none of the tests: `(executable, test)`.
pub(super) fn unmatched(tests: &[(String, String)]) -> Vec<String> {
    let again = AGAIN.iter().map(|again| (again.executable, again.modules));
    let tables = SECOND.into_iter().chain(ON_OTHER_GROUND).chain(again);
    let places = tables.flat_map(|(name, places)| places.iter().map(move |place| (name, *place)));
    let is_unmatched = |(name, place): &(&str, &str)| {
        let is_there = |(of, test): &(String, String)| of == name && is_at(place, test);
        !tests.iter().any(is_there)
    };
    let lost = places.filter(is_unmatched);
    lost.map(|(name, place)| format!("{name} {place}"))
        .collect()
}

/// Whether `place` is the test, or a module that contains it.
fn is_at(place: &str, test: &str) -> bool {
    test.starts_with(place) || test.contains(&format!("::{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_of_a_test_determines_its_only_tier() {
        assert_eq!(
            for_test("origin", "store::orders::mysql::pays"),
            Tier::Second
        );
        assert_eq!(
            for_test("origin", "store::orders::sqlite::pays"),
            Tier::First
        );
        assert_eq!(for_test("origin", "not_mysql::pays"), Tier::First);
        let on_postgres = |servers: &[Server]| is_on(servers, "origin", "a::postgres::pays");
        assert!(on_postgres(&[Server::MariaDb, Server::Postgres]));
        assert!(!on_postgres(&[Server::MariaDb]) && !on_postgres(&[]));
        assert_eq!(for_test("origin", "origin_on_kafka::pull::a"), Tier::Beside);
        let of_other_ground = for_test("origin", "origin_on_mysql_and_cluster::a");
        assert_eq!(of_other_ground, Tier::OnOtherGround);
        assert_eq!(for_test("dist", "anything"), Tier::Second);
        assert_eq!(for_test("engine", "mysql::pays"), Tier::First);
        assert!(is_first("engine") && !is_first("dist"));
    }

    #[test]
    fn other_tables_name_only_second_tier_tests() {
        for (executable, places) in BESIDE
            .into_iter()
            .chain(ON_SERVER.map(|(_, name, places)| (name, places)))
        {
            for place in places {
                assert!(is_in(&SECOND, executable, place), "{executable} {place}");
            }
        }
    }

    #[test]
    fn tests_for_other_environments_run_again_there() {
        for (executable, places) in ON_OTHER_GROUND {
            let runs_there = |place: &&str| {
                let of_executable = AGAIN.iter().filter(|again| again.executable == executable);
                of_executable
                    .flat_map(|again| again.modules)
                    .any(|module| module == place)
            };
            assert!(places.iter().all(runs_there), "{executable}");
        }
    }

    #[test]
    fn modules_without_a_test_are_named() {
        let mut names = vec![("dist".to_owned(), "any".to_owned())];
        let lost = unmatched(&names);
        assert!(lost.contains(&"origin clients::".to_owned()), "{lost:?}");
        assert!(lost.contains(&"e2e storm::".to_owned()), "{lost:?}");
        assert!(!lost.contains(&"dist ".to_owned()), "{lost:?}");
        names.push(("origin".to_owned(), "clients::generated".to_owned()));
        names.push(("e2e".to_owned(), "storm::a".to_owned()));
        assert_eq!(unmatched(&names).len(), lost.len() - 2);
    }
}
