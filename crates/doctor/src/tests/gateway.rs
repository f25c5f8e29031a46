//! Each mistake in Envoy's configuration alone.

use serde_json::{Value, json};

use super::{
    CLUSTERS, LISTENERS, MANAGER, NETWORK_FILTERS, ROUTES, at, checks, drop_field, drop_named,
    edit_settings, endpoints, named, shipped,
};

const GATE: &str = "weir.seckill_gate";
const BRIDGE: &str = "weir.redis_bridge";

type Edit = fn(&mut Value);

/// `file` with one mistake has one finding, by this check.
fn one(file: &str, check: &str, edit: Edit) {
    let mut tree = shipped(file);
    edit(&mut tree);
    assert_ne!(tree, shipped(file), "{check}: nothing was changed");
    assert_eq!(checks(tree), [check], "{file}");
}

#[test]
fn invalid_filters_and_configurations_are_findings() {
    one("weir.yaml", "filters", |tree| {
        drop_named(tree, &format!("{MANAGER}/http_filters"), GATE);
    });
    one("ratelimit.yaml", "configuration", |tree| {
        drop_field(
            named(tree, "weir.ratelimit"),
            "/typed_config/config",
            "configuration",
        );
    });
    one("weir.yaml", "configuration", |tree| {
        edit_settings(tree, GATE, |json| json["user_heder"] = "x-user-id".into());
    });
    one("weir.yaml", "configuration", |tree| {
        edit_settings(tree, GATE, |json| json["redis"]["deadline_ms"] = 0.into());
    });
    one("native.yaml", "configuration", |tree| {
        let value = at(named(tree, GATE), "/typed_config/filter_config/value");
        *value = value
            .as_str()
            .unwrap()
            .replace("user_header", "user_heder")
            .into();
    });
    one("ratelimit.yaml", "rules", |tree| {
        edit_settings(tree, "weir.ratelimit", |json| json["rules"] = json!([]));
    });
    one("shortlink.yaml", "failure-policy", |tree| {
        drop_field(
            named(tree, "weir.shortlink_redirect"),
            "/typed_config/config",
            "failure_policy",
        );
    });
    one("fitment.yaml", "stop-iteration", |tree| {
        drop_field(
            named(tree, "weir.fitment"),
            "/typed_config/config",
            "allow_on_headers_stop_iteration",
        );
    });
    one("weir.yaml", "identity-order", |tree| {
        let filters = at(tree, &format!("{MANAGER}/http_filters"))
            .as_array_mut()
            .unwrap();
        filters.insert(1, super::documents("snippets/jwt.yaml")[0][0].clone());
    });
}

#[test]
fn struct_in_place_of_a_string_is_a_finding() {
    one("weir.yaml", "configuration", |tree| {
        let value = at(
            named(tree, GATE),
            "/typed_config/config/configuration/value",
        );
        *value = serde_json::from_str(value.as_str().unwrap()).unwrap();
    });
}

#[test]
fn duplicate_filter_is_a_finding() {
    let double = |tree: &mut Value, name: &str| {
        let again = named(tree, name).clone();
        let filters = at(tree, &format!("{MANAGER}/http_filters"));
        filters.as_array_mut().unwrap().insert(0, again);
    };
    for (file, filter) in [("weir.yaml", GATE), ("ratelimit.yaml", "weir.ratelimit")] {
        let mut tree = shipped(file);
        double(&mut tree, filter);
        assert_eq!(checks(tree), ["filter-twice"], "{file}");
    }
    // A second limiter may have other rules.
    let mut tree = shipped("ratelimit.yaml");
    double(&mut tree, "weir.ratelimit");
    edit_settings(&mut tree, "weir.ratelimit", |json| {
        json["rules"].as_array_mut().unwrap().truncate(1);
    });
    assert_eq!(checks(tree), [""; 0]);
}

#[test]
fn the_bridge() {
    one("weir.yaml", "redis-cluster", |tree| {
        drop_named(tree, CLUSTERS, "weir_redis");
    });
    one("weir.yaml", "redis-cluster", |tree| {
        edit_settings(tree, GATE, |json| json["redis"]["cluster"] = "redis".into());
    });
    one("weir.yaml", "redis-not-bridged", |tree| {
        let cluster = tree.pointer_mut(CLUSTERS).unwrap().as_array_mut().unwrap();
        let cluster = cluster
            .iter_mut()
            .find(|cluster| cluster["name"] == "weir_redis")
            .unwrap();
        *at(cluster, "/load_assignment/endpoints/0/lb_endpoints") =
            endpoints(&[("127.0.0.1", 6379)]);
    });
    one("weir.yaml", "internal-listener-extension", |tree| {
        drop_field(tree, "", "bootstrap_extensions");
    });
    one("weir.yaml", "bridge-listener", |tree| {
        drop_named(tree, LISTENERS, "weir_redis");
    });
    one("weir.yaml", "bridge-listener", |tree| {
        drop_field(tree, &format!("{LISTENERS}/1"), "internal_listener");
    });
    one("weir.yaml", "bridge-filter", |tree| {
        drop_named(
            tree,
            &format!("{LISTENERS}/1/filter_chains/0/filters"),
            BRIDGE,
        );
    });
    one("weir.yaml", "bridge-proxy", |tree| {
        let filters = format!("{LISTENERS}/1/filter_chains/0/filters");
        drop_named(tree, &filters, "envoy.filters.network.tcp_proxy");
    });
    one("weir.yaml", "bridge-upstream", |tree| {
        drop_named(tree, CLUSTERS, "weir_redis_upstream");
    });
    one("weir.yaml", "bridge-buffer", |tree| {
        *at(
            tree,
            &format!("{LISTENERS}/1/per_connection_buffer_limit_bytes"),
        ) = 1_048_576.into();
    });
    one("ratelimit-redis.yaml", "bridge-filter", |tree| {
        drop_named(
            tree,
            &format!("{LISTENERS}/1/filter_chains/0/filters"),
            BRIDGE,
        );
    });
}

#[test]
fn redis_upstream_is_checked() {
    one("weir.yaml", "key-prefix", |tree| {
        edit_settings(tree, GATE, |json| {
            json["redis"]["key_prefix"] = "shop".into()
        });
    });
    one("weir.yaml", "redis-several", |tree| {
        let upstream = named(tree, "weir_redis_upstream");
        *at(upstream, "/load_assignment/endpoints/0/lb_endpoints") =
            endpoints(&[("127.0.0.1", 6379), ("127.0.0.1", 6380)]);
    });
    one("weir.yaml", "redis-other", |tree| {
        let upstream = named(tree, "weir_redis_upstream");
        *at(upstream, "/load_assignment/endpoints/0/lb_endpoints") =
            endpoints(&[("127.0.0.1", 6380)]);
    });
    one("weir.yaml", "bridge-idle", |tree| {
        let proxy = named(tree, "envoy.filters.network.tcp_proxy");
        drop_field(proxy, "/typed_config", "idle_timeout");
    });
    one("weir.yaml", "redis-connect", |tree| {
        named(tree, "weir_redis_upstream")["connect_timeout"] = "0.25s".into();
    });
    one("native.yaml", "redis-cluster", |tree| {
        let value = at(named(tree, GATE), "/typed_config/filter_config/value");
        *value = value
            .as_str()
            .unwrap()
            .replace(r#""name": "weir_redis""#, r#""name": "other""#)
            .into();
    });
    one("native.yaml", "redis-other", |tree| {
        let value = at(named(tree, GATE), "/typed_config/filter_config/value");
        *value = value
            .as_str()
            .unwrap()
            .replace("127.0.0.1:6379", "127.0.0.1:6380")
            .into();
    });
    one("native.yaml", "topology", |tree| {
        let value = at(named(tree, GATE), "/typed_config/filter_config/value");
        *value = value
            .as_str()
            .unwrap()
            .replace(r#""topology": "single""#, r#""topology": "cluster""#)
            .into();
    });
}

#[test]
fn limiter_topology_is_compared_with_redis() {
    // The topology of Redis is only compared with the gate's.
    one("ratelimit-redis.yaml", "topology", |tree| {
        edit_settings(tree, "weir.ratelimit", |json| {
            json["redis"]["topology"] = "cluster".into()
        });
    });
}

fn route(tree: &mut Value, name: &str) -> usize {
    let routes = at(tree, ROUTES).as_array_mut().unwrap();
    routes
        .iter()
        .position(|route| route["name"] == name)
        .unwrap()
}

#[test]
fn orders() {
    one("weir.yaml", "orders-route", |tree| {
        drop_named(tree, ROUTES, "orders")
    });
    one("weir.yaml", "orders-route", |tree| {
        // The operator's own route comes first.
        let own = json!({ "match": { "prefix": "/" }, "route": { "cluster": "origin" } });
        let routes = at(tree, ROUTES).as_array_mut().unwrap();
        routes.insert(0, own);
    });
    one("weir.yaml", "orders-route", |tree| {
        let at_ = route(tree, "orders");
        drop_field(tree, &format!("{ROUTES}/{at_}/route"), "regex_rewrite");
    });
    one("weir.yaml", "orders-route", |tree| {
        edit_settings(tree, GATE, |json| {
            let own = json!({ "path": "/flash/{sale}/buy" });
            json["routes"].as_array_mut().unwrap().push(own);
        });
    });
    one("weir.yaml", "orders-verdict", |tree| {
        let at_ = route(tree, "orders");
        drop_field(tree, &format!("{ROUTES}/{at_}"), "response_headers_to_add");
    });
    one("weir.yaml", "orders-retried", |tree| {
        let at_ = route(tree, "orders");
        at(tree, &format!("{ROUTES}/{at_}/route"))["retry_policy"] = json!({ "retry_on": "5xx" });
    });
    one("weir.yaml", "orders-retried", |tree| {
        let host = ROUTES.trim_end_matches("/routes");
        *at(tree, &format!("{host}/retry_policy/retry_on")) = json!("connect-failure,reset");
    });
    one("weir.yaml", "origin-cluster", |tree| {
        drop_named(tree, CLUSTERS, "origin")
    });
    one("weir.yaml", "captcha-cluster", |tree| {
        edit_settings(tree, GATE, |json| {
            json["captcha"] = json!({ "cluster": "turnstile", "host": "h", "path": "/siteverify", "site_key": "k",
                "secret": { "env": "WEIR_TOKEN_SECRET" } });
        });
    });
    one("native.yaml", "orders-route", |tree| {
        drop_named(tree, NETWORK_FILTERS, "weir.fast_path");
        drop_named(tree, ROUTES, "orders")
    });
}

#[test]
fn virtual_host_without_gate_needs_no_sale_routes() {
    let mut tree = shipped("weir.yaml");
    let hosts = at(&mut tree, &format!("{MANAGER}/route_config/virtual_hosts"));
    let own = json!({ "name": "shop", "domains": ["shop.example"],
        "routes": [{ "match": { "prefix": "/" }, "direct_response": { "status": 200 } }] });
    hosts.as_array_mut().unwrap().push(own);
    assert_eq!(checks(tree.clone()), ["orders-route"]);
    let hosts = at(&mut tree, &format!("{MANAGER}/route_config/virtual_hosts"));
    hosts[1]["typed_per_filter_config"] = json!({ GATE: {
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true } });
    assert_eq!(checks(tree), [""; 0]);
}

#[test]
fn missing_user_routes_are_reported() {
    for name in ["history", "payment-callback"] {
        let mut tree = shipped("weir.yaml");
        drop_named(&mut tree, ROUTES, name);
        assert_eq!(checks(tree), ["sale-routes"], "{name}");
    }
    for name in ["order", "pay-or-cancel"] {
        let mut tree = shipped("weir.yaml");
        drop_named(&mut tree, ROUTES, name);
        assert_eq!(checks(tree), ["sale-routes", "sale-routes"], "{name}");
    }
    let mut tree = shipped("weir.yaml");
    drop_named(&mut tree, ROUTES, "public-sales");
    assert_eq!(checks(tree), ["sale-routes"; 3]);
    let mut tree = shipped("weir.yaml");
    drop_named(&mut tree, ROUTES, "reservations");
    assert_eq!(checks(tree), ["sale-routes"; 3]);
    let mut tree = shipped("weir.yaml");
    drop_named(&mut tree, ROUTES, "garage");
    assert_eq!(checks(tree), ["sale-routes"; 3]);
    one("weir.yaml", "sale-routes", |tree| {
        let at_ = route(tree, "history");
        *at(tree, &format!("{ROUTES}/{at_}/route/cluster")) = "weir_redis_upstream".into();
    });
    one("weir.yaml", "identify-prefixes", |tree| {
        edit_settings(tree, GATE, |json| {
            json["identify_prefixes"] =
                json!(["/sales/", "/my-orders", "/history", "/fitment/garage"])
        });
    });
    one("weir.yaml", "identify-prefixes", |tree| {
        edit_settings(tree, GATE, |json| {
            json["identify_prefixes"] = json!(["/sales/", "/orders/", "/my-orders", "/history"])
        });
    });
    one("weir.yaml", "origin-exposed", |tree| {
        let at_ = route(tree, "nothing");
        at(tree, ROUTES)[at_] = json!({ "match": { "path": "/weir-doctor-knows-no-such-path" }, "route": { "cluster": "origin" } });
    });
}

#[test]
fn only_links_events_and_fitment_reach_the_origin() {
    one("shortlink.yaml", "links-route", |tree| {
        at(tree, ROUTES)[1]["route"]["prefix_rewrite"] = "/links/".into();
    });
    one("shortlink.yaml", "origin-cluster", |tree| {
        named(tree, "weir_origin")["name"] = "other".into();
    });
    one("fitment.yaml", "fitment-route", |tree| {
        at(tree, ROUTES).as_array_mut().unwrap().remove(0);
    });
    one("events.yaml", "origin-cluster", |tree| {
        named(tree, "weir_origin")["name"] = "other".into();
    });
    one("events.yaml", "events-route", |tree| {
        at(tree, ROUTES)[0]["route"]["prefix_rewrite"] = "/elsewhere".into();
    });
    one("weir.yaml", "events-exposed", |tree| {
        let open = json!({ "match": { "path": "/events" }, "route": { "cluster": "origin" } });
        at(tree, ROUTES).as_array_mut().unwrap().insert(0, open);
    });
    one("events.yaml", "admin-exposed", |tree| {
        let shop = named(tree, "shop");
        let shop = if shop.get("domains").is_some() {
            let clusters = tree.pointer_mut(CLUSTERS).unwrap().as_array_mut().unwrap();
            clusters
                .iter_mut()
                .find(|cluster| cluster["name"] == "shop")
                .unwrap()
        } else {
            shop
        };
        *at(shop, "/load_assignment/endpoints/0/lb_endpoints") = endpoints(&[("127.0.0.1", 8081)]);
    });
    one("weir.yaml", "origin-other", |tree| {
        let origin = named(tree, "origin");
        *at(origin, "/load_assignment/endpoints/0/lb_endpoints") =
            endpoints(&[("127.0.0.1", 8082)]);
    });
}

#[test]
fn local_replies_are_checked() {
    one("weir.yaml", "local-reply", |tree| {
        drop_field(tree, MANAGER, "local_reply_config")
    });
    // The first three mappers are for browsers.
    let mapper = "/local_reply_config/mappers/3";
    let mut tree = shipped("weir.yaml");
    let flags = format!("{MANAGER}{mapper}/filter/or_filter/filters/0/response_flag_filter/flags");
    at(&mut tree, &flags).as_array_mut().unwrap().remove(0);
    assert_eq!(checks(tree), ["local-reply"]);
    let mut tree = shipped("weir.yaml");
    at(
        &mut tree,
        &format!("{MANAGER}{mapper}/filter/or_filter/filters"),
    )
    .as_array_mut()
    .unwrap()
    .remove(1);
    assert_eq!(checks(tree), ["local-reply"]);
    let mut tree = shipped("weir.yaml");
    at(&mut tree, &format!("{MANAGER}{mapper}/headers_to_add"))
        .as_array_mut()
        .unwrap()
        .remove(1);
    assert_eq!(checks(tree), ["local-reply"]);
}

#[test]
fn durations() {
    one("weir.yaml", "stream-duration", |tree| {
        drop_field(
            tree,
            &format!("{MANAGER}/common_http_protocol_options"),
            "max_stream_duration",
        );
    });
    one("weir.yaml", "stream-duration", |tree| {
        *at(
            tree,
            &format!("{MANAGER}/common_http_protocol_options/max_stream_duration"),
        ) = "5s".into();
    });
    one("ratelimit.yaml", "stream-duration", |tree| {
        *at(tree, &format!("{MANAGER}/stream_idle_timeout")) = "0s".into();
    });
    one("weir.yaml", "claim-ttl", |tree| {
        edit_settings(tree, GATE, |json| json["claim"]["ttl_ms"] = 5_000.into());
    });
    one("weir.yaml", "claim-ttl", |tree| {
        let at_ = route(tree, "orders");
        *at(tree, &format!("{ROUTES}/{at_}/route/timeout")) = "0s".into();
    });
    one("weir.yaml", "route-timeout", |tree| {
        let at_ = route(tree, "orders");
        *at(tree, &format!("{ROUTES}/{at_}/route/timeout")) = "1s".into();
    });
    one("weir.yaml", "route-stream-duration", |tree| {
        let at_ = route(tree, "orders");
        at(tree, &format!("{ROUTES}/{at_}/route"))["max_stream_duration"] =
            json!({ "max_stream_duration": "15s" });
    });
    one("weir.yaml", "origin-idle", |tree| {
        drop_field(
            named(tree, "origin"),
            "",
            "typed_extension_protocol_options",
        );
    });
}

#[test]
fn secrets_reach_the_filters() {
    one("weir.yaml", "secret-not-passed", |tree| {
        let variables = at(
            named(tree, GATE),
            "/typed_config/config/vm_config/environment_variables",
        );
        variables["host_env_keys"] = json!(["WEIR_CLAIM_SECRET"]);
    });
    one("weir.yaml", "secret-in-file", |tree| {
        let variables = at(
            named(tree, GATE),
            "/typed_config/config/vm_config/environment_variables",
        );
        *variables = json!({ "host_env_keys": ["WEIR_CLAIM_SECRET"], "key_values": { "WEIR_TOKEN_SECRET": super::SECRET } });
    });
    one("events.yaml", "secret-not-passed", |tree| {
        drop_field(
            named(tree, "weir.events"),
            "/typed_config/config/vm_config",
            "environment_variables",
        );
    });
    one("weir.yaml", "secret-not-passed", |tree| {
        let bridge = named(tree, BRIDGE);
        *at(bridge, "/typed_config/config/configuration/value") =
            r#"{ "auth": { "password": { "env": "REDIS_PASSWORD" } } }"#.into();
    });
}

#[test]
fn labels() {
    one("weir.yaml", "stats-tags", |tree| {
        drop_field(tree, "", "stats_config")
    });
    one("shortlink.yaml", "stats-tags", |tree| {
        let tags = at(tree, "/stats_config/stats_tags").as_array_mut().unwrap();
        tags.pop();
    });
    one("native.yaml", "stats-prefix", |tree| {
        drop_field(tree, "", "layered_runtime")
    });
}
