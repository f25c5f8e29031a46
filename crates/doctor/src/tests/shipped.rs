//! All files in `envoy/`, alone or combined as their comments describe, have no findings.

use serde_json::{Value, json};
use weir_base::language::Language;
use weir_engine::page::{POLICY, Page};
use weir_registry::FILTERS;

use super::{
    CLUSTERS, LISTENERS, MANAGER, at, checks, documents, drop_field, drop_named, edit_settings,
    environment, found, named, origin, redis, shipped, words,
};

#[test]
fn complete_shipped_files_have_no_findings() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../envoy");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".yaml") {
            continue;
        }
        count += 1;
        assert_eq!(checks(shipped(&name)), [""; 0], "{name}");
    }
    assert!(count >= 8, "{count}");
}

#[test]
fn separate_read_cluster_at_same_servers_is_valid() {
    let mut tree = shipped("isolated-sale.yaml");
    assert_eq!(checks(tree.clone()), [""; 0]);
    let clusters = at(&mut tree, CLUSTERS).as_array_mut().unwrap();
    let is_origin = |cluster: &&mut Value| cluster["name"] == "origin";
    let origin = clusters.iter_mut().find(is_origin).unwrap();
    let endpoint = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
    at(origin, endpoint)["port_value"] = 8081.into();
    let findings = checks(tree);
    let routes = findings.iter().filter(|check| **check == "sale-routes");
    assert!(routes.count() > 5, "{findings:?}");
}

/// The first document of a snippet is a list of filters.
fn with_filters_in_front(snippets: &[&str]) -> Value {
    let mut tree = shipped("weir.yaml");
    let filters = at(&mut tree, &format!("{MANAGER}/http_filters"))
        .as_array_mut()
        .unwrap();
    for snippet in snippets {
        let mut documents = documents(snippet);
        let Value::Array(new) = documents.remove(0) else {
            panic!("{snippet} is no list");
        };
        filters.splice(0..0, new);
    }
    tree
}

#[test]
fn filters_before_the_gate_have_no_findings() {
    let mut tree = with_filters_in_front(&["snippets/jwt.yaml"]);
    assert_eq!(checks(tree.take()), [""; 0]);
    let mut tree = with_filters_in_front(&["snippets/history-limits.yaml", "snippets/jwt.yaml"]);
    let tags = at(&mut tree, "/stats_config/stats_tags")
        .as_array_mut()
        .unwrap();
    let limits = shipped("ratelimit.yaml");
    tags.extend(
        limits["stats_config"]["stats_tags"]
            .as_array()
            .unwrap()
            .clone(),
    );
    assert_eq!(checks(tree), [""; 0]);
}

/// `weir.yaml` with parts replaced by those of a snippet.
fn with_redis_of(snippet: &str) -> Value {
    let mut tree = shipped("weir.yaml");
    let [first, second] = <[Value; 2]>::try_from(documents(snippet)).unwrap();
    drop_named(&mut tree, CLUSTERS, "weir_redis_upstream");
    let cluster = second["clusters"][0].clone();
    at(&mut tree, CLUSTERS)
        .as_array_mut()
        .unwrap()
        .push(cluster);
    match first {
        Value::Array(mut proxies) => {
            *named(&mut tree, "envoy.filters.network.tcp_proxy") = proxies.remove(0);
        }
        settings => {
            let bridge = named(&mut tree, "weir.redis_bridge");
            *at(bridge, "/typed_config/config/configuration/value") = settings["value"].clone();
        }
    }
    tree
}

#[test]
fn redis_with_tls_and_password_has_no_findings() {
    let mut facts = origin();
    facts.has_redis_password = true;
    let findings = found(
        with_redis_of("snippets/redis-tls.yaml"),
        &facts,
        &redis(),
        &environment(),
    );
    assert_eq!(words(&findings), [""; 0]);
}

#[test]
fn redis_cluster_needs_the_cluster_topology() {
    let (mut facts, mut node) = (origin(), redis());
    facts.redis_addresses = vec!["127.0.0.1:7001".into(), "127.0.0.1:7002".into()];
    node.is_cluster = Some(true);
    let mut tree = with_redis_of("snippets/redis-cluster.yaml");
    let wrong = found(tree.clone(), &facts, &node, &environment());
    assert_eq!(words(&wrong), ["topology"]);
    edit_settings(&mut tree, "weir.seckill_gate", |json| {
        json["redis"]["topology"] = "cluster".into();
    });
    let right = found(tree.clone(), &facts, &node, &environment());
    assert_eq!(words(&right), [""; 0]);
    let proxy = named(&mut tree, "envoy.filters.network.redis_proxy");
    at(proxy, "/typed_config/settings/enable_hashtagging").take();
    let wrong = found(tree, &facts, &node, &environment());
    assert_eq!(words(&wrong), ["redis-proxy"]);
}

#[test]
fn replicated_redis_needs_the_check_of_its_role() {
    let mut facts = origin();
    let nodes = ["redis-1:6379", "redis-2:6379", "redis-3:6379"];
    facts.redis_addresses = nodes.map(str::to_owned).into();
    let mut tree = shipped("weir.yaml");
    drop_named(&mut tree, CLUSTERS, "weir_redis_upstream");
    let snippet = documents("snippets/redis-replicated.yaml");
    let clusters = at(&mut tree, CLUSTERS).as_array_mut().unwrap();
    clusters.push(snippet[0]["clusters"][0].clone());
    let right = found(tree.clone(), &facts, &redis(), &environment());
    assert_eq!(words(&right), [""; 0]);
    for field in ["health_checks", "common_lb_config"] {
        let mut tree = tree.clone();
        drop_field(named(&mut tree, "weir_redis_upstream"), "", field);
        let wrong = found(tree, &facts, &redis(), &environment());
        assert_eq!(words(&wrong), ["redis-several"], "{field}");
    }
}

/// The format of `/config_dump`, with routes received over the network.
fn dump(tree: &Value) -> Value {
    let mut bootstrap = tree.clone();
    let resources = bootstrap.as_object_mut().unwrap();
    let resources = resources.remove("static_resources").unwrap();
    resources_dump(bootstrap, &resources)
}

fn resources_dump(mut bootstrap: Value, resources: &Value) -> Value {
    bootstrap["dynamic_resources"] = json!({ "ads_config": {} });
    let mut listeners = resources["listeners"].clone();
    let manager = &mut listeners[0]["filter_chains"][0]["filters"][0]["typed_config"];
    let routes = manager
        .as_object_mut()
        .unwrap()
        .remove("route_config")
        .unwrap();
    manager["rds"] = json!({ "route_config_name": routes["name"] });
    let held = |list: &Value, name: &str| -> Value {
        let parts = list.as_array().unwrap().iter();
        parts.map(|part| json!({ name: part })).collect()
    };
    let moving: Value = listeners.as_array().unwrap()[1..]
        .iter()
        .map(|part| json!({ "name": part["name"], "active_state": { "listener": part } }))
        .collect();
    let part = |name: &str| format!("type.googleapis.com/envoy.admin.v3.{name}");
    json!({ "configs": [
        { "@type": part("BootstrapConfigDump"), "bootstrap": bootstrap },
        { "@type": part("ClustersConfigDump"), "dynamic_active_clusters": held(&resources["clusters"], "cluster") },
        { "@type": part("ListenersConfigDump"), "static_listeners": [{ "listener": listeners[0] }], "dynamic_listeners": moving },
        { "@type": part("RoutesConfigDump"), "dynamic_route_configs": [{ "route_config": routes }] },
    ] })
}

#[test]
fn dynamic_configuration_in_a_dump_is_examined() {
    let mut tree = shipped("weir.yaml");
    assert_eq!(checks(dump(&tree)), [""; 0]);
    let mut routes_apart = dump(&tree);
    routes_apart["configs"].as_array_mut().unwrap().pop();
    assert_eq!(checks(routes_apart), ["routes-unknown"]);
    drop_named(&mut tree, super::ROUTES, "orders");
    assert_eq!(checks(dump(&tree)), ["orders-route"]);
    let mut tree = shipped("weir.yaml");
    drop_named(&mut tree, LISTENERS, "weir_redis");
    assert_eq!(checks(dump(&tree)), ["bridge-listener"]);
}

#[test]
fn snake_case_and_camel_case_fields_are_read() {
    let camel = |tree: &Value| {
        let text = tree.to_string();
        let names = [
            "static_resources",
            "filter_chains",
            "typed_config",
            "http_filters",
            "route_config",
            "virtual_hosts",
            "load_assignment",
            "lb_endpoints",
            "max_stream_duration",
            "common_http_protocol_options",
            "idle_timeout",
            "local_reply_config",
            "host_env_keys",
            "failure_policy",
            "stats_tags",
            "internal_listener",
        ];
        let spelt = |text: String, name: &&str| {
            let mut parts = name.split('_');
            let first = parts.next().unwrap().to_owned();
            let camel = parts.fold(first, |name, part| {
                name + &part[..1].to_uppercase() + &part[1..]
            });
            text.replace(&format!("\"{name}\":"), &format!("\"{camel}\":"))
        };
        serde_json::from_str::<Value>(&names.iter().fold(text, spelt)).unwrap()
    };
    let tree = camel(&shipped("weir.yaml"));
    assert!(tree.get("staticResources").is_some());
    assert_eq!(checks(tree), [""; 0]);
}

/// The texts and headers of Envoy's own replies, if a mapper has a page for browsers.
fn page_of(mapper: &Value) -> Option<String> {
    let text = |pointer: &str| mapper.pointer(pointer)?.as_str();
    let header = |name: &str| {
        let mut headers = mapper["headers_to_add"].as_array()?.iter();
        let found = headers.find(|added| added["header"]["key"] == name)?;
        found["header"]["value"].as_str()
    };
    assert_eq!(header("retry-after"), Some("1"));
    assert_eq!(header("x-weir-verdict"), Some("unavailable"));
    let body = text("/body/inline_string")?;
    let template = text("/body_format_override/text_format_source/inline_string")?;
    assert_eq!(header("content-security-policy"), Some(POLICY));
    let page = template.replace("%RESP(content-language)%", header("content-language")?);
    Some(page.replace("%LOCAL_REPLY_BODY%", body).replace("%%", "%"))
}

/// All `mappers` lists below a value.
fn mappers<'a>(value: &'a Value, found: &mut Vec<&'a Vec<Value>>) {
    if let Some(Value::Array(list)) = value.get("mappers") {
        found.push(list);
    }
    let values: Vec<_> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => return,
    };
    for value in values {
        mappers(value, found);
    }
}

#[test]
fn envoy_local_reply_pages_match_the_filter_pages() {
    let mut files = 0;
    for folder in ["", "kubernetes/"] {
        let shipped = format!("{}/../../envoy/{folder}", env!("CARGO_MANIFEST_DIR"));
        for file in std::fs::read_dir(shipped).unwrap() {
            let name = file.unwrap().file_name();
            let Some(name) = name.to_str().filter(|name| name.ends_with(".yaml")) else {
                continue;
            };
            let documents = documents(&format!("{folder}{name}"));
            let mut found = Vec::new();
            for document in &documents {
                mappers(document, &mut found);
            }
            assert_eq!(found.len(), 1, "{name}");
            let pages: Vec<_> = found[0].iter().filter_map(page_of).collect();
            let expected = [Language::Chinese, Language::German, Language::English];
            let expected = expected.map(|language| Page::Unavailable.html(language));
            assert_eq!(pages, expected, "{name}");
            files += 1;
        }
    }
    assert_eq!(files, 13, "a shipped file is missing here");
}

/// The labels in the shipped files are exactly those that the checks require.
#[test]
fn filter_labels_match_the_shipped_stats_tags() {
    for filter in FILTERS {
        let file = filter.envoy_file;
        let tree = shipped(file);
        let tags = tree["stats_config"]["stats_tags"].as_array().unwrap();
        let mut tags: Vec<_> = tags
            .iter()
            .map(|tag| tag["tag_name"].as_str().unwrap())
            .collect();
        let mut expected = filter.labels.to_vec();
        tags.sort_unstable();
        expected.sort_unstable();
        assert_eq!(tags, expected, "{file}");
    }
}

/// Each check in the source has a row in the manual.
#[test]
fn every_check_is_in_the_manual() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let manual = std::fs::read_to_string(format!("{root}/docs/doctor.md")).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(format!("{root}/crates/doctor/src/checks")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for start in ["Diagnostic::error(", "Diagnostic::warning(", "broken("] {
            for rest in text.split(start).skip(1) {
                let Some(rest) = rest.trim_start().strip_prefix('"') else {
                    continue;
                };
                let check = rest.split('"').next().unwrap();
                assert!(manual.contains(&format!("`{check}`")), "{check}");
                count += 1;
            }
        }
    }
    assert!(count > 45, "{count}");
}
