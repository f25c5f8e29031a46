//! Products and their sources.

use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_history::Sku;

/// Product data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// The product that it is a variant of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 64)]
    pub spu: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 512)]
    pub title: Option<String>,
    /// URL of its picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 2048)]
    pub picture: Option<String>,
}

/// Maximum lengths, in characters, as in the SQL table.
const SPU_LEN_MAX: usize = 64;
const TITLE_LEN_MAX: usize = 512;
const PICTURE_LEN_MAX: usize = 2_048;

impl Product {
    /// Checks a product before it is stored in the table.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn check(&self) -> Result<(), String> {
        let is_ascii = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let at_most = |text: &Option<String>, max, name: &str| match text {
            Some(text) if text.is_empty() || text.chars().count() > max => {
                Err(format!("{name}: must have 1 to {max} characters"))
            }
            _ => Ok(()),
        };
        at_most(&self.spu, SPU_LEN_MAX, "spu")?;
        at_most(&self.title, TITLE_LEN_MAX, "title")?;
        at_most(&self.picture, PICTURE_LEN_MAX, "picture")?;
        if self.spu.as_deref().is_some_and(|spu| !is_ascii(spu)) {
            return Err("spu: must be visible ASCII".to_owned());
        }
        let is_url = |picture: &str| {
            let is_web = ["https://", "http://", "/"]
                .iter()
                .any(|start| picture.starts_with(start));
            is_web && is_ascii(picture)
        };
        match self.picture.as_deref() {
            Some(picture) if !is_url(picture) => {
                Err("picture: must be an http or https URL, or a path".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// This product, with missing fields taken from another one.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            spu: self.spu.or(other.spu),
            title: self.title.or(other.title),
            picture: self.picture.or(other.picture),
        }
    }
}

/// A product change from the upstream system. Missing fields stay unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductChange {
    /// The SKU.
    pub sku: Sku,
    /// Increases with each change of the SKU.
    pub version: u64,
    /// The new fields.
    pub product: Product,
}

/// A product that a source contains.
pub type FoundProduct = (Sku, Product);

/// Future of a product lookup.
pub type ProductFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<FoundProduct>, SourceError>> + Send + 'a>>;

/// A product source failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("products: {0}")]
pub struct SourceError(pub String);

/// A source of product data.
pub trait ProductSource: Send + Sync {
    /// Finds these products; unknown ones are left out.
    fn find<'a>(&'a self, skus: &'a [Sku]) -> ProductFuture<'a>;
}
