//! Routes of requests to buy.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is what the fuzzer looks for"
)]

use weir_base::method::is_method;
use weir_sale::engine::route::{Route, RouteError};

/// [`Route`] of four lines: a route's method and path, a request's method and path. Checks that the found sale is one
/// whole path segment at its position, and that a request created from the route finds its sale.
pub fn route(data: &[u8]) {
    let mut lines = data.split(|&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (Ok(method), Ok(path)) = (std::str::from_utf8(line()), std::str::from_utf8(line())) else {
        return;
    };
    let (request_method, request_path) = (line(), line());
    let route = match Route::new(method, path) {
        Ok(route) => route,
        Err(refusal) => {
            assert_eq!(refusal == RouteError::Method, !is_method(method));
            assert!(refusal == RouteError::Method || !is_path(path));
            return;
        }
    };
    assert!(is_method(method) && is_path(path));
    let (before, after) = path.split_once("{sale}").expect("checked");

    if let Some(sale) = route.sale(request_method, request_path) {
        assert_eq!(request_method, method.as_bytes());
        assert!(!sale.is_empty() && !sale.iter().any(|byte| b"/?".contains(byte)));
        let rebuilt = [before.as_bytes(), sale, after.as_bytes()].concat();
        let query = request_path.strip_prefix(rebuilt.as_slice());
        assert!(query.is_some_and(|query| query.is_empty() || query[0] == b'?'));
    }

    for sale in [b"s-1".as_slice(), b"\xff", b"{sale}", b"."] {
        let request = [before.as_bytes(), sale, after.as_bytes()].concat();
        let found = route.sale(method.as_bytes(), &request);
        assert_eq!(found, Some(sale));
        let with_query = [request.as_slice(), b"?a=/b?c"].concat();
        let found = route.sale(method.as_bytes(), &with_query);
        assert_eq!(found, Some(sale));
        assert_eq!(route.sale(b"", &request), None);
    }
    for none in ["", "a/b", "?a"] {
        let request = [before, none, after].concat();
        assert_eq!(route.sale(method.as_bytes(), request.as_bytes()), None);
    }
}

/// Whether the path starts with `/`, and exactly one of its segments is `{sale}`, which no other segment contains.
fn is_path(path: &str) -> bool {
    let mut segments = path.split('/').skip(1);
    path.starts_with('/')
        && !path.contains(['?', '#'])
        && segments.by_ref().filter(|s| *s == "{sale}").count() == 1
        && path.matches("{sale}").count() == 1
}
