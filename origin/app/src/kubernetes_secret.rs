//! `weir-origin kubernetes-secret`: creates the secrets of gateways and origin in a cluster, once.
//!
//! The Helm chart runs it as a hook. Templates cannot do this: each rendering would produce new secrets.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::info;

use crate::http::client::HttpClient;
use crate::init;

/// The largest answer: a secret has at most 1 MiB.
const ANSWER_LEN_MAX: usize = 4 << 20;

/// Attempts if another writer changes the secret at the same time.
const ATTEMPTS: usize = 5;

/// Arguments of `kubernetes-secret`.
#[derive(Clone, Debug, Args)]
pub struct KubernetesSecretCommand {
    /// Name of the secret
    #[arg(value_parser = parse_name)]
    pub name: String,

    /// Keys that it must have, such as `WEIR_CLAIM_SECRET`; each missing one gets a random value
    #[arg(required = true, value_parser = parse_key)]
    pub keys: Vec<String>,

    /// Folder with `token`, `ca.crt` and `namespace` of the service account
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount"
    )]
    pub account: PathBuf,

    /// URL of the Kubernetes API
    #[arg(
        long,
        value_name = "URL",
        default_value = "https://kubernetes.default.svc"
    )]
    pub api_url: String,
}

fn parse_name(name: &str) -> Result<String, &'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match (1..=253).contains(&name.len()) && name.bytes().all(is_allowed) {
        true => Ok(name.to_owned()),
        false => Err("must be 1 to 253 of a-z, 0-9 and -"),
    }
}

fn parse_key(key: &str) -> Result<String, &'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    match (1..=253).contains(&key.len()) && key.bytes().all(is_allowed) {
        true => Ok(key.to_owned()),
        false => Err("must be 1 to 253 of A-Z, 0-9 and _"),
    }
}

/// Creates the secret, or adds missing keys. Never changes a key.
///
/// # Errors
/// When the Kubernetes API does not answer or refuses.
pub async fn run(command: &KubernetesSecretCommand) -> Result<()> {
    let api = Api::new(command)?;
    for _ in 0..ATTEMPTS {
        let written = match api.read(&command.name).await? {
            None => api.create(&command.name, random(&command.keys)?).await?,
            Some(secret) => {
                let is_missing = |key: &&String| !secret.data.contains_key(*key);
                let missing: Vec<_> = command.keys.iter().filter(is_missing).cloned().collect();
                if missing.is_empty() {
                    info!(secret = command.name, "all keys exist");
                    return Ok(());
                }
                api.add(&command.name, &secret, random(&missing)?).await?
            }
        };
        if written {
            return Ok(());
        }
    }
    bail!(
        "cannot write the secret \"{}\": another writer changed it {ATTEMPTS} times; run the command again",
        command.name
    )
}

fn random(keys: &[String]) -> Result<BTreeMap<String, String>> {
    let pairs = keys.iter().map(|key| Ok((key.clone(), init::secret()?)));
    pairs.collect()
}

/// A stored secret, without its values.
#[derive(Deserialize)]
struct Stored {
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

/// The secrets of one namespace.
struct Api {
    client: HttpClient,
    authorization: HeaderValue,
    namespace: String,
}

impl Api {
    fn new(command: &KubernetesSecretCommand) -> Result<Self> {
        let read = |name: &str| read(&command.account.join(name));
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", read("token")?))
            .context("the token of the service account is not a header value")?;
        authorization.set_sensitive(true);
        let namespace = read("namespace")?;
        parse_name(&namespace).map_err(|error| anyhow::anyhow!("the namespace {error}"))?;
        let ca = command.account.join("ca.crt");
        let client = HttpClient::new(&command.api_url, Some(&ca)).context("--api-url")?;
        Ok(Self {
            client,
            authorization,
            namespace,
        })
    }

    /// The secret, if it exists.
    async fn read(&self, name: &str) -> Result<Option<Stored>> {
        let (status, body) = self.send(Method::GET, &format!("/{name}"), None).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        self.check("read", name, status, &body)?;
        let stored = serde_json::from_slice(&body).context("the Kubernetes API sent no secret")?;
        Ok(Some(stored))
    }

    /// Returns false if the secret exists meanwhile.
    async fn create(&self, name: &str, values: BTreeMap<String, String>) -> Result<bool> {
        let keys: Vec<_> = values.keys().cloned().collect();
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "weir" } },
            "type": "Opaque",
            "stringData": values,
        });
        let (status, body) = self.send(Method::POST, "", Some(&secret)).await?;
        self.written("create", name, &keys, status, &body)
    }

    /// Returns false if the secret has changed meanwhile.
    async fn add(
        &self,
        name: &str,
        stored: &Stored,
        values: BTreeMap<String, String>,
    ) -> Result<bool> {
        let keys: Vec<_> = values.keys().cloned().collect();
        let patch = json!({
            "metadata": { "resourceVersion": stored.metadata.resource_version },
            "stringData": values,
        });
        let path = format!("/{name}");
        let (status, body) = self.send(Method::PATCH, &path, Some(&patch)).await?;
        self.written("add keys to", name, &keys, status, &body)
    }

    fn written(
        &self,
        action: &str,
        name: &str,
        keys: &[String],
        status: StatusCode,
        body: &[u8],
    ) -> Result<bool> {
        if status == StatusCode::CONFLICT {
            return Ok(false);
        }
        self.check(action, name, status, body)?;
        info!(secret = name, ?keys, "created keys");
        Ok(true)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Bytes)> {
        let path = format!("/api/v1/namespaces/{}/secrets{path}", self.namespace);
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let headers: [(HeaderName, HeaderValue); 2] = [
            (header::AUTHORIZATION, self.authorization.clone()),
            (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        ];
        let body = body.map(Value::to_string).unwrap_or_default().into();
        let sent = self
            .client
            .send(method, &path, &headers, body, ANSWER_LEN_MAX);
        sent.await.context("the Kubernetes API does not answer")
    }

    fn check(&self, action: &str, name: &str, status: StatusCode, body: &[u8]) -> Result<()> {
        let answer = serde_json::from_slice::<Value>(body).unwrap_or_default();
        let message = answer.get("message").and_then(Value::as_str);
        ensure!(
            status.is_success(),
            "cannot {action} the secret \"{name}\" in namespace \"{}\": the Kubernetes API answers {status}: {}",
            self.namespace,
            message.unwrap_or("no message")
        );
        Ok(())
    }
}

fn read(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read \"{}\" of the service account", path.display()))?;
    Ok(text.trim().to_owned())
}
