//! The routes of the product table.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_history::Sku;

use super::invalid_sku;
use super::refusals::{INVALID_PRODUCT, UNKNOWN_PRODUCT};
use crate::History;
use crate::model::products::{FoundProduct, Product};
use weir_origin_core::http::{Problem, TypedBody, shared_members};

/// Maximum body length of a request with many products.
pub(super) const BODY_LEN_MAX: usize = 4 << 20;

/// Maximum number of products in one request.
const PUT_MAX: usize = 1_000;

/// Products to store.
#[derive(Deserialize, ToSchema)]
#[schema(as = Products)]
#[serde(deny_unknown_fields)]
pub(super) struct PutBody {
    /// The products.
    #[schema(max_items = 1000)]
    products: Vec<StoredProduct>,
}

/// A product of the table.
#[derive(Serialize, Deserialize, ToSchema)]
pub(super) struct StoredProduct {
    /// The SKU.
    #[schema(min_length = 1, max_length = 64)]
    sku: String,
    #[serde(flatten, deserialize_with = "shared_members")]
    product: Product,
}

/// Store up to 1,000 products in the origin's product table
///
/// Lists take product data from this table.
#[utoipa::path(
    put,
    path = "/products",
    operation_id = "setProducts",
    request_body = PutBody,
    responses((status = 204, description = "The products are stored")),
)]
pub(super) async fn put_all(
    history: History,
    TypedBody(body): TypedBody<PutBody>,
) -> Result<StatusCode, Problem> {
    if body.products.len() > PUT_MAX {
        return Err(invalid(format!("products: must be at most {PUT_MAX}")));
    }
    let mut all = Vec::with_capacity(body.products.len());
    for (index, new) in body.products.into_iter().enumerate() {
        let at = |error: String| invalid(format!("products[{index}].{error}"));
        let sku = Sku::new(&new.sku).map_err(|error| at(format!("sku: {error}")))?;
        new.product.check().map_err(at)?;
        all.push((sku, new.product));
    }
    write(&history, &all).await
}

/// Store a product in the origin's product table
#[utoipa::path(
    put,
    path = "/products/{sku}",
    operation_id = "setProduct",
    params(("sku" = String, Path, description = "The SKU.", min_length = 1, max_length = 64)),
    request_body = Product,
    responses((status = 204, description = "The product is stored")),
)]
pub(super) async fn put(
    history: History,
    Path(sku): Path<String>,
    TypedBody(product): TypedBody<Product>,
) -> Result<StatusCode, Problem> {
    let sku = Sku::new(sku).map_err(invalid_sku)?;
    product.check().map_err(invalid)?;
    write(&history, &[(sku, product)]).await
}

/// This origin sees the change immediately, others when their cache entries expire.
async fn write(history: &History, products: &[FoundProduct]) -> Result<StatusCode, Problem> {
    history.store().put_products(products).await?;
    let skus: Vec<Sku> = products.iter().map(|(sku, _)| sku.clone()).collect();
    history.products().forget(&skus);
    Ok(StatusCode::NO_CONTENT)
}

/// Get a product from the origin's product table
#[utoipa::path(
    get,
    path = "/products/{sku}",
    operation_id = "getProduct",
    params(("sku" = String, Path, description = "The SKU.", min_length = 1, max_length = 64)),
    responses((status = 200, description = "The product", body = StoredProduct)),
)]
pub(super) async fn get(
    history: History,
    Path(sku): Path<String>,
) -> Result<Json<StoredProduct>, Problem> {
    let sku = Sku::new(sku).map_err(invalid_sku)?;
    let found = history.store().products(std::slice::from_ref(&sku)).await?;
    let (sku, product) = found.into_iter().next().ok_or_else(unknown)?;
    let sku = sku.to_string();
    Ok(Json(StoredProduct { sku, product }))
}

/// Delete a product from the origin's product table
#[utoipa::path(
    delete,
    path = "/products/{sku}",
    operation_id = "deleteProduct",
    params(("sku" = String, Path, description = "The SKU.", min_length = 1, max_length = 64)),
    responses((status = 204, description = "The product is deleted")),
)]
pub(super) async fn delete(
    history: History,
    Path(sku): Path<String>,
) -> Result<StatusCode, Problem> {
    let sku = Sku::new(sku).map_err(invalid_sku)?;
    let was_there = history.store().delete_product(&sku).await?;
    history.products().forget(std::slice::from_ref(&sku));
    match was_there {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown()),
    }
}

fn invalid(detail: String) -> Problem {
    INVALID_PRODUCT.because(detail)
}

fn unknown() -> Problem {
    UNKNOWN_PRODUCT.because("the table has no such product")
}
