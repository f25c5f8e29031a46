//! The sample shop: its files, its sale, and its products.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::http::server;

use super::{now_ms, request};

/// When the sale starts after `up`, and for how long it is open.
const STARTS_IN_MS: u128 = 30_000;
const OPEN_MS: u128 = 3_600_000;

/// About 0.1 s in a browser.
const WORK_BITS: u8 = 16;

const CATALOGUE: &str = include_str!("../../../../examples/storefront/catalogue.json");

/// The shop and the gateway are one site.
const CONFIG: &str = "export const gateway = '';\nexport const eventKey = 'wk_shop_web';\nexport const userHeader = 'x-user-id';\n";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// Path, type and content of each file.
const FILES: [(&str, &str, &str); 12] = [
    (
        "/",
        HTML,
        include_str!("../../../../examples/storefront/index.html"),
    ),
    (
        "/shop.js",
        SCRIPT,
        include_str!("../../../../examples/storefront/shop.js"),
    ),
    (
        "/shop.css",
        "text/css; charset=utf-8",
        include_str!("../../../../examples/storefront/shop.css"),
    ),
    ("/config.js", SCRIPT, CONFIG),
    ("/catalogue.json", "application/json", CATALOGUE),
    (
        "/weir.js",
        SCRIPT,
        include_str!("../../../../sdk/dist/weir.js"),
    ),
    (
        "/weir-worker.js",
        SCRIPT,
        include_str!("../../../../sdk/dist/weir-worker.js"),
    ),
    (
        "/images/logo.svg",
        PICTURE,
        include_str!("../../../../examples/storefront/images/logo.svg"),
    ),
    (
        "/images/dash-cam.svg",
        PICTURE,
        include_str!("../../../../examples/storefront/images/dash-cam.svg"),
    ),
    (
        "/images/mats.svg",
        PICTURE,
        include_str!("../../../../examples/storefront/images/mats.svg"),
    ),
    (
        "/images/roof-box.svg",
        PICTURE,
        include_str!("../../../../examples/storefront/images/roof-box.svg"),
    ),
    (
        "/images/wheels.svg",
        PICTURE,
        include_str!("../../../../examples/storefront/images/wheels.svg"),
    ),
];

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

/// Serves the files.
pub(super) async fn serve(listener: TcpListener) {
    let routes = Router::new().fallback(file);
    server::serve(listener, routes, CancellationToken::new()).await;
}

async fn file(uri: Uri) -> Response {
    match FILES.iter().find(|(path, ..)| *path == uri.path()) {
        Some((_, kind, text)) => {
            ([(CONTENT_TYPE, *kind), (CACHE_CONTROL, "no-cache")], *text).into_response()
        }
        None => (StatusCode::NOT_FOUND, "there is nothing here").into_response(),
    }
}

/// Creates a sale that starts soon, and the products and vehicles, unless they exist.
///
/// # Errors
/// The origin refuses one of them.
pub(super) async fn create(admin: SocketAddr, token: &str) -> Result<()> {
    let catalogue: Catalogue = serde_json::from_str(CATALOGUE)?;
    for (method, path, body) in requests(&catalogue, now_ms()) {
        let (status, answer) = request(admin, method, &path, token, &body.to_string()).await?;
        let is_there = status == 409;
        ensure!(status < 300 || is_there, "{method} {path}: {answer}");
    }
    Ok(())
}

fn requests(catalogue: &Catalogue, now_ms: u128) -> Vec<(&'static str, String, Value)> {
    let mut requests = Vec::new();
    let starts_at_ms = now_ms + STARTS_IN_MS;
    if let Some(product) = catalogue.products.first() {
        // Each start has a sale of its own, because the one before may have ended.
        let id = format!("drop-{}", now_ms / 1_000);
        let sale = json!({
            "id": id,
            "title": product.title,
            "sku": product.sku,
            "price": { "unit_amount": product.price, "currency": catalogue.currency },
            "total": 200,
            "shards": 2,
            "user_cap": 2,
            "listed": true,
            "token": true,
            "challenge": { "proof_of_work": { "bits": WORK_BITS } },
            "starts_at_ms": starts_at_ms,
            "ends_at_ms": starts_at_ms + OPEN_MS,
        });
        requests.push(("POST", "/sales".to_owned(), sale));
        requests.push(("POST", format!("/sales/{id}/warm"), json!({})));
    }
    let products = catalogue.products.iter().map(|product| {
        let picture = format!("/{}", product.picture);
        json!({ "sku": product.sku, "spu": product.sku, "title": product.title, "picture": picture })
    });
    let products = json!({ "products": products.collect::<Vec<_>>() });
    requests.push(("PUT", "/products".to_owned(), products));
    for name in ["cart", "page", "view", "weir.lost"] {
        requests.push(("PUT", format!("/events/types/{name}"), json!({})));
    }
    for vehicle in &catalogue.vehicles {
        let path = format!("/fitment/vehicles/{}", vehicle.vehicle);
        let body = json!({ "make": vehicle.make, "model": vehicle.model, "year": vehicle.year, "engine": "" });
        requests.push(("PUT", path, body));
    }
    for product in &catalogue.products {
        let path = format!("/fitment/products/{}", product.sku);
        let body = json!({ "spu": product.sku, "type": product.kind, "merchant": "shop" });
        requests.push(("PUT", path, body));
        for vehicle in &product.fits {
            let path = format!("/fitment/relations/{}/{vehicle}", product.sku);
            requests.push(("PUT", path, json!({})));
        }
    }
    requests
}
