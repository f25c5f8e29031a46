//! Which pages of other sites may send events (CORS in the Fetch standard).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weir_base::FieldError;
use weir_base::headers::{CONSENT, VISITOR, WRITE_KEY};
use weir_engine::{Answer, Headers};

/// How long a browser may cache the permission, in seconds: the maximum that browsers support.
const MAX_AGE_S: &str = "7200";

/// Maximum origins of one key.
const ORIGINS_MAX: usize = 64;

/// The origins whose pages may send with one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    list: Vec<String>,
    is_any: bool,
}

impl Origins {
    pub(crate) fn new(list: &[String], at: &str) -> Result<Self, FieldError> {
        if list.len() > ORIGINS_MAX {
            let problem = alloc::format!("must have at most {ORIGINS_MAX} entries");
            return Err(FieldError::new(at, problem));
        }
        for (index, origin) in list.iter().enumerate() {
            if origin != "*" && !is_origin(origin) {
                let problem =
                    "must be a scheme and a host in lower case, such as https://shop.example, or *";
                return Err(FieldError::new(alloc::format!("{at}[{index}]"), problem));
            }
        }
        Ok(Self {
            is_any: list.iter().any(|origin| origin == "*"),
            list: list.to_vec(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether a page of `origin`, a value of that header, may send.
    pub(crate) fn allow(&self, origin: &[u8]) -> bool {
        self.is_any
            || self
                .list
                .iter()
                .any(|existing| existing.as_bytes() == origin)
    }
}

/// Whether `text` is an origin as browsers write it: no path, no capitals.
fn is_origin(text: &str) -> bool {
    let host = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let is_of_host =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_[]:".contains(&byte);
    host.is_some_and(|host| !host.is_empty() && host.bytes().all(is_of_host))
}

/// The CORS headers of a response for a page of `origin`. They do not allow cookies.
pub(crate) fn headers(origin: &str) -> [(&'static str, String); 3] {
    [
        ("access-control-allow-origin", origin.to_string()),
        (
            "access-control-expose-headers",
            "retry-after, ratelimit, ratelimit-policy".into(),
        ),
        ("vary", "origin".into()),
    ]
}

/// Adds CORS headers for a page of `origin`.
pub(crate) fn for_page(answer: &Answer, origin: &str) -> Answer {
    let cors = headers(origin);
    let own = answer.headers.iter();
    let cors = cors
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let all: Vec<(&[u8], &[u8])> = own.chain(cors).collect();
    Answer {
        headers: Headers::new(&all),
        ..answer.clone()
    }
}

/// The response to a preflight for a page of `origin`.
pub(crate) fn preflight(origin: &str) -> Answer {
    let allowed_headers = ["content-type", WRITE_KEY, CONSENT, VISITOR].join(", ");
    let answer = Answer::new(
        204,
        &[
            ("access-control-allow-methods", "POST"),
            ("access-control-allow-headers", allowed_headers.as_str()),
            ("access-control-max-age", MAX_AGE_S),
        ],
        "",
    );
    for_page(&answer, origin).because("weir_events_preflight")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(list: &[&str]) -> Result<Origins, FieldError> {
        let list: Vec<String> = list.iter().map(|text| (*text).to_string()).collect();
        Origins::new(&list, "origins")
    }

    #[test]
    fn page_is_allowed_only_by_its_complete_origin() {
        let some = origins(&["https://shop.example", "http://localhost:8080"]).unwrap();
        assert!(some.allow(b"https://shop.example") && some.allow(b"http://localhost:8080"));
        for other in [
            "http://shop.example",
            "https://shop.example.evil.example",
            "https://shop.example:8443",
            "null",
            "",
        ] {
            assert!(!some.allow(other.as_bytes()), "{other}");
        }
        assert!(origins(&["*"]).unwrap().allow(b"null"));
        assert!(!origins(&[]).unwrap().allow(b"https://shop.example"));
    }

    #[test]
    fn invalid_origins_are_refused_with_their_index() {
        for bad in [
            "shop.example",
            "https://",
            "https://Shop.example",
            "https://shop.example/",
            "ftp://a",
            "https://*.a",
        ] {
            let error = origins(&["https://ok.example", bad]).unwrap_err();
            assert_eq!(error.path, "origins[1]", "{bad}");
        }
    }
}
