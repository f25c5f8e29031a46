//! HTTP routes between gateways and the origin, which both must spell alike.

use alloc::format;
use alloc::string::String;

/// Where the origin answers a short link that Redis does not know; the link's code follows.
///
/// `prefix_rewrite` in `envoy/shortlink.yaml` has it, too.
pub const LINK_LOOKUP: &str = "/l/";

/// The path at which a gateway asks the origin for the link that a client asked for at `path`.
pub fn link_lookup(path: &str) -> String {
    let code = path.strip_prefix('/').unwrap_or(path);
    format!("{LINK_LOOKUP}{code}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_rewrites_to_the_route_that_filters_ask_at() {
        let yaml = include_str!("../../../envoy/shortlink.yaml");
        let rewrites: alloc::vec::Vec<&str> = yaml
            .split("prefix_rewrite: ")
            .skip(1)
            .filter_map(|rest| rest.split([',', ' ', '}', '\n']).next())
            .collect();
        assert_eq!(rewrites, [LINK_LOOKUP]);
        assert_eq!(link_lookup("/abc"), "/l/abc");
    }
}
