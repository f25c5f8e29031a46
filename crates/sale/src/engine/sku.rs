//! Normal orders for the SKU of a sale, which would bypass the sale's rules.

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use percent_encoding::percent_decode;
use weir_base::method::is_method;
use weir_engine::Request;

use crate::sale::{Catalogue, Phase, Sale, SaleState};

/// The placeholder of the SKU in a path.
const SKU_SEGMENT: &str = "{sku}";

/// A route of normal orders: its method, its path, and the source of the SKU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkuRoute {
    method: String,
    /// The path, or its part before the SKU.
    before: String,
    /// The path's part after the SKU; `None` if the path does not contain the SKU.
    after: Option<String>,
    source: SkuSource,
}

/// Where a request contains its SKU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkuSource {
    /// In the path, as one segment.
    Path,
    /// In this query parameter.
    Query(String),
    /// In this header.
    Header(String),
}

/// Why a route is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkuRouteError {
    /// The method is not an HTTP method.
    #[error("must be an HTTP method in capitals, such as POST")]
    Method,
    /// The path does not start with `/`, has a query or a fragment, or contains `{sku}` other than as one whole
    /// segment.
    #[error("must start with /, have {{sku}} at most once as a whole segment, and have no ? or #")]
    Path,
    /// The SKU has two sources or none.
    #[error(
        "must name the SKU exactly once: {{sku}} in the path, or `sku` with `query` or `header`"
    )]
    Source,
}

impl SkuRouteError {
    /// The invalid field of the route's configuration.
    pub fn field(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Path => "path",
            Self::Source => "sku",
        }
    }
}

impl SkuRoute {
    /// The route of `method` and `path`; `source` unless the path contains the SKU.
    ///
    /// # Errors
    /// When one of them is invalid.
    pub fn new(method: &str, path: &str, source: Option<SkuSource>) -> Result<Self, SkuRouteError> {
        if !is_method(method) {
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

    /// Whether the request matches this route.
    pub(crate) fn matches(&self, method: &[u8], path: &[u8]) -> bool {
        method == self.method.as_bytes() && self.segment(split(path).0).is_some()
    }

    /// The SKU's segment in a matching path; empty if the route's path does not contain the SKU. `None` for other
    /// paths.
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

    /// Whether the header `name` contains the SKU.
    pub(crate) fn reads(&self, name: &[u8]) -> bool {
        matches!(&self.source, SkuSource::Header(header) if header.as_bytes() == name)
    }

    /// Every possible SKU of a request: of several parameters or headers, services may use the first, the last, or the
    /// whole list.
    fn skus<'r>(&self, path: &'r [u8], request: &'r dyn Request) -> BTreeSet<Cow<'r, [u8]>> {
        let (path, query) = split(path);
        match &self.source {
            SkuSource::Path => {
                let segment = self.segment(path).into_iter();
                segment.map(|sku| percent_decode(sku).into()).collect()
            }
            SkuSource::Query(name) => parameters(query, name.as_bytes()).collect(),
            SkuSource::Header(name) => {
                let all = request.headers().get(name).unwrap_or_default();
                let parts = all.split(|&byte| byte == b',');
                let parts = parts.map(|part| Cow::Owned(part.trim_ascii().to_vec()));
                parts.chain([all.clone()]).collect()
            }
        }
    }
}

/// Splits a path from its query.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = path.splitn(2, |&byte| byte == b'?');
    let path = parts.next().unwrap_or_default();
    (path, parts.next().unwrap_or_default())
}

/// The parameters of this name in a query, decoded.
fn parameters<'q>(query: &'q [u8], name: &[u8]) -> impl Iterator<Item = Cow<'q, [u8]>> {
    query.split(|&byte| byte == b'&').filter_map(move |pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        let (key, value) = (pair.get(..at)?, pair.get(at + 1..)?);
        (*decoded(key) == *name).then(|| decoded(value))
    })
}

/// Decodes a part of a query, in which `+` is a space.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let space = |&byte: &u8| if byte == b'+' { b' ' } else { byte };
    let spaced: Vec<u8> = text.iter().map(space).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// The sale that a normal order would bypass: it sells the request's SKU and has not ended.
pub(crate) fn sale_of<'c>(
    routes: &[SkuRoute],
    catalogue: &'c Catalogue,
    path: &[u8],
    request: &dyn Request,
) -> Option<&'c Sale> {
    let method = request.headers().get(":method")?;
    let mut routes = routes.iter();
    let route = routes.find(|route| route.matches(&method, path))?;
    let skus = route.skus(path, request);
    let now_ms = request.now_ms();
    let is_on = |sale: &Sale| {
        catalogue.switch_of(sale) < SaleState::Drain && sale.phase(now_ms) != Phase::Ended
    };
    let mut sales = catalogue.sales.iter();
    sales.find(|sale| {
        let sells = sale
            .sku
            .as_deref()
            .is_some_and(|existing| skus.contains(existing.as_bytes()));
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
        for sold in [
            "/orders?sku=hat",
            "/orders?s%6bu=h%61t",
            "/orders?sku=x&sku=hat",
            "/orders?sku=hat&sku=x",
        ] {
            assert_eq!(at(&by_query, sold).as_deref(), Some("b"), "{sold}");
        }
        for other in [
            "/orders",
            "/orders?sku=",
            "/orders?skus=hat",
            "/orders/1?sku=hat",
        ] {
            assert_eq!(at(&by_query, other), None, "{other}");
        }
        assert_eq!(at(&by_header, "/orders").as_deref(), Some("b"));
        for twice in ["hat, x", "x,hat"] {
            let named = found(&by_header, "/orders", &[("x-sku", twice)], 1_500);
            assert_eq!(named.as_deref(), Some("b"), "{twice}");
        }
    }

    #[test]
    fn sale_applies_to_skus_from_its_creation_to_its_end() {
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
    fn invalid_sku_route_is_refused() {
        let query = || Some(SkuSource::Query("sku".into()));
        let error = |method, path, source| SkuRoute::new(method, path, source).unwrap_err();
        for method in ["post", "POSTT"] {
            assert_eq!(error(method, "/o", query()), SkuRouteError::Method);
        }
        for path in ["o", "/o?a", "/o/x{sku}", "/{sku}/{sku}"] {
            assert_eq!(error("POST", path, None), SkuRouteError::Path, "{path}");
        }
        assert_eq!(error("POST", "/o", None), SkuRouteError::Source);
        assert_eq!(error("POST", "/{sku}", query()), SkuRouteError::Source);
    }
}
