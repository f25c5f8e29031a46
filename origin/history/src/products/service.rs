//! A product service over HTTPS or HTTP: `POST {"skus"}`, answered by `{"products": [{"sku", "spu", "title",
//! "picture"}]}`. It leaves out unknown products. Other fields are ignored.

use std::path::Path;
use std::time::Duration;

use axum::http::{HeaderValue, Method, header};
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use weir_history::Sku;

use crate::model::products::{FoundProduct, Product, ProductFuture, ProductSource, SourceError};
use weir_origin_core::http::client::{ClientError, HttpClient};

/// Timeout of one request: a late list is worse than one without product data.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum length of an answer, in bytes.
const ANSWER_LEN_MAX: usize = 4 << 20;

/// A client of a product service.
#[derive(Debug)]
pub struct ProductService(HttpClient);

#[derive(Deserialize)]
struct Answer {
    products: Vec<AnsweredProduct>,
}

#[derive(Deserialize)]
struct AnsweredProduct {
    sku: String,
    spu: Option<String>,
    title: Option<String>,
    picture: Option<String>,
}

impl ProductService {
    /// Creates a client of the service at `url`. For `https`, `ca` is the file with its CA; `None`: the system's CAs.
    ///
    /// # Errors
    /// If the URL is invalid, or the CA file cannot be read.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Self, ClientError> {
        HttpClient::new(url, ca).map(Self)
    }

    async fn post(&self, body: String) -> Result<Bytes, SourceError> {
        let json = HeaderValue::from_static("application/json");
        let headers = [(header::CONTENT_TYPE, json)];
        let client = &self.0;
        let answer = client.send(
            Method::POST,
            client.path(),
            &headers,
            body.into(),
            ANSWER_LEN_MAX,
        );
        let answer = timeout(TIMEOUT, answer).await;
        let answer = answer.map_err(|_elapsed| SourceError("timeout".to_owned()))?;
        match answer.map_err(|error| SourceError(error.to_string()))? {
            (status, body) if status.is_success() => Ok(body),
            (status, _) => Err(SourceError(format!("status {}", status.as_u16()))),
        }
    }

    async fn ask(&self, skus: &[Sku]) -> Result<Vec<FoundProduct>, SourceError> {
        let skus: Vec<&str> = skus.iter().map(Sku::as_str).collect();
        let answer = self.post(json!({ "skus": skus }).to_string()).await?;
        let answer: Answer =
            serde_json::from_slice(&answer).map_err(|error| SourceError(error.to_string()))?;
        let found = |product: AnsweredProduct| {
            // An invalid SKU was not requested.
            let sku = Sku::new(&product.sku).ok()?;
            Some((
                sku,
                Product {
                    spu: product.spu,
                    title: product.title,
                    picture: product.picture,
                },
            ))
        };
        Ok(answer.products.into_iter().filter_map(found).collect())
    }
}

impl ProductSource for ProductService {
    fn find<'a>(&'a self, skus: &'a [Sku]) -> ProductFuture<'a> {
        Box::pin(self.ask(skus))
    }
}
