//! Matches order requests and their sales.

use alloc::string::String;

use weir_base::bytes::{is_same, strip_prefix};
use weir_base::method::is_method;

/// The placeholder of the sale's id in a path.
const SALE_SEGMENT: &str = "{sale}";

/// A kind of request: a method, and a path with the sale's id as one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    method: String,
    before: String,
    after: String,
    /// The name of the required host route.
    via: Option<String>,
}

/// The kind of a request, with its sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind<'p> {
    /// An order.
    Buy(&'p [u8]),
    /// A request for an order token.
    Checkout(&'p [u8]),
    /// A request for the sale's status.
    Status(&'p [u8]),
    /// An order outside of sales.
    NormalOrder,
}

/// Why a route is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The method is not an HTTP method.
    #[error("must be an HTTP method in capitals, such as POST")]
    Method,
    /// The path does not start with `/`, does not contain `{sale}` exactly once as a whole segment, or has a query or a
    /// fragment.
    #[error("must start with /, have {{sale}} once as a whole segment, and have no ? or #")]
    Path,
}

impl RouteError {
    /// The invalid field of the route's configuration.
    pub fn field(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Path => "path",
        }
    }
}

impl Route {
    /// The route of `method` and `path`.
    ///
    /// # Errors
    /// When one of the two is invalid.
    pub fn new(method: &str, path: &str) -> Result<Self, RouteError> {
        if !is_method(method) {
            return Err(RouteError::Method);
        }
        let (before, after) = path.split_once(SALE_SEGMENT).ok_or(RouteError::Path)?;
        let is_segment = before.ends_with('/') && (after.is_empty() || after.starts_with('/'));
        if !before.starts_with('/')
            || !is_segment
            || after.contains(SALE_SEGMENT)
            || path.contains(['?', '#'])
        {
            return Err(RouteError::Path);
        }
        Ok(Self {
            method: method.into(),
            before: before.into(),
            after: after.into(),
            via: None,
        })
    }

    /// The method and the path, as configured.
    pub fn pattern(&self) -> String {
        [&self.method, " ", &self.path_of(SALE_SEGMENT)].concat()
    }

    /// Requires the host route with this name.
    #[must_use]
    pub fn via(mut self, name: Option<&str>) -> Self {
        self.via = name.map(Into::into);
        self
    }

    /// The name of the required host route, if configured.
    pub fn must_go_via(&self) -> Option<&str> {
        self.via.as_deref()
    }

    /// The path of such a request for this sale.
    pub fn path_of(&self, sale: &str) -> String {
        [&self.before, sale, &self.after].concat()
    }

    /// The sale in `path`, if the request matches this route. The query is ignored.
    pub fn sale<'p>(&self, method: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
        if !is_same(method, self.method.as_bytes()) {
            return None;
        }
        let named = strip_prefix(path, self.before.as_bytes())?;
        let ends = |byte: &u8| matches!(byte, b'/' | b'?');
        let len = named.iter().position(ends).unwrap_or(named.len());
        let (sale, behind) = named.split_at_checked(len)?;
        let query = strip_prefix(behind, self.after.as_bytes())?;
        let is_whole = matches!(query.first(), None | Some(b'?'));
        (is_whole && !sale.is_empty()).then_some(sale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sale_id_is_the_path_segment_at_its_placeholder() {
        let route = Route::new("POST", "/sales/{sale}/orders").unwrap();
        let sale = |method: &str, path: &'static [u8]| route.sale(method.as_bytes(), path);
        assert_eq!(sale("POST", b"/sales/s-1/orders"), Some(b"s-1".as_slice()));
        assert_eq!(
            sale("POST", b"/sales/s-1/orders?a=/b"),
            Some(b"s-1".as_slice())
        );
        assert_eq!(
            sale("POST", b"/sales/\xff/orders"),
            Some(b"\xff".as_slice())
        );
        for other in [
            b"/sales//orders".as_slice(),
            b"/sales/a/b/orders",
            b"/sales/orders",
            b"/",
            b"",
            b"/sales/a/orders/",
        ] {
            assert_eq!(sale("POST", other), None);
        }
        assert_eq!(sale("GET", b"/sales/s-1/orders"), None);
        assert_eq!(sale("", b"/sales/s-1/orders"), None);
    }

    #[test]
    fn sale_id_may_be_the_last_path_segment() {
        let route = Route::new("PUT", "/buy/{sale}").unwrap();
        assert_eq!(route.sale(b"PUT", b"/buy/x"), Some(b"x".as_slice()));
        assert_eq!(route.sale(b"PUT", b"/buy/x/y"), None);
        assert_eq!(route.path_of("x"), "/buy/x");
    }

    #[test]
    fn invalid_sale_route_is_refused() {
        for path in [
            "",
            "/sales",
            "{sale}",
            "/a{sale}",
            "/{sale}b",
            "/{sale}/{sale}",
            "a/{sale}",
            "/a?b/{sale}",
            "/{sale}/#a",
        ] {
            assert_eq!(Route::new("POST", path), Err(RouteError::Path), "{path}");
        }
        for method in ["post", "POSTT", ""] {
            assert_eq!(Route::new(method, "/{sale}"), Err(RouteError::Method));
        }
    }
}
