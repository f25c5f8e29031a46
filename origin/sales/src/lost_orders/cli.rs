//! `weir-origin lost-orders`: shows the orders of a sale that SQL has lost, and decides about them, through the admin
//! port of a running origin.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use axum::http::{HeaderValue, Method, header};
use clap::Args;
use hyper::body::Bytes;
use serde_json::{Value, json};
use weir_base::id::SaleId;

use super::Decision;
use weir_origin_core::http::client::HttpClient;
use weir_origin_core::secret::{self, Variables};

const API_KEY: &str = "WEIR_API_KEY";
const ADMIN_TOKEN: &str = "WEIR_ADMIN_TOKEN";

/// Maximum length of an answer, in bytes: a thousand orders.
const ANSWER_LEN_MAX: usize = 1 << 20;

/// Show orders that SQL has lost, and accept or restore them, through the admin port of a running origin
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Set the API key in WEIR_API_KEY, or its file path in WEIR_API_KEY_FILE. Without either, the command uses WEIR_ADMIN_TOKEN. docs/runbook.md explains the decision."
)]
pub struct LostOrdersCommand {
    /// The sale's id
    #[arg(value_parser = parse_sale)]
    sale: SaleId,

    /// SQL is right: drop the lost orders and put their units back on sale
    #[arg(long, conflicts_with = "restore")]
    accept: bool,

    /// Create the lost orders again, as far as stock and per-user limits allow
    #[arg(long)]
    restore: bool,

    /// Admin URL of an origin
    #[arg(long, env = "WEIR_ADMIN_URL", default_value = "http://127.0.0.1:8081")]
    url: String,

    /// PEM file with the CA of an https admin URL; unset: the system's CAs
    #[arg(long, env = "WEIR_ADMIN_CA")]
    ca: Option<PathBuf>,
}

fn parse_sale(id: &str) -> Result<SaleId, &'static str> {
    SaleId::new(id).map_err(|_| "not a valid sale id")
}

impl LostOrdersCommand {
    fn decision(&self) -> Option<Decision> {
        match (self.accept, self.restore) {
            (true, _) => Some(Decision::Accept),
            (_, true) => Some(Decision::Restore),
            _ => None,
        }
    }
}

/// Runs the command. Returns the text to print.
///
/// # Errors
/// When the origin does not answer, or refuses.
pub async fn run(command: &LostOrdersCommand, variables: Variables<'_>) -> Result<String> {
    let name = match secret::is_set(variables, API_KEY) {
        true => API_KEY,
        false => ADMIN_TOKEN,
    };
    let key = format!("Bearer {}", secret::read(variables, name)?);
    let mut key = HeaderValue::try_from(key).map_err(|_| anyhow!("{name} is not a valid key"))?;
    key.set_sensitive(true);
    let client = HttpClient::new(&command.url, command.ca.as_deref())
        .with_context(|| format!("--url {}", command.url))?;
    let base = client.path().trim_end_matches('/').to_owned();
    let path = format!("{base}/sales/{}/lost-orders", command.sale);
    let (method, body) = match command.decision() {
        Some(decision) => {
            let body = json!({ "decision": decision }).to_string();
            (Method::POST, Bytes::from(body))
        }
        None => (Method::GET, Bytes::new()),
    };
    let kind = HeaderValue::from_static("application/json");
    let headers = [(header::AUTHORIZATION, key), (header::CONTENT_TYPE, kind)];
    let sent = client.send(method, &path, &headers, body, ANSWER_LEN_MAX);
    let (status, answer) = sent.await.context("no answer from the origin")?;
    let answer: Value = serde_json::from_slice(&answer).context("the answer is not JSON")?;
    if !status.is_success() {
        let part = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
        bail!("{} {}: {}", status.as_u16(), part("error"), part("detail"));
    }
    Ok(serde_json::to_string_pretty(&answer)? + "\n")
}
