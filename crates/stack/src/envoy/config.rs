//! `envoy/weir.yaml`, the file that users copy, with only ports, paths and names replaced.
//!
//! There is no template and no second config for tests: what is shipped is what runs. Each
//! replacement says how often its text must occur; an edit of the file that breaks one is an
//! error that names the text, not a test that quietly runs something else.

mod compared;

use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// The shipped file, from the root of the workspace.
const SHIPPED: &str = "envoy/weir.yaml";
/// The rate limiter by itself.
const RATELIMIT: &str = "envoy/ratelimit.yaml";
/// The rate limiter with Redis.
const RATELIMIT_REDIS: &str = "envoy/ratelimit-redis.yaml";
/// Short links by themselves.
const SHORTLINK: &str = "envoy/shortlink.yaml";

// What the shipped files say. Each text stands there exactly once.
const GATEWAY_PORT: &str = "port_value: 10000";
const ADMIN_PORT: &str = "port_value: 9901";
const ORIGIN: &str = "{ address: 127.0.0.1, port_value: 8080 }";
const REDIS: &str = "{ address: 127.0.0.1, port_value: 6379 }";
const TOPOLOGY: &str = r#""topology": "single""#;
const KEY_PREFIX: &str = r#""key_prefix": "weir""#;

/// The filter that checks who users are, from the root of the workspace.
const JWT: &str = "envoy/jwt.yaml";
/// Where HTTP filters begin, and how far they are indented.
const FILTERS_BEGIN: &str = "                http_filters:\n";
const FILTER_INDENT: &str = "                  ";

/// The folder that the shipped file's wasm paths name.
const WASM_DIR: &str = "target/weir/";
/// The filters in it. A file names those it needs once each.
const FILTERS: [&str; 5] = [
    "ratelimit-headers.wasm",
    "ratelimit.wasm",
    "redis-bridge.wasm",
    "seckill-gate.wasm",
    "shortlink-redirect.wasm",
];
/// The filters that have files of their own, their configuration, and what stands behind them.
const LIMITER: &str = "                  - name: weir.ratelimit\n";
const LINKS: &str = "                  - name: weir.shortlink_redirect\n";
const FILTER_CONFIG: &str = "value: |\n";
const NEXT_FILTER: &str = "                  - name: ";
/// Where the rate limiter sends what passes.
const SERVICE: &str = "route: { cluster: service }";
/// Where links go on to that the filter lets pass, and where Envoy itself sends them in its place.
const LINKS_ORIGIN: &str = "route: { cluster: weir_origin, prefix_rewrite: /l/, timeout: 5s }";
const REDIRECT: &str = "redirect: { https_redirect: true, host_redirect: target.example, path_redirect: /page, response_code: FOUND }";

/// The last HTTP filter.
const ROUTER: &str = "                  - name: envoy.filters.http.router\n";
/// A filter that holds a request for as many milliseconds as it asks for, with this header.
const HOLD: &str = r#"                  - name: envoy.filters.http.fault
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault
                      delay: { header_delay: {}, percentage: { numerator: 100 } }
"#;
/// How a request asks [`EnvoyConfig::holding`] to hold it, in milliseconds.
pub const HOLD_HEADER: &str = "x-envoy-fault-delay-request";

/// The cluster that fragments bring another one for.
const REDIS_CLUSTER: &str = "    - name: weir_redis_upstream\n";
/// What follows a cluster in a list of them: the next one, or what is said about it.
const NEXT_CLUSTER: [&str; 2] = ["\n    - name: ", "\n    # "];
/// What stands behind the bridge, where Redis is one server, and where it is a cluster.
const TO_ONE: &str = "            - name: envoy.filters.network.tcp_proxy\n";
const TO_NODES: &str = "            - name: envoy.filters.network.redis_proxy\n";
const CLUSTERS: &str = "\n  clusters:\n";
/// The bridge's configuration as it is shipped.
const BRIDGE_CONFIG: &str = r#"'{ "request_bytes_max": 1048576, "replies_bytes_max": 16777216 }'"#;

// What the fragments say.
const REDIS_TLS: &str = "envoy/redis-tls.yaml";
const REDIS_CA: &str = "/etc/weir/redis-ca.pem";
const REDIS_NODES: &str = "envoy/redis-cluster.yaml";
const NODE_PORTS: [u16; 3] = [7001, 7002, 7003];

/// The ports of the shipped file.
pub const SHIPPED_GATEWAY_PORT: u16 = 10_000;
/// The admin port of the shipped file.
pub const SHIPPED_ADMIN_PORT: u16 = 9901;

/// The shipped config with what differs from run to run.
#[derive(Debug, Clone)]
pub struct EnvoyConfig {
    text: String,
    replacements: Vec<Replacement>,
    gateway_port: u16,
    admin_port: u16,
}

#[derive(Debug, Clone)]
struct Replacement {
    from: String,
    to: String,
    count: usize,
}

impl EnvoyConfig {
    /// `envoy/weir.yaml` as it is in the workspace, but with the filters' paths absolute:
    /// the file names them from the workspace's root, and Envoy may run elsewhere.
    pub fn shipped() -> Result<Self> {
        Self::read(SHIPPED)
    }

    /// `envoy/ratelimit.yaml` in the same way, or `envoy/ratelimit-redis.yaml`: but Envoy itself answers
    /// what passes, with 200, in place of a service.
    pub fn ratelimit(with_redis: bool) -> Result<Self> {
        let file = if with_redis {
            RATELIMIT_REDIS
        } else {
            RATELIMIT
        };
        let config = Self::read(file)?;
        Ok(config.set(SERVICE, "direct_response: { status: 200 }".to_owned()))
    }

    /// `envoy/shortlink.yaml` in the same way as the shipped file.
    pub fn shortlink() -> Result<Self> {
        Self::read(SHORTLINK)
    }

    /// With this JSON as the rate limiter's configuration; of [`EnvoyConfig::ratelimit`]'s files only. JSON
    /// is YAML, so it may stand there as it is written.
    pub fn limiter_config(self, json: &str) -> Result<Self> {
        self.filter_config(LIMITER, json)
    }

    /// The same of the filter of [`EnvoyConfig::shortlink`].
    pub fn links_config(self, json: &str) -> Result<Self> {
        self.filter_config(LINKS, json)
    }

    fn filter_config(mut self, filter: &str, json: &str) -> Result<Self> {
        let (start, end) = self.place_of(filter)?;
        let config = self.text[start..end]
            .find(FILTER_CONFIG)
            .with_context(|| format!("{filter:?} has no configuration"))?;
        let quoted = serde_json::to_string(json).context("this is no text")?;
        self.text
            .replace_range(start + config..end, &format!("value: {quoted}\n"));
        Ok(self)
    }

    /// Where an HTTP filter begins and ends.
    fn place_of(&self, filter: &str) -> Result<(usize, usize)> {
        let start = self
            .text
            .find(filter)
            .with_context(|| format!("there is no {filter:?} here"))?;
        let body = start + filter.len();
        let end = self.text[body..]
            .find(NEXT_FILTER)
            .with_context(|| format!("no filter follows {filter:?}"))?;
        Ok((start, body + end))
    }

    /// With the limiter's module that sees responses.
    pub fn ratelimit_headers(self) -> Self {
        let variant = workspace::out_dir().join("ratelimit-headers.wasm");
        let plain = format!("{WASM_DIR}ratelimit.wasm");
        self.set(&plain, variant.display().to_string())
    }

    /// Without the rate limiter, to be compared with; of [`EnvoyConfig::ratelimit`]`(false)` only.
    pub fn without_limiter(self) -> Result<Self> {
        self.without(LIMITER)
    }

    /// Without the filter, but with a route that redirects all that comes, to be compared with; of
    /// [`EnvoyConfig::shortlink`] only.
    pub fn redirecting(self) -> Result<Self> {
        let config = self.without(LINKS)?;
        Ok(config.set(LINKS_ORIGIN, REDIRECT.to_owned()))
    }

    fn without(mut self, filter: &str) -> Result<Self> {
        let (start, end) = self.place_of(filter)?;
        self.text.replace_range(start..end, "");
        self.replacements
            .retain(|known| self.text.contains(&known.from));
        Ok(self)
    }

    /// With a filter before the router that holds a request for as many milliseconds as its header
    /// [`HOLD_HEADER`] says: so it stays under way.
    pub fn holding(self) -> Self {
        self.set(ROUTER, format!("{HOLD}{ROUTER}"))
    }

    fn read(file: &str) -> Result<Self> {
        Ok(Self::of(read(file)?).wasm_dir(&workspace::out_dir()))
    }

    pub(super) fn of(text: String) -> Self {
        Self {
            text,
            replacements: Vec::new(),
            gateway_port: SHIPPED_GATEWAY_PORT,
            admin_port: SHIPPED_ADMIN_PORT,
        }
    }

    /// The port on which the gateway listens.
    pub fn gateway_port(mut self, port: u16) -> Self {
        self.gateway_port = port;
        self.set(GATEWAY_PORT, format!("port_value: {port}"))
    }

    /// The port of Envoy's admin interface.
    pub fn admin_port(mut self, port: u16) -> Self {
        self.admin_port = port;
        self.set(ADMIN_PORT, format!("port_value: {port}"))
    }

    /// Where the origin is.
    pub fn origin(self, address: SocketAddr) -> Self {
        self.set(ORIGIN, socket_address(address))
    }

    /// Where Redis is. A name is resolved here, once: the shipped cluster is a static one.
    pub fn redis(self, host: &str, port: u16) -> Result<Self> {
        let address = (host, port)
            .to_socket_addrs()
            .with_context(|| format!("cannot resolve the Redis host {host}"))?
            .min_by_key(SocketAddr::is_ipv6)
            .with_context(|| format!("the Redis host {host} has no address"))?;
        Ok(self.set(REDIS, socket_address(address)))
    }

    /// Redis over TLS and with the password in `WEIR_REDIS_PASSWORD`, as in
    /// `envoy/redis-tls.yaml`; `ca` is the authority, in PEM. Where it is, [`EnvoyConfig::redis`]
    /// says.
    pub fn redis_tls(self, ca: &Path) -> Result<Self> {
        let fragment = read(REDIS_TLS)?;
        let auth = quoted_line(&fragment).with_context(|| format!("{REDIS_TLS} has no auth"))?;
        let config = self
            .set(BRIDGE_CONFIG, auth.to_owned())
            .with_redis_of(&fragment)?;
        Ok(config.set(REDIS_CA, ca.display().to_string()))
    }

    /// A Redis Cluster of three on these ports of 127.0.0.1, as in `envoy/redis-cluster.yaml`.
    /// Instead of [`EnvoyConfig::redis`].
    pub fn redis_cluster(self, ports: [u16; 3]) -> Result<Self> {
        let config = self.redis_nodes(ports)?;
        Ok(config.set(TOPOLOGY, r#""topology": "cluster""#.to_owned()))
    }

    /// The same for a filter whose configuration is given, and says so itself.
    pub fn redis_nodes(self, ports: [u16; 3]) -> Result<Self> {
        let fragment = read(REDIS_NODES)?;
        let mut config = self.with_proxy_of(&fragment)?.with_redis_of(&fragment)?;
        for (shipped, port) in NODE_PORTS.iter().zip(ports) {
            let shipped = format!("port_value: {shipped} }}");
            config = config.set(&shipped, format!("port_value: {port} }}"));
        }
        Ok(config)
    }

    /// With the Redis cluster of another shipped file in the place of its own, as a person is
    /// told to put it there.
    fn with_redis_of(mut self, fragment: &str) -> Result<Self> {
        let new = redis_cluster_of(fragment).context("there is no cluster to take")?;
        let new = format!("{}\n", fragment[new].trim_end());
        let old = redis_cluster_of(&self.text)
            .with_context(|| format!("{SHIPPED} has no cluster {REDIS_CLUSTER:?}"))?;
        self.text.replace_range(old, &new);
        Ok(self)
    }

    /// The same of what stands behind the bridge.
    fn with_proxy_of(mut self, fragment: &str) -> Result<Self> {
        let new = part(fragment, TO_NODES).context("there is no redis_proxy to take")?;
        let old = part(&self.text, TO_ONE).context("there is no tcp_proxy behind the bridge")?;
        self.text.replace_range(old, &fragment[new]);
        Ok(self)
    }

    /// The folder that holds the filters.
    pub fn wasm_dir(mut self, dir: &Path) -> Self {
        for filter in FILTERS {
            let (named, path): (_, PathBuf) = (format!("{WASM_DIR}{filter}"), dir.join(filter));
            if self.text.contains(&named) {
                self = self.set(&named, path.display().to_string());
            }
        }
        self
    }

    /// With `envoy/jwt.yaml` in front of the gate: users are who a token says.
    pub fn jwt(self) -> Result<Self> {
        let indented: String = read(JWT)?
            .lines()
            .map(|line| format!("{FILTER_INDENT}{line}\n"))
            .collect();
        let to = format!("{FILTERS_BEGIN}{indented}");
        Ok(self.set(FILTERS_BEGIN, to))
    }

    /// What every key in Redis starts with.
    pub fn key_prefix(self, prefix: &str) -> Self {
        self.set(KEY_PREFIX, format!(r#""key_prefix": "{prefix}""#))
    }

    /// Any other text, which must occur exactly `count` times in the shipped file.
    pub fn replace(mut self, from: &str, to: &str, count: usize) -> Self {
        self.replacements.push(Replacement {
            from: from.to_owned(),
            to: to.to_owned(),
            count,
        });
        self
    }

    /// The last word on a text counts: setting a port twice is not an error.
    fn set(mut self, from: &str, to: String) -> Self {
        self.replacements.retain(|known| known.from != from);
        self.replace(from, &to, 1)
    }

    /// The port on which the gateway will listen.
    pub fn chosen_gateway_port(&self) -> u16 {
        self.gateway_port
    }

    /// The port of Envoy's admin interface.
    pub fn chosen_admin_port(&self) -> u16 {
        self.admin_port
    }

    /// The text with everything replaced.
    ///
    /// All texts are looked for in the shipped file, and none in what another put in, so
    /// the order of calls doesn't matter.
    pub fn render(&self) -> Result<String> {
        let mut places = Vec::new();
        for replacement in &self.replacements {
            let found: Vec<_> = self.text.match_indices(&replacement.from).collect();
            ensure!(
                found.len() == replacement.count,
                "the shipped file has {:?} {} times where {} are expected; the file was edited without \
                 crates/stack/src/envoy/config.rs, or a test without the file",
                replacement.from,
                found.len(),
                replacement.count
            );
            places.extend(found.iter().map(|(start, _)| (*start, replacement)));
        }
        places.sort_by_key(|(start, _)| *start);
        splice(&self.text, &places)
    }
}

/// A shipped file's text.
fn read(file: &str) -> Result<String> {
    let path = workspace::root().join(file);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The quoted value that a comment of a fragment tells to take: `#      '…'`.
fn quoted_line(fragment: &str) -> Option<&str> {
    let comments = fragment.lines().filter_map(|line| line.strip_prefix('#'));
    comments
        .map(str::trim)
        .find(|line| line.starts_with('\'') && line.ends_with('\''))
}

/// Where the filter that begins with `begin` stands in a file: up to the clusters.
fn part(text: &str, begin: &str) -> Option<std::ops::Range<usize>> {
    let start = text.find(begin)?;
    let end = start + text[start..].find(CLUSTERS)?;
    Some(start..end)
}

/// Where the cluster that the bridge goes to stands in a file.
fn redis_cluster_of(text: &str) -> Option<std::ops::Range<usize>> {
    let start = text.find(REDIS_CLUSTER)?;
    let body = start + REDIS_CLUSTER.len();
    let next = NEXT_CLUSTER
        .iter()
        .filter_map(|next| text[body..].find(next))
        .min();
    // Up to the line break in front of what follows.
    let end = next.map_or(text.len(), |next| body + next + 1);
    Some(start..end)
}

fn splice(text: &str, places: &[(usize, &Replacement)]) -> Result<String> {
    let mut rendered = String::with_capacity(text.len());
    let mut end = 0;
    for (start, replacement) in places {
        if *start < end {
            bail!(
                "the replacement of {:?} overlaps with another",
                replacement.from
            );
        }
        rendered.push_str(&text[end..*start]);
        rendered.push_str(&replacement.to);
        end = start + replacement.from.len();
    }
    rendered.push_str(&text[end..]);
    Ok(rendered)
}

fn socket_address(address: SocketAddr) -> String {
    let (ip, port) = (address.ip(), address.port());
    // Quoted, because an IPv6 address is not a plain YAML word.
    format!(r#"{{ address: "{ip}", port_value: {port} }}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        admin: { address: 127.0.0.1, port_value: 9901 }
        listener: { address: 0.0.0.0, port_value: 10000 }
        origin: { address: 127.0.0.1, port_value: 8080 }
        redis: { address: 127.0.0.1, port_value: 6379 }
        wasm: [target/weir/redis-bridge.wasm, target/weir/seckill-gate.wasm]
        config: {"key_prefix": "weir"}"#;

    fn config() -> EnvoyConfig {
        EnvoyConfig::of(TEXT.to_owned())
    }

    #[test]
    fn everything_named_is_replaced_and_nothing_else() {
        let rendered = config()
            .gateway_port(9901)
            .admin_port(10000)
            .origin("127.0.0.1:1".parse().unwrap())
            .redis("127.0.0.1", 2)
            .unwrap()
            .wasm_dir(Path::new("/w"))
            .key_prefix("t1")
            .render()
            .unwrap();
        let expected = r#"
        admin: { address: 127.0.0.1, port_value: 10000 }
        listener: { address: 0.0.0.0, port_value: 9901 }
        origin: { address: "127.0.0.1", port_value: 1 }
        redis: { address: "127.0.0.1", port_value: 2 }
        wasm: [/w/redis-bridge.wasm, /w/seckill-gate.wasm]
        config: {"key_prefix": "t1"}"#;
        assert_eq!(rendered, expected);
    }

    #[test]
    fn a_text_that_is_gone_or_doubled_is_an_error_that_names_it() {
        for (text, count) in [("port_value: 7777", 1), ("127.0.0.1", 2)] {
            let error = config()
                .replace(text, "x", count)
                .render()
                .unwrap_err()
                .to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn replacements_that_overlap_are_an_error() {
        let overlapping = config()
            .gateway_port(1)
            .replace("0.0.0.0, port_value: 10000", "", 1);
        assert!(overlapping.render().is_err());
    }

    #[test]
    fn the_limiter_takes_another_configuration_or_goes() {
        let json = r#"{ "rules": [] }"#;
        for with_redis in [false, true] {
            let config =
                EnvoyConfig::ratelimit(with_redis).and_then(|config| config.limiter_config(json));
            let rendered = config.and_then(|config| config.render()).unwrap();
            assert!(
                rendered.contains(r#"value: "{ \"rules\": [] }""#),
                "{rendered}"
            );
            assert!(!rendered.contains(r#""name": "per-user""#));
        }
        let bare = EnvoyConfig::ratelimit(false).and_then(EnvoyConfig::without_limiter);
        let rendered = bare.and_then(|config| config.render()).unwrap();
        assert!(!rendered.contains("wasm.v3") && rendered.contains("filters.http.router"));
        assert!(EnvoyConfig::shipped().unwrap().without_limiter().is_err());
    }

    #[test]
    fn links_take_another_configuration_or_leave_it_to_envoy() {
        let rendered = EnvoyConfig::shortlink()
            .and_then(|config| config.links_config(r#"{ "redis": {} }"#))
            .and_then(|config| config.origin("127.0.0.1:7".parse()?).redis("127.0.0.1", 8))
            .and_then(|config| config.gateway_port(1).admin_port(2).render())
            .unwrap();
        assert!(
            rendered.contains(r#"value: "{ \"redis\": {} }""#),
            "{rendered}"
        );
        assert!(!rendered.contains("entries_max"));
        let bare = EnvoyConfig::shortlink().and_then(EnvoyConfig::redirecting);
        let rendered = bare.and_then(|config| config.render()).unwrap();
        assert!(
            !rendered.contains("shortlink-redirect.wasm") && rendered.contains("path_redirect")
        );
    }

    #[test]
    fn the_redis_of_a_fragment_takes_the_place_of_the_shipped_one() {
        let rendered = EnvoyConfig::shipped()
            .and_then(|config| config.redis_tls(Path::new("/run/ca.pem")))
            .and_then(|config| config.redis("127.0.0.1", 7))
            .and_then(|config| config.render())
            .unwrap();
        assert_eq!(rendered.matches(REDIS_CLUSTER).count(), 1);
        assert_eq!(rendered.matches("\n    - name: origin\n").count(), 1);
        assert!(rendered.contains("/run/ca.pem") && rendered.contains("UpstreamTlsContext"));
        let rendered = EnvoyConfig::shipped()
            .and_then(|config| config.redis_cluster([1, 2, 3]))
            .and_then(|config| config.render())
            .unwrap();
        assert_eq!(rendered.matches(REDIS_CLUSTER).count(), 1);
        assert!(rendered.contains("envoy.clusters.redis") && !rendered.contains("700"));
        assert!(rendered.contains(r#""topology": "cluster""#));
    }

    #[test]
    fn a_port_set_twice_has_its_last_value() {
        let rendered = config().admin_port(1).admin_port(2).render().unwrap();
        assert!(rendered.contains("port_value: 2 }"), "{rendered}");
    }
}
