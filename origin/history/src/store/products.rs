//! The product table: the product source without a product service.

use std::sync::LazyLock;

use weir_history::Sku;

use super::HistoryStore;
use super::removals::sku;
use crate::model::products::{
    FoundProduct, Product, ProductChange, ProductFuture, ProductSource, SourceError,
};
use weir_origin_core::sql::{Columns, Plain, SqlError, Tx, insert_into, retried, sql, update};

/// Number of products per statement.
const SELECTED: usize = 50;

/// Has [`SELECTED`] placeholders.
const SELECT: &str = concat!(
    "SELECT * FROM history_products WHERE sku IN (",
    "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ",
    "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);

static UPDATE: LazyLock<String> =
    LazyLock::new(|| update::<Product>("history_products", &["changed_at_ms"]) + " WHERE sku = ?");

static INSERT: LazyLock<String> =
    LazyLock::new(|| insert_into::<Product>("history_products", &["changed_at_ms", "sku"]));

weir_origin_core::columns!(Product {
    spu: Plain["spu"],
    title: Plain["title"],
    picture: Plain["picture"],
});

const SELECT_ONE: &str = "SELECT * FROM history_products WHERE sku = ?";

const UPDATE_SOURCE: &str =
    "UPDATE history_products SET source_version = ? WHERE sku = ? AND source_version < ?";

const DELETE: &str = "DELETE FROM history_products WHERE sku = ?";

impl HistoryStore {
    /// Finds products in the table.
    pub async fn products(&self, skus: &[Sku]) -> Result<Vec<FoundProduct>, SqlError> {
        let mut found = Vec::with_capacity(skus.len());
        for chunk in skus.chunks(SELECTED) {
            // Repeat the last SKU to fill the remaining placeholders.
            let last = chunk.last().into_iter().cycle();
            let places = chunk.iter().chain(last).take(SELECTED);
            let select = places.fold(sql(SELECT), |select, sku| select.text(sku.as_str()));
            for row in self.db.all(select).await? {
                found.push((sku(&row)?, Product::read(&row)?));
            }
        }
        Ok(found)
    }

    /// Creates or replaces products.
    pub async fn put_products(&self, products: &[FoundProduct]) -> Result<(), SqlError> {
        Ok(retried(|| self.try_put(products)).await?)
    }

    async fn try_put(&self, products: &[FoundProduct]) -> Result<(), sqlx::Error> {
        let now_ms = (self.clock)();
        let mut tx = self.db.begin().await?;
        for (sku, product) in products {
            put(&mut tx, now_ms, sku, product).await?;
        }
        tx.commit().await
    }

    /// Applies product changes in order, each once. Returns false for outdated changes.
    pub async fn change_products(&self, changes: &[ProductChange]) -> Result<Vec<bool>, SqlError> {
        Ok(retried(|| self.try_change(changes)).await?)
    }

    async fn try_change(&self, changes: &[ProductChange]) -> Result<Vec<bool>, sqlx::Error> {
        let now_ms = (self.clock)();
        let mut tx = self.db.begin().await?;
        let mut applied = Vec::with_capacity(changes.len());
        for ProductChange {
            sku,
            version,
            product,
        } in changes
        {
            // Two origins may change one product concurrently, so lock the row before reading it.
            let lock = || {
                sql(UPDATE_SOURCE)
                    .number(*version)
                    .text(sku.as_str())
                    .number(*version)
            };
            let mut is_new = tx.execute(lock()).await? > 0;
            if !is_new {
                let nothing = Product::default();
                let insert = nothing.bind(sql(&INSERT)).number(now_ms);
                tx.insert(insert.text(sku.as_str())).await?;
                is_new = tx.execute(lock()).await? > 0;
            }
            if is_new {
                let row = tx.one(sql(SELECT_ONE).text(sku.as_str())).await?;
                let old = row.as_ref().map(Product::read).transpose()?;
                let product = product.clone().or(old.unwrap_or_default());
                put(&mut tx, now_ms, sku, &product).await?;
            }
            applied.push(is_new);
        }
        tx.commit().await?;
        Ok(applied)
    }

    /// Deletes a product. Returns whether it existed.
    pub async fn delete_product(&self, sku: &Sku) -> Result<bool, SqlError> {
        Ok(self.db.execute(sql(DELETE).text(sku.as_str())).await? > 0)
    }
}

async fn put(tx: &mut Tx, now_ms: u64, sku: &Sku, product: &Product) -> Result<(), sqlx::Error> {
    let with_values = |statement| {
        let statement = product.bind(sql(statement)).number(now_ms);
        statement.text(sku.as_str())
    };
    if tx.execute(with_values(&UPDATE)).await? == 0 && !tx.insert(with_values(&INSERT)).await? {
        tx.execute(with_values(&UPDATE)).await?;
    }
    Ok(())
}

impl ProductSource for HistoryStore {
    fn find<'a>(&'a self, skus: &'a [Sku]) -> ProductFuture<'a> {
        Box::pin(async move {
            let found = self.products(skus).await;
            found.map_err(|error| SourceError(error.to_string()))
        })
    }
}
