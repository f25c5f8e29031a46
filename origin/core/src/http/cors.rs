//! CORS: lets pages of other sites read answers of the public port (Fetch standard, section 3.2).

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Methods that buyers' pages may use.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, DELETE");

/// Headers that pages may read, in addition to the body.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "retry-after, content-language, location, x-weir-verdict, ratelimit, ratelimit-policy",
);

/// How long browsers may cache a preflight, in seconds.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("600");

/// Maximum length of the header list in a preflight.
const HEADERS_LEN_MAX: usize = 1_024;

/// A site whose pages may read answers: `https://shop.example`, or `*` for any site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedOrigin(String);

impl FromStr for AllowedOrigin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str =
            "must be an origin as browsers send it, such as https://shop.example, or *";
        if text == "*" {
            return Ok(Self(text.to_owned()));
        }
        let uri: Uri = text.parse().map_err(|_| WRONG)?;
        let (scheme, host) = uri.scheme_str().zip(uri.authority()).ok_or(WRONG)?;
        let is_one = format!("{scheme}://{host}") == text && !host.as_str().contains('@');
        // Browsers send scheme and host in lower case.
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        let is_web = scheme == "https" || scheme == "http";
        match is_one && is_lower && is_web {
            true => Ok(Self(text.to_owned())),
            false => Err(WRONG),
        }
    }
}

/// The sites whose pages may read answers; by default none.
#[derive(Clone, Debug, Default)]
pub struct Cors {
    origins: Arc<[AllowedOrigin]>,
    credentials: bool,
}

impl Cors {
    /// Allows pages of these sites; with `credentials` also with cookies.
    pub fn new(origins: Vec<AllowedOrigin>, credentials: bool) -> Self {
        Self {
            origins: origins.into(),
            credentials,
        }
    }

    /// Whether any site is allowed.
    pub fn is_on(&self) -> bool {
        !self.origins.is_empty()
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        let mut allowed = self.origins.iter();
        allowed.any(|AllowedOrigin(allowed)| allowed == "*" || origin == allowed.as_str())
    }

    fn write(&self, origin: HeaderValue, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.credentials {
            let yes = HeaderValue::from_static("true");
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
        }
    }

    fn preflight(&self, origin: HeaderValue, requested: Option<&HeaderValue>) -> Response {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        self.write(origin, headers);
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
        // Allow all requested headers: the routes validate headers themselves.
        if let Some(requested) = requested.filter(|requested| requested.len() <= HEADERS_LEN_MAX) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        }
        response
    }
}

/// Answers preflights, and allows pages of these sites to read answers. For other sites, answers have no CORS headers,
/// so browsers withhold them from the pages.
pub(super) async fn share(State(cors): State<Cors>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let origin = headers.get(ORIGIN).filter(|origin| cors.allows(origin));
    let origin = origin.cloned();
    let is_preflight =
        request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match &origin {
        Some(origin) if is_preflight => {
            let requested = headers.get(ACCESS_CONTROL_REQUEST_HEADERS);
            cors.preflight(origin.clone(), requested)
        }
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    // A cache must not return one site's answer to another.
    headers.append(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        cors.write(origin, headers);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_origins_in_browser_format_are_accepted() {
        for good in [
            "*",
            "https://shop.example",
            "http://localhost:3000",
            "https://[::1]:8",
        ] {
            assert!(good.parse::<AllowedOrigin>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "shop.example",
            "https://shop.example/",
            "https://shop.example/a",
            "https://",
            "https://Shop.example",
            "ftp://shop.example",
            "https://*.example/",
            "https://a@b",
            "null",
        ] {
            assert!(bad.parse::<AllowedOrigin>().is_err(), "{bad}");
        }
    }
}
