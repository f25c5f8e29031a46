//! The sample shop in `examples/storefront`, with a sale, products and vehicles.

use std::path::{Component, Path};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use crate::server::{Answer, LocalServer};
use crate::{Stack, workspace};

/// The shop's sale.
pub const SALE: &str = "drop";

const OPEN_FOR: Duration = Duration::from_secs(3_600);
const PAY_WITHIN_MS: u32 = 900_000;

/// About 0.1 s in a browser.
const WORK_BITS: u8 = 16;

/// The folders with the shop's files. A CDN serves them as one.
const FOLDERS: [&str; 2] = ["examples/storefront", "sdk/dist"];

/// The shop's file with the gateway's address.
const CONFIG: &str = "config.js";

/// The served shop. Dropping it stops it.
#[derive(Debug)]
pub struct Storefront(LocalServer);

/// `catalogue.json`.
#[derive(Deserialize)]
struct Catalogue {
    currency: String,
    products: Vec<Product>,
    vehicles: Vec<Vehicle>,
}

#[derive(Deserialize)]
struct Product {
    sku: String,
    title: String,
    price: u64,
    picture: String,
    #[serde(rename = "type")]
    kind: String,
    fits: Vec<String>,
}

#[derive(Deserialize)]
struct Vehicle {
    vehicle: String,
    make: String,
    model: String,
    year: u32,
}

impl Storefront {
    /// Serves the shop's files on 127.0.0.1:`port`, as a CDN would, for the gateway at this URL. Reads each file when it is
    /// requested, so that an edit needs no restart. Without `has_events` the gateway collects no events.
    ///
    /// # Errors
    /// The port is in use.
    pub async fn start(port: u16, gateway: &str, has_events: bool) -> Result<Self> {
        let key = if has_events { "'wk_shop_web'" } else { "null" };
        let config = format!(
            "export const gateway = '{gateway}';\nexport const eventKey = {key};\nexport const userHeader = 'x-user-id';\n"
        );
        let server = LocalServer::start(port, move |request| {
            let config = config.clone();
            let path = request.uri().path().to_owned();
            async move { serve(request.method(), &path, config) }
        });
        Ok(Self(server.await.context("cannot serve the storefront")?))
    }

    /// Its address, `http://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address())
    }
}

fn serve(method: &Method, path: &str, config: String) -> Answer {
    if method != Method::GET && method != Method::HEAD {
        return answer(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "");
    }
    let name = match path.trim_start_matches('/') {
        "" => "index.html",
        CONFIG => return answer(StatusCode::OK, kind(CONFIG), config),
        name => name,
    };
    let is_inside = |part| matches!(part, Component::Normal(_));
    let is_inside = Path::new(name).components().all(is_inside);
    let mut files = FOLDERS.iter().map(|folder| workspace::root().join(folder));
    let found = files.find_map(|folder| std::fs::read(folder.join(name)).ok());
    match found.filter(|_| is_inside) {
        Some(bytes) => answer(StatusCode::OK, kind(name), bytes),
        None => answer(StatusCode::NOT_FOUND, "text/plain", "there is nothing here"),
    }
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = hyper::Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

impl Stack {
    /// Creates the shop's sale and its products for history and vehicles for fitment as far as the
    /// origin has them.
    ///
    /// # Errors
    /// The origin refuses one of them.
    pub async fn open_storefront(&self, starts_in: Duration) -> Result<()> {
        let file = workspace::root().join("examples/storefront/catalogue.json");
        let text =
            std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let catalogue: Catalogue = serde_json::from_slice(&text)?;
        self.open_drop(&catalogue, starts_in).await?;
        self.put_products(&catalogue).await?;
        self.put_fitment(&catalogue).await
    }

    async fn open_drop(&self, catalogue: &Catalogue, starts_in: Duration) -> Result<()> {
        let product = catalogue.products.first().context("no product")?;
        let starts_at = SystemTime::now().duration_since(UNIX_EPOCH)? + starts_in;
        let sale = json!({
            "id": SALE,
            "title": product.title,
            "sku": product.sku,
            "price": { "unit_amount": product.price, "currency": catalogue.currency },
            "total": 200,
            "shards": 2,
            "user_cap": 2,
            "listed": true,
            "token": true,
            "challenge": { "proof_of_work": { "bits": WORK_BITS } },
            "payment": { "hold": { "pay_within_ms": PAY_WITHIN_MS } },
            "starts_at_ms": starts_at.as_millis(),
            "ends_at_ms": (starts_at + OPEN_FOR).as_millis(),
            "warm_before_ms": null,
        });
        self.ensure(Method::POST, "/sales", &sale).await?;
        self.warm_sale(SALE).await?;
        self.wait_until_known(SALE).await
    }

    async fn put_products(&self, catalogue: &Catalogue) -> Result<()> {
        let products = catalogue.products.iter().map(|product| {
            json!({
                "sku": product.sku, "spu": product.sku, "title": product.title,
                "picture": format!("/{}", product.picture),
            })
        });
        let products = json!({ "products": products.collect::<Vec<_>>() });
        self.ensure(Method::PUT, "/products", &products).await
    }

    async fn put_fitment(&self, catalogue: &Catalogue) -> Result<()> {
        for vehicle in &catalogue.vehicles {
            let path = format!("/fitment/vehicles/{}", vehicle.vehicle);
            let body = json!({ "make": vehicle.make, "model": vehicle.model, "year": vehicle.year, "engine": "" });
            self.ensure(Method::PUT, &path, &body).await?;
        }
        for product in &catalogue.products {
            let path = format!("/fitment/products/{}", product.sku);
            let body = json!({ "spu": product.sku, "type": product.kind, "merchant": "shop" });
            self.ensure(Method::PUT, &path, &body).await?;
            for vehicle in &product.fits {
                let path = format!("/fitment/relations/{}/{vehicle}", product.sku);
                self.ensure(Method::PUT, &path, &json!({})).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    #[tokio::test]
    async fn storefront_serves_its_files_and_nothing_else() {
        let shop = Storefront::start(0, "http://127.0.0.1:9", true)
            .await
            .unwrap();
        let get = async |path: &str| http::get(&format!("{}{path}", shop.url())).await.unwrap();
        let page = get("/").await;
        assert!(page.text().contains("<main"), "{}", page.text());
        for (path, kind) in [
            ("/shop.js", "text/javascript; charset=utf-8"),
            ("/weir.js", "text/javascript; charset=utf-8"),
            ("/weir-worker.js", "text/javascript; charset=utf-8"),
            ("/images/logo.svg", "image/svg+xml"),
        ] {
            let file = get(path).await;
            assert_eq!(
                (file.status, file.header("content-type")),
                (200, Some(kind))
            );
        }
        let config = get("/config.js").await.text();
        assert!(
            config.contains("gateway = 'http://127.0.0.1:9'"),
            "{config}"
        );
        for path in [
            "/none.js",
            "/../README.md",
            "/%2e%2e/README.md",
            "//etc/passwd",
        ] {
            assert_eq!(get(path).await.status, 404, "{path}");
        }
    }
}
