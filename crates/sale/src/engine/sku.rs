//! Normal orders of what a sale sells: they would go past its rules.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use percent_encoding::percent_decode;
use weir_engine::Request;

use crate::sale::{Catalogue, Phase, Sale, SaleState};

/// The place of the SKU in a path.
const SKU_SEGMENT: &str = "{sku}";

/// A kind of normal order: a method, a path, and where such a request names what it buys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkuRoute {
    method: String,
    /// The path, or what stands before the SKU.
    before: String,
    /// What stands behind the SKU in the path; `None` if it is not there.
    after: Option<String>,
    source: SkuSource,
}

/// Where a request names its SKU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkuSource {
    /// In its path, as one segment.
    Path,
    /// In this parameter of its query.
    Query(String),
    /// In this header.
    Header(String),
}

/// Why such a route was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkuRouteError {
    /// The method is no upper-case word.
    #[error("must be an HTTP method in upper case, such as POST")]
    Method,
    /// The path does not start with `/`, has a query or a fragment, or holds `{sku}` otherwise than as one whole segment.
    #[error("must start with /, hold {{sku}} at most once and as a whole segment, and no ? or #")]
    Path,
    /// The SKU is named twice or not at all.
    #[error(
        "say once where the SKU is: {{sku}} in the path, or `sku` with `query` or with `header`"
    )]
    Source,
}

impl SkuRouteError {
    /// The field of the route's configuration that is wrong.
    pub fn field(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Path => "path",
            Self::Source => "sku",
        }
    }
}

impl SkuRoute {
    /// The route of `method` and `path`; `source` unless the path names the SKU.
    ///
    /// # Errors
    /// Says which of them is wrong.
    pub fn new(method: &str, path: &str, source: Option<SkuSource>) -> Result<Self, SkuRouteError> {
        if method.is_empty() || !method.bytes().all(|b| b.is_ascii_uppercase()) {
            return Err(SkuRouteError::Method);
        }
        if !path.starts_with('/') || path.contains(['?', '#']) {
            return Err(SkuRouteError::Path);
        }
        let (before, after) = match path.split_once(SKU_SEGMENT) {
            None => (path, None),
            Some((before, after)) => (before, Some(after)),
        };
        let is_segment = |after: &str| {
            before.ends_with('/')
                && (after.is_empty() || after.starts_with('/'))
                && !after.contains(SKU_SEGMENT)
        };
        if !after.is_none_or(is_segment) {
            return Err(SkuRouteError::Path);
        }
        let source = match (after, source) {
            (Some(_), None) => SkuSource::Path,
            (None, Some(source)) => source,
            _ => return Err(SkuRouteError::Source),
        };
        Ok(Self {
            method: method.into(),
            before: before.into(),
            after: after.map(Into::into),
            source,
        })
    }

    /// Whether a request for `path` is one of this route.
    pub(crate) fn matches(&self, method: &[u8], path: &[u8]) -> bool {
        method == self.method.as_bytes() && self.segment(split(path).0).is_some()
    }

    /// What stands in the place of the SKU in a path of this route; nothing if it has no such place.
    fn segment<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let behind = path.strip_prefix(self.before.as_bytes())?;
        match &self.after {
            None => behind.is_empty().then_some(behind),
            Some(after) => {
                let segment = behind.strip_suffix(after.as_bytes())?;
                let is_one = !segment.is_empty() && !segment.contains(&b'/');
                is_one.then_some(segment)
            }
        }
    }

    /// The SKU that a request of this route names, if it is one and names one.
    fn sku<'r>(
        &self,
        method: &[u8],
        path: &'r [u8],
        request: &'r dyn Request,
    ) -> Option<Cow<'r, [u8]>> {
        if !self.matches(method, path) {
            return None;
        }
        let (path, query) = split(path);
        match &self.source {
            SkuSource::Path => self.segment(path).map(|sku| percent_decode(sku).into()),
            SkuSource::Header(name) => request.headers().get(name),
            SkuSource::Query(name) => parameter(query, name.as_bytes()),
        }
    }
}

/// A path and its query.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = path.splitn(2, |&byte| byte == b'?');
    let path = parts.next().unwrap_or_default();
    (path, parts.next().unwrap_or_default())
}

/// The first parameter of this name in a query, decoded.
fn parameter<'q>(query: &'q [u8], name: &[u8]) -> Option<Cow<'q, [u8]>> {
    let mut pairs = query.split(|&byte| byte == b'&');
    let value = pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"="))?;
    let is_encoded = value.iter().any(|byte| matches!(byte, b'%' | b'+'));
    if !is_encoded {
        return Some(Cow::Borrowed(value));
    }
    let spaced = value.iter().map(|&byte| match byte {
        b'+' => b' ',
        byte => byte,
    });
    let spaced: Vec<u8> = spaced.collect();
    Some(Cow::Owned(percent_decode(&spaced).collect()))
}

/// The sale whose rules a normal order would go past: it sells what the request names, and has not ended.
pub(crate) fn sale_of<'c>(
    routes: &[SkuRoute],
    catalogue: &'c Catalogue,
    path: &[u8],
    request: &dyn Request,
) -> Option<&'c Sale> {
    let method = request.headers().get(":method")?;
    let mut routes = routes.iter();
    let sku = routes.find_map(|route| route.sku(&method, path, request))?;
    let now_ms = request.now_ms();
    let is_on = |sale: &Sale| {
        catalogue.switch_of(sale) < SaleState::Drain && sale.phase(now_ms) != Phase::Ended
    };
    let mut sales = catalogue.sales.iter();
    sales.find(|sale| {
        let sells = sale
            .sku
            .as_deref()
            .is_some_and(|known| known.as_bytes() == &*sku);
        sells && is_on(sale)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::tests::sale;
    use weir_engine::Headers;
    use weir_engine::event::PlainRequest;

    fn request(headers: &[(&str, &str)], now_ms: u64) -> PlainRequest {
        PlainRequest {
            headers: Headers::new(headers),
            peer_address: Vec::new(),
            now_ms,
        }
    }

    fn catalogue() -> Catalogue {
        let of = |id: &str, sku: &str| Sale {
            sku: Some(sku.into()),
            ..sale(id)
        };
        let sales = [of("a", "red shoes"), of("b", "hat"), sale("c")];
        Catalogue {
            sales: sales.into(),
            ..Catalogue::default()
        }
    }

    fn found(
        route: &SkuRoute,
        path: &str,
        headers: &[(&str, &str)],
        now_ms: u64,
    ) -> Option<String> {
        let headers = [headers, &[(":method", "POST")]].concat();
        let request = request(&headers, now_ms);
        let routes = core::slice::from_ref(route);
        let catalogue = catalogue();
        let found = sale_of(routes, &catalogue, path.as_bytes(), &request);
        found.map(|sale| sale.id.as_str().into())
    }

    #[test]
    fn sku_is_found_in_path_query_and_header() {
        let route = |path, source| SkuRoute::new("POST", path, source).unwrap();
        let by_path = route("/buy/{sku}/now", None);
        let by_query = route("/orders", Some(SkuSource::Query("sku".into())));
        let by_header = route("/orders", Some(SkuSource::Header("x-sku".into())));
        let at = |route: &SkuRoute, path: &str| found(route, path, &[("x-sku", "hat")], 1_500);
        assert_eq!(at(&by_path, "/buy/red%20shoes/now?x").as_deref(), Some("a"));
        assert_eq!(at(&by_path, "/buy/hat/later"), None);
        assert_eq!(at(&by_path, "/buy/a/hat/now"), None);
        assert_eq!(
            at(&by_query, "/orders?x=1&sku=red+shoes").as_deref(),
            Some("a")
        );
        assert_eq!(at(&by_query, "/orders?sku=hat").as_deref(), Some("b"));
        for other in [
            "/orders",
            "/orders?sku=",
            "/orders?skus=hat",
            "/orders/1?sku=hat",
        ] {
            assert_eq!(at(&by_query, other), None, "{other}");
        }
        assert_eq!(at(&by_header, "/orders").as_deref(), Some("b"));
    }

    #[test]
    fn sale_counts_from_its_creation_to_its_end() {
        let route = SkuRoute::new("POST", "/o", Some(SkuSource::Query("sku".into()))).unwrap();
        for (now_ms, counts) in [(0, true), (1_999, true), (2_000, false)] {
            assert_eq!(
                found(&route, "/o?sku=hat", &[], now_ms).is_some(),
                counts,
                "{now_ms}"
            );
        }
    }

    #[test]
    fn senseless_route_is_refused() {
        let query = || Some(SkuSource::Query("sku".into()));
        let error = |method, path, source| SkuRoute::new(method, path, source).unwrap_err();
        assert_eq!(error("post", "/o", query()), SkuRouteError::Method);
        for path in ["o", "/o?a", "/o/x{sku}", "/{sku}/{sku}"] {
            assert_eq!(error("POST", path, None), SkuRouteError::Path, "{path}");
        }
        assert_eq!(error("POST", "/o", None), SkuRouteError::Source);
        assert_eq!(error("POST", "/{sku}", query()), SkuRouteError::Source);
    }
}
