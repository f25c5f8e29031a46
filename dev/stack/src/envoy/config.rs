//! The shipped Envoy files, edited for a run: ports, addresses, paths, filter settings.
//!
//! There is no template and no second configuration for tests: tests run the files that users copy. Each file is parsed
//! into a tree and edited there. An edit whose target is missing from the file returns an error that names it.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

mod limits;
mod local;
mod native;

pub use native::{native_filter, worker_socket};

use super::tree::{self, at, fields, list, set};
use crate::native::Host;
use crate::secrets::{CLAIM, TOKEN};
use crate::{edge, workspace};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use weir_registry::Filter;

// The shipped files, from the root of the workspace.
const ALL: &str = "envoy/all.yaml";
const NATIVE: &str = "envoy/native.yaml";

/// The cluster of Redis in that file.
const NATIVE_REDIS: &str = "weir_redis_upstream";
const RATELIMIT_REDIS: &str = "envoy/ratelimit-redis.yaml";
const JWT: &str = "envoy/snippets/jwt.yaml";
const CORS: &str = "envoy/snippets/cors.yaml";
const REDIS_TLS: &str = "envoy/snippets/redis-tls.yaml";
const REDIS_NODES: &str = "envoy/snippets/redis-cluster.yaml";
const REDIS_REPLICATED: &str = "envoy/snippets/redis-replicated.yaml";

// Names in the shipped files.
/// The gate's filter name in `envoy/weir.yaml`.
pub const GATE: &str = weir_registry::GATE.envoy_name;
/// The limiter's filter name.
pub const LIMITER: &str = weir_registry::LIMITER.envoy_name;
/// The redirector's filter name.
pub const LINKS: &str = weir_registry::LINKS.envoy_name;
/// The event collector's filter name.
pub const EVENTS: &str = weir_registry::EVENTS.envoy_name;
/// The fitment filter's name.
pub const FITMENT: &str = weir_registry::FITMENT.envoy_name;
/// The waiting room's filter name.
pub const ROOM: &str = weir_registry::ROOM.envoy_name;
const BRIDGE: &str = "weir.redis_bridge";
const TCP_PROXY: &str = "envoy.filters.network.tcp_proxy";
const REDIS_CLUSTER: &str = "weir_redis_upstream";
/// The origin's cluster names.
const ORIGINS: [&str; 2] = ["origin", "weir_origin"];
/// The folder in their wasm paths.
const WASM_DIR: &str = "target/weir/";

const LISTENERS: &str = "/static_resources/listeners";
const CLUSTERS: &str = "/static_resources/clusters";
/// A wasm filter's settings, and the variables that it receives.
const SETTINGS: &str = "/typed_config/config/configuration/value";
const VM: &str = "/typed_config/config/vm_config";
const TRUSTED_CA: &str =
    "/transport_socket/typed_config/common_tls_context/validation_context/trusted_ca/filename";

/// The header with which a request asks [`EnvoyConfig::holding`] for a delay, in milliseconds.
pub const HOLD_HEADER: &str = "x-envoy-fault-delay-request";

/// The gateway's port in the shipped files.
pub const SHIPPED_GATEWAY_PORT: u16 = 10_000;
/// The admin port in the shipped files.
pub const SHIPPED_ADMIN_PORT: u16 = 9901;

/// A shipped configuration with edits.
#[derive(Debug, Clone)]
pub struct EnvoyConfig {
    tree: Value,
    host: Host,
    gateway_port: u16,
    admin_port: u16,
}

impl EnvoyConfig {
    /// `envoy/weir.yaml` with absolute filter paths: the file names them relative to the workspace's root, and Envoy
    /// may run elsewhere.
    pub fn shipped() -> Result<Self> {
        Self::alone(GATE)
    }

    /// `envoy/all.yaml` in the same way: all filters on one listener.
    pub fn all() -> Result<Self> {
        Ok(Self::read(ALL)?.host(Host::Wasm))
    }

    /// `envoy/ratelimit.yaml` or `envoy/ratelimit-redis.yaml` in the same way. Envoy itself answers requests that pass
    /// with 200, in place of a service.
    pub fn ratelimit(with_redis: bool) -> Result<Self> {
        let answer = json!({ "direct_response": { "status": 200 } });
        let config = match with_redis {
            true => Self::read(RATELIMIT_REDIS)?,
            false => Self::alone(LIMITER)?,
        };
        config.act_on_route_to("service", answer)
    }

    /// `envoy/native.yaml` with `library`, and Redis at a port of 127.0.0.1.
    pub fn native(library: &Path, redis_port: u16) -> Result<Self> {
        let mut config = Self::read(NATIVE)?.host(Host::Wasm);
        native::set_library(&mut config.tree, library);
        native::set_worker_socket(&mut config.tree);
        native::set_redis(config.filter(GATE)?, redis_port)?;
        let redis = SocketAddr::from(([127, 0, 0, 1], redis_port));
        config.edit_cluster(NATIVE_REDIS, |cluster| {
            tree::set_endpoint(cluster, 0, redis)
        })
    }

    /// The same configuration on its host, without the fast path before any connection manager.
    pub fn without_fast_path(self) -> Result<Self> {
        let mut config = Self::parse(&self.render()?)?.host(Host::Wasm);
        (config.gateway_port, config.admin_port) = (self.gateway_port, self.admin_port);
        for listener in list(&mut config.tree, LISTENERS)? {
            for chain in list(listener, "/filter_chains")? {
                let filters = list(chain, "/filters")?;
                filters.retain(|filter| filter["name"] != native::FAST_PATH);
            }
        }
        Ok(config)
    }

    /// `envoy/shortlink.yaml` in the same way as the shipped file.
    pub fn shortlink() -> Result<Self> {
        Self::alone(LINKS)
    }

    /// `envoy/events.yaml` in the same way, with the site itself at `shop`.
    pub fn events(shop: SocketAddr) -> Result<Self> {
        Self::alone(EVENTS)?.edit_cluster("shop", |cluster| tree::set_endpoint(cluster, 0, shop))
    }

    /// `envoy/isolated-sale.yaml` in the same way. Orders of the sale go to `orders`, and `shop` is the shop, whose
    /// listener has its own port.
    pub fn isolated_sale(orders: SocketAddr, shop_port: u16, shop: SocketAddr) -> Result<Self> {
        let mut config = Self::read("envoy/isolated-sale.yaml")?
            .edit_cluster("sale_orders", |it| tree::set_endpoint(it, 0, orders))?
            .edit_cluster("shop", |it| tree::set_endpoint(it, 0, shop))?;
        let listeners = list(&mut config.tree, LISTENERS)?;
        let listener = tree::position(listeners, "shop")?;
        let port = "/address/socket_address/port_value";
        set(&mut listeners[listener], port, shop_port)?;
        Ok(config)
    }

    /// `envoy/fitment.yaml` in the same way.
    pub fn fitment() -> Result<Self> {
        Self::alone(FITMENT)
    }

    /// `envoy/waiting-room.yaml` in the same way. Envoy itself answers requests that pass with 200, in place of a
    /// service.
    pub fn waiting_room() -> Result<Self> {
        let answer = json!({ "direct_response": { "status": 200 } });
        Self::alone(ROOM)?.act_on_route_to("service", answer)
    }

    /// Replaces the configuration of the filter of [`EnvoyConfig::waiting_room`].
    pub fn room_config(self, json: &str) -> Result<Self> {
        self.filter_config(ROOM, json)
    }

    /// Adds the filter of `envoy/waiting-room.yaml` with this configuration before the gate. It derives its keys from
    /// the gate's `WEIR_CLAIM_SECRET`.
    pub fn room_before_gate(mut self, json: &str) -> Result<Self> {
        let mut room = Self::alone(ROOM)?
            .room_config(json)?
            .filter_variables(ROOM, &["WEIR_CLAIM_SECRET"])?;
        let filter = room.filter(ROOM)?.clone();
        self.http_filters()?.insert(0, filter);
        Ok(self)
    }

    /// Replaces the configuration of the filter of [`EnvoyConfig::fitment`].
    pub fn fitment_config(self, json: &str) -> Result<Self> {
        self.filter_config(FITMENT, json)
    }

    /// The shipped file with only this filter, in the same way.
    pub fn alone(filter: &str) -> Result<Self> {
        let filter = Filter::of_envoy_name(filter).context("unknown filter")?;
        Self::read(&format!("envoy/{}", filter.envoy_file))
    }

    fn read(file: &str) -> Result<Self> {
        let [tree] = <[Value; 1]>::try_from(tree::read(file)?)
            .ok()
            .with_context(|| format!("{file} is not one document"))?;
        Ok(Self::from_tree(tree).wasm_dir(&workspace::out_dir()))
    }

    /// Parses YAML with the structure of the shipped files.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self::from_tree(tree::document(text)?))
    }

    fn from_tree(tree: Value) -> Self {
        Self {
            tree,
            host: Host::of_run(),
            gateway_port: SHIPPED_GATEWAY_PORT,
            admin_port: SHIPPED_ADMIN_PORT,
        }
    }

    /// Sets the gateway's listener port.
    pub fn gateway_port(mut self, port: u16) -> Result<Self> {
        self.gateway_port = port;
        let listeners = list(&mut self.tree, LISTENERS)?;
        let gateway = tree::position(listeners, "gateway")?;
        let before = at(&mut listeners[gateway], native::PORT)?;
        let before = std::mem::replace(before, port.into());
        if let Some(before) = before.as_u64() {
            native::rename_worker_sockets(&mut self.tree, before, port);
        }
        Ok(self)
    }

    /// Sets the port of Envoy's admin interface.
    pub fn admin_port(mut self, port: u16) -> Result<Self> {
        self.admin_port = port;
        self.set("/admin/address/socket_address/port_value", port)
    }

    /// Sets the origin's address.
    pub fn origin(mut self, address: SocketAddr) -> Result<Self> {
        let clusters = list(&mut self.tree, CLUSTERS)?;
        let named = |cluster: &&mut Value| ORIGINS.iter().any(|name| cluster["name"] == *name);
        let origin = clusters.iter_mut().find(named);
        tree::set_endpoint(origin.context("there is no origin here")?, 0, address)?;
        Ok(self)
    }

    /// Sets the address of Redis. A name is resolved here, once.
    pub fn redis(self, host: &str, port: u16) -> Result<Self> {
        let address = (host, port)
            .to_socket_addrs()
            .with_context(|| format!("cannot resolve the Redis host {host}"))?
            .min_by_key(SocketAddr::is_ipv6)
            .with_context(|| format!("the Redis host {host} has no address"))?;
        self.edit_cluster(REDIS_CLUSTER, |cluster| {
            tree::set_endpoint(cluster, 0, address)
        })
    }

    /// Connects to Redis over TLS and with the password in `WEIR_REDIS_PASSWORD`, as in
    /// `envoy/snippets/redis-tls.yaml`. `ca` is the authority's PEM file. [`EnvoyConfig::redis`] sets the address.
    pub fn redis_tls(mut self, ca: &Path) -> Result<Self> {
        let [mut settings, mut clusters] = two_documents(REDIS_TLS)?;
        *at(self.filter(BRIDGE)?, SETTINGS)? = at(&mut settings, "/value")?.take();
        let config = self.take_redis_cluster(&mut clusters)?;
        let ca = ca.display().to_string();
        config.edit_cluster(REDIS_CLUSTER, |cluster| set(cluster, TRUSTED_CA, ca))
    }

    /// Uses a Redis Cluster of three on these ports of 127.0.0.1, as in `envoy/snippets/redis-cluster.yaml`. Instead of
    /// [`EnvoyConfig::redis`].
    pub fn redis_cluster(self, ports: [u16; 3]) -> Result<Self> {
        self.redis_nodes(ports)?
            .edit_filter(GATE, |json| set(json, "/redis/topology", "cluster"))
    }

    /// Sets the cluster's nodes for a filter whose own settings already declare a cluster.
    pub fn redis_nodes(mut self, ports: [u16; 3]) -> Result<Self> {
        let [mut proxy, mut clusters] = two_documents(REDIS_NODES)?;
        *self.filter(TCP_PROXY)? = at(&mut proxy, "/0")?.take();
        let config = self.take_redis_cluster(&mut clusters)?;
        config.edit_cluster(REDIS_CLUSTER, |cluster| {
            ensure!(
                list(cluster, tree::ENDPOINTS)?.len() == ports.len(),
                "{REDIS_NODES} has a different number of nodes"
            );
            let mut addresses = ports
                .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
                .into_iter();
            addresses
                .by_ref()
                .enumerate()
                .try_for_each(|(node, address)| tree::set_endpoint(cluster, node, address))
        })
    }

    /// Follows the primary of the nodes on these ports of 127.0.0.1, as in `envoy/snippets/redis-replicated.yaml`. Instead of
    /// [`EnvoyConfig::redis`].
    pub fn redis_replicated(self, ports: impl Iterator<Item = u16>) -> Result<Self> {
        let [mut clusters] = <[Value; 1]>::try_from(tree::read(REDIS_REPLICATED)?)
            .ok()
            .with_context(|| format!("{REDIS_REPLICATED} is not one document"))?;
        let config = self.take_redis_cluster(&mut clusters)?;
        config.edit_cluster(REDIS_CLUSTER, |cluster| {
            ports.enumerate().try_for_each(|(node, port)| {
                tree::set_endpoint(cluster, node, SocketAddr::from(([127, 0, 0, 1], port)))
            })
        })
    }

    /// Replaces the Redis cluster with that of another shipped file, as the documentation instructs.
    fn take_redis_cluster(self, fragment: &mut Value) -> Result<Self> {
        let clusters = list(fragment, "/clusters")?;
        let theirs = tree::position(clusters, REDIS_CLUSTER)?;
        let theirs = clusters[theirs].take();
        self.edit_cluster(REDIS_CLUSTER, |cluster| {
            *cluster = theirs;
            Ok(())
        })
    }

    /// Sets the folder with the filters.
    pub fn wasm_dir(mut self, dir: &Path) -> Self {
        tree::visit(&mut self.tree, &mut |value| {
            if let Some(file) = value.as_str().and_then(|text| text.strip_prefix(WASM_DIR)) {
                *value = dir.join(file).display().to_string().into();
            }
        });
        self
    }

    /// Adds `envoy/snippets/jwt.yaml` before the gate: tokens identify users.
    pub fn jwt(mut self) -> Result<Self> {
        let mut read = tree::read(JWT)?;
        let filters = list(read.first_mut().context("it is empty")?, "")?;
        self.http_filters()?.splice(0..0, filters.drain(..));
        Ok(self)
    }

    /// Adds `envoy/snippets/cors.yaml`: pages of other sites may read answers.
    pub fn cors(mut self) -> Result<Self> {
        let [mut filters, mut policy, mut routes] = <[Value; 3]>::try_from(tree::read(CORS)?)
            .ok()
            .context("not three parts")?;
        let filters = list(&mut filters, "")?.drain(..);
        self.http_filters()?.splice(0..0, filters);
        let host = fields(self.http()?, "/route_config/virtual_hosts/0")?;
        host.append(fields(&mut policy, "")?);
        let own = list(self.http()?, "/route_config/virtual_hosts/0/routes")?;
        own.splice(0..0, list(&mut routes, "")?.drain(..));
        Ok(self)
    }

    /// Sets the prefix of all Redis keys.
    pub fn key_prefix(self, prefix: &str) -> Result<Self> {
        self.edit_filter(GATE, |json| set(json, "/redis/key_prefix", prefix))
    }

    /// Replaces the rate limiter's settings with this JSON; only for files of [`EnvoyConfig::ratelimit`].
    pub fn limiter_config(self, json: &str) -> Result<Self> {
        self.filter_config(LIMITER, json)
    }

    /// Replaces the settings of the filter of [`EnvoyConfig::shortlink`].
    pub fn links_config(self, json: &str) -> Result<Self> {
        self.filter_config(LINKS, json)
    }

    /// Makes the filter sign click IDs with the secret in this variable.
    pub fn links_naming_clicks(mut self, variable: &str) -> Result<Self> {
        let environment = json!({ "host_env_keys": [variable] });
        at(self.filter(LINKS)?, VM)?["environment_variables"] = environment;
        self.edit_filter(LINKS, |settings| {
            let secret = json!({ "env": variable });
            settings["conversion"] = json!({ "keys": [{ "secret": secret }] });
            Ok(())
        })
    }

    /// `envoy/events.yaml` with Envoy itself answering with 200 in place of the site.
    pub fn events_alone() -> Result<Self> {
        let answer = json!({ "direct_response": { "status": 200 } });
        Self::alone(EVENTS)?.act_on_route_to("shop", answer)
    }

    /// Replaces the settings of the filter of [`EnvoyConfig::events`].
    pub fn events_config(self, json: &str) -> Result<Self> {
        self.filter_config(EVENTS, json)
    }

    fn filter_config(mut self, filter: &str, json: &str) -> Result<Self> {
        set(self.filter(filter)?, SETTINGS, json)?;
        Ok(self)
    }

    /// Uses the limiter's module that reads responses.
    pub fn ratelimit_headers(mut self) -> Result<Self> {
        let variant = workspace::out_dir().join("ratelimit-headers.wasm");
        let file = format!("{VM}/code/local/filename");
        set(self.filter(LIMITER)?, &file, variant.display().to_string())?;
        Ok(self)
    }

    /// Removes the rate limiter, for comparison; only for [`EnvoyConfig::ratelimit`]`(false)`.
    pub fn without_limiter(self) -> Result<Self> {
        self.without(LIMITER)
    }

    /// Replaces the filter with a route that redirects every request, for comparison; only for
    /// [`EnvoyConfig::shortlink`].
    pub fn redirecting(self) -> Result<Self> {
        let redirect = json!({ "redirect": {
            "https_redirect": true, "host_redirect": "target.example", "path_redirect": "/page",
            "response_code": "FOUND",
        } });
        self.without(LINKS)?
            .act_on_route_to("weir_origin", redirect)
    }

    /// The same with one exact route for each path, in place of the route to the origin.
    pub fn redirecting_each(self, paths: impl Iterator<Item = String>) -> Result<Self> {
        let redirect = json!({
            "https_redirect": true, "host_redirect": "target.example", "path_redirect": "/page",
            "response_code": "FOUND",
        });
        let route = |path: String| json!({ "match": { "path": path }, "redirect": redirect });
        let routes: Vec<Value> = paths.map(route).collect();
        let mut config = self.without(LINKS)?;
        set(
            config.http()?,
            "/route_config/virtual_hosts/0/routes",
            routes,
        )?;
        Ok(config)
    }

    fn without(mut self, filter: &str) -> Result<Self> {
        let filters = self.http_filters()?;
        filters.remove(tree::position(filters, filter)?);
        Ok(self)
    }

    /// Sets the maximum number of request headers.
    pub fn headers_max(mut self, count: u32) -> Result<Self> {
        let max = "/common_http_protocol_options/max_headers_count";
        set(self.http()?, max, count)?;
        Ok(self)
    }

    /// Adds a filter before the router that delays a request by the milliseconds in its header [`HOLD_HEADER`], to keep
    /// it in flight.
    pub fn holding(mut self) -> Result<Self> {
        let hold = json!({
            "name": "envoy.filters.http.fault",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
                "delay": { "header_delay": {}, "percentage": { "numerator": 100 } },
            },
        });
        let filters = self.http_filters()?;
        let router = tree::position(filters, "envoy.filters.http.router")?;
        filters.insert(router, hold);
        Ok(self)
    }

    /// Replaces filters and routes with `http_filters` and `route_config` of `fragment`, a YAML file that also has
    /// additional clusters. Keeps the listener and all its limits.
    pub fn with_http_of(mut self, fragment: &str) -> Result<Self> {
        let mut fragment = tree::document(fragment)?;
        for part in ["http_filters", "route_config"] {
            let theirs = at(&mut fragment, &format!("/{part}"))?.take();
            set(self.http()?, &format!("/{part}"), theirs)?;
        }
        if let Some(Value::Array(clusters)) = fragment.get_mut("clusters") {
            list(&mut self.tree, CLUSTERS)?.append(clusters);
        }
        Ok(self)
    }

    /// Makes Envoy answer orders that pass the gate with 200 and this JSON, in place of the origin.
    pub fn orders_answered(mut self, body: &str) -> Result<Self> {
        let is_orders = |value: &Value| value["name"] == "orders" && !value["match"].is_null();
        let orders = tree::only(&mut self.tree, "the route for orders", is_orders)?;
        let answer = json!({ "status": 200, "body": { "inline_string": body } });
        let route = fields(orders, "")?;
        route.remove("route").context("orders go nowhere")?;
        route.insert("direct_response".to_owned(), answer);
        list(orders, "/response_headers_to_add")?.push(json!({
            "header": { "key": "content-type", "value": "application/json" },
            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
        }));
        Ok(self)
    }

    /// Passes exactly these variables of Envoy's environment to the filter `name`.
    pub fn filter_variables(mut self, name: &str, variables: &[&str]) -> Result<Self> {
        let vm = fields(self.filter(name)?, VM)?;
        let body = json!({ "host_env_keys": variables });
        vm.insert("environment_variables".to_owned(), body);
        Ok(self)
    }

    /// Makes the gate accept edge assertions, signed with the secret in [`edge::SECRET`].
    pub fn edges(self) -> Result<Self> {
        let config = self.filter_variables(GATE, &[CLAIM, TOKEN, edge::SECRET])?;
        config.edit_filter(GATE, |json| {
            let body = json!({ "keys": edge::keys() });
            fields(json, "")?.insert("edges".to_owned(), body);
            Ok(())
        })
    }

    /// Adapts the gate to shards in Durable Objects behind the origin's `shard-proxy`: one shard per call, and a longer
    /// timeout.
    pub fn shards_in_objects(self) -> Result<Self> {
        self.edit_filter(GATE, |json| {
            set(json, "/redis/topology", "cluster")?;
            let redis = fields(json, "/redis")?;
            let deadline_ms = edge::OBJECTS_DEADLINE_MS.into();
            redis.insert("deadline_ms".to_owned(), deadline_ms);
            Ok(())
        })
    }

    /// Sets the timeout of every route that has one.
    pub fn route_timeouts(mut self, timeout: &str) -> Result<Self> {
        let mut count = 0;
        tree::visit(self.http()?, &mut |value| {
            if let Some(route) = value.pointer_mut("/route/timeout") {
                *route = timeout.into();
                count += 1;
            }
        });
        ensure!(count > 0, "no route has a timeout");
        Ok(self)
    }

    /// Adds a listener, as YAML.
    pub fn add_listener(mut self, yaml: &str) -> Result<Self> {
        let listener = tree::document(yaml)?;
        list(&mut self.tree, LISTENERS)?.push(listener);
        Ok(self)
    }

    /// Adds a cluster, as YAML.
    pub fn add_cluster(mut self, yaml: &str) -> Result<Self> {
        let cluster = tree::document(yaml)?;
        list(&mut self.tree, CLUSTERS)?.push(cluster);
        Ok(self)
    }

    /// Changes the JSON settings of the wasm filter `name` with `edit`.
    pub fn edit_filter(
        mut self,
        name: &str,
        edit: impl FnOnce(&mut Value) -> Result<()>,
    ) -> Result<Self> {
        let settings = at(self.filter(name)?, SETTINGS)?;
        let text = settings.as_str().context("its settings are not text")?;
        let mut json = serde_json::from_str(text).context("its settings are not JSON")?;
        edit(&mut json).with_context(|| format!("in the settings of {name}"))?;
        *settings = json.to_string().into();
        Ok(self)
    }

    /// Changes the settings of the native filter `name` with `edit`.
    pub fn edit_native(
        mut self,
        name: &str,
        edit: impl FnOnce(&mut Value) -> Result<()>,
    ) -> Result<Self> {
        native::edit(self.filter(name)?, edit)?;
        Ok(self)
    }

    /// Changes the connection manager's settings with `edit`.
    pub fn edit_http(mut self, edit: impl FnOnce(&mut Value) -> Result<()>) -> Result<Self> {
        edit(self.http()?)?;
        Ok(self)
    }

    /// Changes a cluster with `edit`.
    pub fn edit_cluster(
        mut self,
        name: &str,
        edit: impl FnOnce(&mut Value) -> Result<()>,
    ) -> Result<Self> {
        let clusters = list(&mut self.tree, CLUSTERS)?;
        let cluster = tree::position(clusters, name).context("unknown cluster")?;
        edit(&mut clusters[cluster]).with_context(|| format!("in the cluster {name}"))?;
        Ok(self)
    }

    /// The gateway's listener port.
    pub fn chosen_gateway_port(&self) -> u16 {
        self.gateway_port
    }

    /// The port of Envoy's admin interface.
    pub fn chosen_admin_port(&self) -> u16 {
        self.admin_port
    }

    /// Sets the host of the filters; the default is [`Host::of_run`].
    pub fn host(mut self, host: Host) -> Self {
        self.host = host;
        self
    }

    /// Renders the configuration as JSON, which Envoy's YAML parser accepts. Builds the native module if it is the
    /// host.
    pub fn render(&self) -> Result<String> {
        let mut tree = self.tree.clone();
        if self.host.is_native() {
            native::convert(&mut tree, &self.host.library()?)?;
        }
        Ok(format!("{tree:#}\n"))
    }

    fn set(mut self, pointer: &str, new: impl Into<Value>) -> Result<Self> {
        set(&mut self.tree, pointer, new)?;
        Ok(self)
    }

    /// A filter of the listener or of the connection manager.
    fn filter(&mut self, name: &str) -> Result<&mut Value> {
        let is_it = |value: &Value| value["name"] == name && !value["typed_config"].is_null();
        tree::only(at(&mut self.tree, LISTENERS)?, name, is_it)
    }

    /// The connection manager of the gateway.
    fn http(&mut self) -> Result<&mut Value> {
        let listeners = list(&mut self.tree, LISTENERS)?;
        let gateway = tree::position(listeners, "gateway")?;
        let is_it = |value: &Value| value["http_filters"].is_array();
        tree::only(&mut listeners[gateway], "the http_filters", is_it)
    }

    fn http_filters(&mut self) -> Result<&mut Vec<Value>> {
        list(self.http()?, "/http_filters")
    }

    /// Replaces the action of the route that sends all other requests to `cluster`.
    fn act_on_route_to(mut self, cluster: &str, action: Value) -> Result<Self> {
        let is_it =
            |value: &Value| value["route"]["cluster"] == cluster && value["match"]["prefix"] == "/";
        let route = fields(tree::only(self.http()?, "the route", is_it)?, "")?;
        route.remove("route");
        let Value::Object(mut action) = action else {
            anyhow::bail!("not what a route does: {action}");
        };
        route.append(&mut action);
        Ok(self)
    }
}

fn two_documents(file: &str) -> Result<[Value; 2]> {
    let read = <[Value; 2]>::try_from(tree::read(file)?);
    read.ok()
        .with_context(|| format!("{file} has not two documents"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(config: Result<EnvoyConfig>) -> Value {
        serde_json::from_str(&config.unwrap().render().unwrap()).unwrap()
    }

    fn settings(config: Result<EnvoyConfig>, filter: &str) -> Value {
        let mut config = config.unwrap();
        let text = at(config.filter(filter).unwrap(), SETTINGS).unwrap().take();
        serde_json::from_str(text.as_str().unwrap()).unwrap()
    }

    /// The paths at which two trees differ.
    fn differences(one: &Value, other: &Value) -> Vec<String> {
        let flat = |tree: &Value| {
            let mut flat = std::collections::BTreeMap::new();
            flatten(tree, String::new(), &mut flat);
            flat
        };
        let (one, other) = (flat(one), flat(other));
        let places: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
        let differs = |place: &&&String| one.get(**place) != other.get(**place);
        places
            .iter()
            .filter(differs)
            .map(|place| (*place).clone())
            .collect()
    }

    fn flatten(tree: &Value, here: String, flat: &mut std::collections::BTreeMap<String, Value>) {
        match tree {
            Value::Object(fields) => fields
                .iter()
                .for_each(|(name, value)| flatten(value, format!("{here}/{name}"), flat)),
            Value::Array(list) => list
                .iter()
                .enumerate()
                .for_each(|(index, value)| flatten(value, format!("{here}/{index}"), flat)),
            value => drop(flat.insert(here, value.clone())),
        }
    }

    #[test]
    fn only_named_settings_are_replaced() {
        let shipped = EnvoyConfig::shipped();
        let edited = EnvoyConfig::shipped()
            .and_then(|config| config.gateway_port(9901)?.admin_port(10_000))
            .and_then(|config| config.origin("127.0.0.2:1".parse()?)?.redis("127.0.0.3", 2));
        let (shipped, edited) = (rendered(shipped), rendered(edited));
        let address = "load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
        let mut expected = vec![
            "/admin/address/socket_address/port_value".to_owned(),
            "/static_resources/listeners/0/address/socket_address/port_value".to_owned(),
        ];
        for cluster in [1, 2] {
            expected.push(format!(
                "/static_resources/clusters/{cluster}/{address}/address"
            ));
            expected.push(format!(
                "/static_resources/clusters/{cluster}/{address}/port_value"
            ));
        }
        expected.sort();
        assert_eq!(differences(&shipped, &edited), expected);
    }

    #[test]
    fn filters_are_loaded_from_the_named_folder() {
        let text = rendered(EnvoyConfig::shipped()).to_string();
        let out = workspace::out_dir().join("seckill-gate.wasm");
        assert!(text.contains(&out.display().to_string()), "{text}");
        assert!(!text.contains("\"target/weir/"), "{text}");
    }

    #[test]
    fn missing_config_path_is_an_error_that_names_it() {
        let parsed = || EnvoyConfig::parse("static_resources: { listeners: [], clusters: [] }");
        let error = parsed()
            .and_then(|config| config.admin_port(1))
            .unwrap_err();
        assert!(error.to_string().contains("/admin/"), "{error}");
        let error = parsed()
            .and_then(|config| config.gateway_port(1))
            .unwrap_err();
        assert!(error.to_string().contains("gateway"), "{error}");
        let error = parsed()
            .and_then(|config| config.key_prefix("x"))
            .unwrap_err();
        assert!(error.to_string().contains(GATE), "{error}");
    }

    #[test]
    fn limiter_settings_are_replaced_or_its_filter_is_removed() {
        let json = r#"{ "rules": [] }"#;
        for with_redis in [false, true] {
            let config =
                EnvoyConfig::ratelimit(with_redis).and_then(|config| config.limiter_config(json));
            assert_eq!(settings(config, LIMITER), json!({ "rules": [] }));
        }
        let bare = EnvoyConfig::ratelimit(false).and_then(EnvoyConfig::without_limiter);
        let bare = rendered(bare).to_string();
        assert!(!bare.contains("wasm.v3") && bare.contains("filters.http.router"));
        assert!(
            bare.contains(r#""direct_response":{"status":200}"#),
            "{bare}"
        );
        assert!(EnvoyConfig::shipped().unwrap().without_limiter().is_err());
    }

    #[test]
    fn link_settings_are_replaced_or_envoy_redirects_itself() {
        let config = EnvoyConfig::shortlink()
            .and_then(|config| config.links_config(r#"{ "redis": {} }"#))
            .and_then(|config| config.origin("127.0.0.1:7".parse()?)?.redis("127.0.0.1", 8))
            .and_then(|config| config.gateway_port(1)?.admin_port(2));
        assert_eq!(settings(config, LINKS), json!({ "redis": {} }));
        let bare =
            rendered(EnvoyConfig::shortlink().and_then(EnvoyConfig::redirecting)).to_string();
        assert!(!bare.contains("shortlink-redirect.wasm") && bare.contains("path_redirect"));
    }

    #[test]
    fn redis_of_a_fragment_replaces_the_shipped_one() {
        let config = EnvoyConfig::shipped()
            .and_then(|config| config.redis_tls(Path::new("/run/ca.pem")))
            .and_then(|config| config.redis("127.0.0.1", 7));
        assert_eq!(
            settings(
                config
                    .as_ref()
                    .cloned()
                    .map_err(|e| anyhow::anyhow!("{e:#}")),
                BRIDGE
            )["auth"]["password"]["env"],
            "WEIR_REDIS_PASSWORD"
        );
        let text = rendered(config).to_string();
        assert!(text.contains("/run/ca.pem") && text.contains("UpstreamTlsContext"));
        assert_eq!(text.matches(r#""name":"weir_redis_upstream""#).count(), 1);
        let config = EnvoyConfig::shipped().and_then(|config| config.redis_cluster([1, 2, 3]));
        let text = rendered(config).to_string();
        assert!(
            text.contains("envoy.clusters.redis") && !text.contains("700"),
            "{text}"
        );
        assert!(text.contains(r#"\"topology\":\"cluster\""#), "{text}");
        assert!(text.contains("redis_proxy") && !text.contains("tcp_proxy"));
        assert_eq!(text.matches(r#""name":"weir_redis_upstream""#).count(), 1);
    }

    #[test]
    fn token_is_checked_before_the_gate() {
        let mut config = EnvoyConfig::shipped().and_then(EnvoyConfig::jwt).unwrap();
        let filters = config.http_filters().unwrap();
        let names: Vec<_> = filters
            .iter()
            .map(|filter| filter["name"].as_str().unwrap())
            .collect();
        let expected = [
            "envoy.filters.http.jwt_authn",
            GATE,
            "envoy.filters.http.router",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn fragment_filters_replace_the_shipped_listeners_filters() {
        const FRAGMENT: &str = "http_filters:\n  - name: mine\nroute_config:\n  name: r\n";
        let with = |fragment: &str| EnvoyConfig::shipped()?.with_http_of(fragment);
        let mut config = with(&format!("{FRAGMENT}clusters:\n  - name: beside\n")).unwrap();
        let http = config.http().unwrap();
        assert_eq!(http["http_filters"], json!([{ "name": "mine" }]));
        assert_eq!(http["route_config"], json!({ "name": "r" }));
        assert_eq!(http["request_headers_timeout"], "10s");
        let clusters = list(&mut config.tree, CLUSTERS).unwrap();
        assert_eq!(clusters.last().unwrap()["name"], "beside");
        assert!(with(FRAGMENT).is_ok() && with("route_config:\n").is_err());
    }

    #[test]
    fn filter_settings_are_edited_as_json() {
        let config = EnvoyConfig::shipped()
            .unwrap()
            .edit_filter(GATE, |json| set(json, "/poll_interval_ms", 999));
        let json = settings(config, GATE);
        assert_eq!(json["poll_interval_ms"], 999);
        assert_eq!(json["user_header"], "x-user-id");
        let shipped = || EnvoyConfig::shipped().unwrap();
        assert!(shipped().edit_filter("weir.nothing", |_| Ok(())).is_err());
        assert!(
            shipped()
                .edit_filter(GATE, |json| set(json, "/no", 1))
                .is_err()
        );
    }

    #[test]
    fn envoy_answers_orders_and_other_routes_are_unchanged() {
        let shipped = rendered(EnvoyConfig::shipped());
        let edited =
            rendered(EnvoyConfig::shipped().and_then(|config| config.orders_answered("{}")));
        for place in differences(&shipped, &edited) {
            assert!(place.contains("/virtual_hosts/0/routes/0/"), "{place}");
        }
        assert!(edited.to_string().contains("direct_response"));
    }

    #[test]
    fn all_route_timeouts_are_replaced() {
        let text = rendered(EnvoyConfig::shipped().and_then(|config| config.route_timeouts("1s")))
            .to_string();
        assert_eq!(text.matches(r#""timeout":"1s""#).count(), 10);
        assert!(!text.contains(r#""timeout":"5s""#));
    }
}
