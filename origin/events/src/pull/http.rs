//! Pulls events over HTTP: `GET <url>`, answered by `{"events": […], "cursor": "…"}`.

use std::path::Path;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use weir_event::limits::BODY_LEN_MAX;

use super::{CURSOR_LEN_MAX, FetchedPage, Fetching, Source};
use weir_origin_core::http::client::{ClientError, HttpClient};

/// Placeholder of the cursor.
const PLACE: &str = "{cursor}";

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of an answer: an event body plus a cursor.
const ANSWER_LEN_MAX: usize = BODY_LEN_MAX + CURSOR_LEN_MAX + 1_024;

/// Why a source is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The URL or the CA file is invalid.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The URL does not contain the cursor placeholder.
    #[error("must contain {PLACE} in its path or query")]
    NoPlace,
    /// The token is not a valid header value.
    #[error("the token is not a valid header value")]
    Token,
}

/// An HTTP service that provides events.
pub struct HttpSource {
    client: HttpClient,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Keeps the token out of logs.
impl std::fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HttpSource").field(&self.path).finish()
    }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    cursor: String,
}

impl HttpSource {
    /// Creates a source for `url`, which must contain `{cursor}`.
    ///
    /// # Errors
    /// If the URL, the CA file or the token is invalid.
    pub fn new(url: &str, ca: Option<&Path>, token: Option<&str>) -> Result<Self, SourceError> {
        // A URL cannot contain braces, so parse it with a word as placeholder.
        const WORD: &str = "weir-cursor";
        let client = HttpClient::new(&url.replace(PLACE, WORD), ca)?;
        let path = client.path().replace(WORD, PLACE);
        if !path.contains(PLACE) {
            return Err(SourceError::NoPlace);
        }
        let mut headers = vec![(header::ACCEPT, HeaderValue::from_static("application/json"))];
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            headers.push((
                header::AUTHORIZATION,
                value.map_err(|_| SourceError::Token)?,
            ));
        }
        Ok(Self {
            client,
            path,
            headers,
        })
    }
}

impl Source for HttpSource {
    fn fetch<'a>(&'a self, cursor: &'a str) -> Fetching<'a> {
        Box::pin(async move {
            let path = self.path.replace(PLACE, &encoded(cursor));
            let (client, headers) = (&self.client, &self.headers);
            let response = client.send(Method::GET, &path, headers, Bytes::new(), ANSWER_LEN_MAX);
            let answered = tokio::time::timeout(TIMEOUT, response).await;
            let answered = answered.map_err(|_| format!("no answer within {TIMEOUT:?}"))?;
            let (status, body) = answered.map_err(|error| error.to_string())?;
            match status.as_u16() {
                200 => read(&body),
                status => Err(format!("answered {status}")),
            }
        })
    }
}

fn read(body: &[u8]) -> Result<FetchedPage, String> {
    let answer: Answer<'_> = serde_json::from_slice(body)
        .map_err(|error| format!("the answer is not JSON with events and a cursor: {error}"))?;
    if answer.cursor.len() > CURSOR_LEN_MAX {
        return Err(format!("the cursor is longer than {CURSOR_LEN_MAX} bytes"));
    }
    let list = || {
        let events: Vec<&str> = answer.events.iter().map(|event| event.get()).collect();
        Bytes::from(format!("[{}]", events.join(",")))
    };
    Ok(FetchedPage {
        events: (!answer.events.is_empty()).then(list),
        cursor: answer.cursor,
    })
}

/// Percent-encodes a cursor for a query.
fn encoded(cursor: &str) -> String {
    let mut out = String::with_capacity(cursor.len());
    for byte in cursor.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_contains_a_list_and_a_cursor() {
        let read = |text: &str| read(text.as_bytes());
        let some = read(r#"{"events": [{"type":"a"}, {"type": "b"}], "cursor": "7"}"#).unwrap();
        assert_eq!(
            some.events.as_deref(),
            Some(&br#"[{"type":"a"},{"type": "b"}]"#[..])
        );
        assert_eq!(some.cursor, "7");
        assert_eq!(
            read(r#"{"events": [], "cursor": "7"}"#).unwrap().events,
            None
        );
        for bad in [
            "",
            "[]",
            r#"{"events": []}"#,
            r#"{"events": {}, "cursor": ""}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let long = "x".repeat(CURSOR_LEN_MAX + 1);
        assert!(read(&format!(r#"{{"events": [], "cursor": "{long}"}}"#)).is_err());
    }

    #[test]
    fn cursor_placeholder_is_required_and_its_value_is_encoded() {
        let new = |url| HttpSource::new(url, None, Some("hush"));
        assert!(matches!(new("http://h/events"), Err(SourceError::NoPlace)));
        assert!(matches!(
            new("ftp://h/{cursor}"),
            Err(SourceError::Client(_))
        ));
        let source = new("http://h/events?after={cursor}&n=9").unwrap();
        assert_eq!(source.path, "/events?after={cursor}&n=9");
        assert!(!format!("{source:?}").contains("hush"));
        assert_eq!(encoded("a b&c=ü/"), "a%20b%26c%3D%C3%BC%2F");
    }
}
