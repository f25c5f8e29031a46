//! Resolves the route of a request: Envoy's rules, as far as plain client requests need them.

use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use serde_json::Value;

use crate::tree::{at, field, is_set, list, text};

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

/// The outcome of routing.
#[derive(Debug)]
pub(crate) enum RouteOutcome<'a> {
    /// It goes to one of these clusters. Empty: the request itself selects the cluster.
    Clusters {
        names: Vec<&'a str>,
        path: String,
        route: &'a Value,
    },
    /// Envoy answers.
    Answered,
    /// No route matches.
    Nowhere,
}

/// The route of `request` on this virtual host.
pub(crate) fn resolve<'a>(host: &'a Value, request: Request<'_>) -> RouteOutcome<'a> {
    let mut routes = list(host, "routes").iter();
    let Some(route) = routes.find(|route| fits(route, request)) else {
        return RouteOutcome::Nowhere;
    };
    let Some(action) = field(route, "route") else {
        return RouteOutcome::Answered;
    };
    RouteOutcome::Clusters {
        names: clusters(action),
        path: rewritten(route, action, request.path),
        route,
    }
}

fn clusters(action: &Value) -> Vec<&str> {
    let weighted = list(action, "weighted_clusters.clusters").iter();
    let weighted = weighted.filter_map(|cluster| text(cluster, "name"));
    text(action, "cluster")
        .into_iter()
        .chain(weighted)
        .collect()
}

fn fits(route: &Value, request: Request<'_>) -> bool {
    let Some(rule) = field(route, "match") else {
        return false;
    };
    let asks_for_more = !list(rule, "query_parameters").is_empty()
        || !list(rule, "dynamic_metadata").is_empty()
        || field(rule, "grpc").is_some();
    let mut headers = list(rule, "headers").iter();
    !asks_for_more
        && path_fits(rule, request.path)
        && headers.all(|rule| header_fits(rule, request))
}

fn path_fits(rule: &Value, path: &str) -> bool {
    let is_folded = at(rule, "case_sensitive") == Some(&Value::Bool(false));
    let folded = |text: &str| match is_folded {
        true => text.to_ascii_lowercase(),
        false => text.to_owned(),
    };
    let path = folded(path);
    if let Some(prefix) = text(rule, "prefix") {
        return path.starts_with(&folded(prefix));
    }
    if let Some(exact) = text(rule, "path") {
        return path == folded(exact);
    }
    if let Some(prefix) = text(rule, "path_separated_prefix") {
        let rest = path.strip_prefix(&folded(prefix));
        return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    }
    text(rule, "safe_regex.regex").is_some_and(|regex| is_match(regex, &path))
}

/// Whether all of `text` matches.
fn is_match(regex: &str, text: &str) -> bool {
    compiled(&format!("^(?:{regex})$")).is_some_and(|regex| regex.is_match(text))
}

/// Compiles an expression like Envoy: `\w` is an ASCII letter.
pub(crate) fn compiled(regex: &str) -> Option<Regex> {
    let ascii = syntax::Config::new().unicode(false).utf8(false);
    Regex::builder().syntax(ascii).build(regex).ok()
}

/// Whether a plain request has the header of `rule`: method and host are known, and it has no other headers.
fn header_fits(rule: &Value, request: Request<'_>) -> bool {
    let fits = match text(rule, "name").map(str::to_ascii_lowercase).as_deref() {
        Some(":method") => value_fits(rule, request.method),
        Some(":path") => value_fits(rule, request.path),
        Some(":authority" | "host" | ":scheme") => true,
        _ => false,
    };
    fits != is_set(rule, "invert_match")
}

fn value_fits(rule: &Value, value: &str) -> bool {
    let rule = field(rule, "string_match").unwrap_or(rule);
    if let Some(exact) = text(rule, "exact").or_else(|| text(rule, "exact_match")) {
        return value == exact;
    }
    if let Some(prefix) = text(rule, "prefix").or_else(|| text(rule, "prefix_match")) {
        return value.starts_with(prefix);
    }
    let regex = text(rule, "safe_regex.regex").or_else(|| text(rule, "safe_regex_match.regex"));
    // A rule that only requires the header to be present.
    regex.is_none_or(|regex| is_match(regex, value))
}

fn rewritten(route: &Value, action: &Value, path: &str) -> String {
    if let Some(new) = text(action, "prefix_rewrite") {
        let old = ["match.prefix", "match.path", "match.path_separated_prefix"]
            .iter()
            .find_map(|at| text(route, at));
        let rest = old
            .and_then(|old| path.get(old.len()..))
            .unwrap_or_default();
        return format!("{new}{rest}");
    }
    if let Some(pattern) = text(action, "regex_rewrite.pattern.regex") {
        let new = text(action, "regex_rewrite.substitution").unwrap_or_default();
        return replaced(pattern, new, path);
    }
    path.to_owned()
}

/// Replaces all matches by `new`, in which `\1` is the first group.
fn replaced(pattern: &str, new: &str, path: &str) -> String {
    let Some(regex) = compiled(pattern) else {
        return path.to_owned();
    };
    let mut written = String::new();
    let mut end = 0;
    for captures in regex.captures_iter(path) {
        let Some(whole) = captures.get_match() else {
            continue;
        };
        written.push_str(path.get(end..whole.start()).unwrap_or_default());
        let mut letters = new.chars();
        while let Some(letter) = letters.next() {
            let group = match letter {
                '\\' => letters.next().and_then(|digit| digit.to_digit(10)),
                _ => None,
            };
            match group.and_then(|group| captures.get_group(group as usize)) {
                Some(span) => written.push_str(path.get(span.range()).unwrap_or_default()),
                None => written.push(letter),
            }
        }
        end = whole.end();
    }
    written.push_str(path.get(end..).unwrap_or_default());
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolved(routes: Value, method: &str, path: &str) -> String {
        let host = json!({ "routes": routes });
        match resolve(&host, Request { method, path }) {
            RouteOutcome::Clusters { names, path, .. } => format!("{} {path}", names.join(",")),
            RouteOutcome::Answered => "answered".into(),
            RouteOutcome::Nowhere => "nowhere".into(),
        }
    }

    #[test]
    fn first_matching_route_is_used() {
        let routes = json!([
            { "match": { "path": "/a" }, "direct_response": { "status": 200 } },
            { "match": { "safe_regex": { "regex": "/s/[^/]+/o" }, "headers": [
                { "name": ":method", "string_match": { "exact": "POST" } }] },
              "route": { "cluster": "c", "regex_rewrite": { "pattern": { "regex": "^/s/([^/]+)/o$" }, "substitution": "/o/\\1" } } },
            { "match": { "path_separated_prefix": "/h" }, "route": { "weighted_clusters": { "clusters": [{ "name": "x" }, { "name": "y" }] } } },
            { "match": { "prefix": "/l", "headers": [{ "name": "x-beta", "present_match": true }] }, "route": { "cluster": "beta" } },
            { "match": { "prefix": "/" , "query_parameters": [{ "name": "q" }] }, "route": { "cluster": "query" } },
            { "match": { "prefix": "/Big", "case_sensitive": false }, "route": { "cluster": "big", "prefix_rewrite": "/small" } },
        ]);
        for (method, path, expected) in [
            ("GET", "/a", "answered"),
            ("POST", "/s/1/o", "c /o/1"),
            ("GET", "/s/1/o", "nowhere"),
            ("POST", "/s/1/o/2", "nowhere"),
            ("GET", "/h", "x,y /h"),
            ("GET", "/h/1", "x,y /h/1"),
            ("GET", "/hi", "nowhere"),
            ("GET", "/l/1", "nowhere"),
            ("GET", "/bIG/1", "big /small/1"),
        ] {
            assert_eq!(
                resolved(routes.clone(), method, path),
                expected,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn inverted_and_legacy_header_matches_are_supported() {
        let rule = |rule: Value| json!([{ "match": { "prefix": "/", "headers": [rule] }, "route": { "cluster": "c" } }]);
        let post = json!({ "name": ":method", "exact_match": "POST" });
        assert_eq!(resolved(rule(post), "POST", "/"), "c /");
        let absent = json!({ "name": "x-beta", "present_match": true, "invert_match": true });
        assert_eq!(resolved(rule(absent), "GET", "/"), "c /");
        let method =
            json!({ "name": ":method", "string_match": { "safe_regex": { "regex": "GET|HEAD" } } });
        assert_eq!(resolved(rule(method.clone()), "HEAD", "/"), "c /");
        assert_eq!(resolved(rule(method), "PUT", "/"), "nowhere");
    }
}
