//! A client of the admin port that authenticates with a key.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use hyper::body::Bytes;
use serde_json::Value;

use super::API_KEY;
use crate::model::utm::encoded;
use weir_origin_core::http::client::{HttpClient, OpenAnswer};
use weir_origin_core::secret::{self, Variables};

/// Variable of the admin token, which is used without a key.
const ADMIN_TOKEN: &str = "WEIR_ADMIN_TOKEN";

/// Maximum length of an answer in memory: two hundred links with all fields at maximum length.
const ANSWER_LEN_MAX: usize = 16 * 1024 * 1024;

/// Number of attempts for repeatable requests, and the pause before the second one. The pause doubles with each
/// attempt.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(500);

/// A client of the admin port.
pub(super) struct Api {
    client: HttpClient,
    base: String,
    key: HeaderValue,
}

impl Api {
    /// Creates a client for this URL, with the key from the environment.
    pub fn new(url: &str, ca: Option<&Path>, variables: Variables<'_>) -> Result<Self> {
        let name = match secret::is_set(variables, API_KEY) {
            true => API_KEY,
            false => ADMIN_TOKEN,
        };
        let is_set = secret::is_set(variables, name);
        let key = if is_set {
            secret::read(variables, name)?
        } else {
            bail!("{API_KEY} is not set: create a key for links, see docs/access.md");
        };
        let mut key = HeaderValue::try_from(format!("Bearer {key}"));
        if let Ok(key) = &mut key {
            key.set_sensitive(true);
        }
        let client = HttpClient::new(url, ca).with_context(|| format!("--url {url}"))?;
        Ok(Self {
            base: client.path().trim_end_matches('/').to_owned(),
            client,
            key: key.map_err(|_| anyhow!("{name} is not a valid key"))?,
        })
    }

    fn headers(&self, kind: &'static str) -> Vec<(HeaderName, HeaderValue)> {
        vec![
            (header::AUTHORIZATION, self.key.clone()),
            (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        ]
    }

    /// Sends a request and returns the answer's JSON; null if the body is empty.
    pub async fn json(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value> {
        let body = body.map_or(String::new(), |body| body.to_string());
        let headers = self.headers("application/json");
        let method = Method::from_bytes(method.as_bytes())?;
        let (status, answer) = self.send(method, path, &headers, body.into()).await?;
        read(status, &answer)
    }

    /// Changes a link if it has this version.
    pub async fn edit(&self, path: &str, body: Value, version: Option<u32>) -> Result<Value> {
        let mut headers = self.headers("application/json");
        if let Some(version) = version {
            let value = HeaderValue::try_from(format!("\"{version}\""))?;
            headers.push((header::IF_MATCH, value));
        }
        let body = body.to_string().into();
        let (status, answer) = self.send(Method::PATCH, path, &headers, body).await?;
        read(status, &answer)
    }

    /// Sends a part of a file. The request is repeatable, so it is retried until a result is known.
    pub async fn import(&self, path: &str, part: Bytes) -> Result<Value> {
        let headers = self.headers("text/csv");
        let mut pause = PAUSE;
        for _ in 1..TRIES {
            let sent = self.send(Method::POST, path, &headers, part.clone()).await;
            match sent {
                Ok((status, answer)) if !status.is_server_error() => {
                    return read(status, &answer);
                }
                Ok((status, answer)) => {
                    eprintln!("{}; retrying", refusal_line(status, &answer))
                }
                Err(error) => eprintln!("{error:#}; retrying"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        let (status, answer) = self.send(Method::POST, path, &headers, part).await?;
        read(status, &answer)
    }

    /// Opens an answer that is read in chunks.
    pub async fn open(&self, path: &str) -> Result<OpenAnswer> {
        let path = format!("{}{path}", self.base);
        let headers = self.headers("application/json");
        let opened = self.client.open(Method::GET, &path, &headers, Bytes::new());
        let mut answer = opened.await.context("no answer from the origin")?;
        if answer.status == StatusCode::OK {
            return Ok(answer);
        }
        let mut body = Vec::new();
        while body.len() < ANSWER_LEN_MAX
            && let Some(chunk) = answer.chunk().await?
        {
            body.extend_from_slice(&chunk);
        }
        Err(anyhow!(refusal_line(answer.status, &body)))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<(StatusCode, Bytes)> {
        let path = format!("{}{path}", self.base);
        let sent = self
            .client
            .send(method, &path, headers, body, ANSWER_LEN_MAX);
        sent.await.context("no answer from the origin")
    }
}

fn read(status: StatusCode, answer: &[u8]) -> Result<Value> {
    if !status.is_success() {
        bail!(refusal_line(status, answer));
    }
    if answer.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(answer).context("the answer is not JSON")
}

/// Formats a refusal as one line.
fn refusal_line(status: StatusCode, answer: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(answer).unwrap_or_default();
    let part = |name: &str| problem[name].as_str().unwrap_or_default();
    format!("{} {}: {}", status.as_u16(), part("error"), part("detail"))
}

/// Builds a query string; empty without parameters.
pub(super) fn query(parts: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in parts {
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        text.push_str(&encoded(value));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_string_encodes_all_parameters() {
        let parts = [("q", "a&b=ü".to_owned()), ("tag", "x".to_owned())];
        assert_eq!(query(&parts), "?q=a%26b%3D%C3%BC&tag=x");
        assert_eq!(query(&[]), "");
    }
}
