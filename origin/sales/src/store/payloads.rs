//! Buyers' data in orders, and its schemas.

use serde_json::Value;
use sqlx::Error;
use weir_base::id::SaleId;

use super::{FoundOrder, SaleStore};
use crate::model::payload::Payload;
use weir_origin_core::sql::{MANY, SqlError, Tx, damaged, filled, in_many, sql};

const SELECT_SCHEMA: &str = "SELECT document FROM payload_schemas WHERE sale_id = ?";

const DELETE_SCHEMA: &str = "DELETE FROM payload_schemas WHERE sale_id = ?";

const INSERT_SCHEMA: &str = "INSERT INTO payload_schemas (sale_id, document) VALUES (?, ?)";

const INSERT_PAYLOAD: &str = "INSERT INTO order_payloads (order_id, payload) VALUES (?, ?)";

const UPDATE_PAYLOAD: &str = "UPDATE order_payloads SET payload = ? WHERE order_id = ?";

const SELECT_PAYLOAD: &str = "SELECT payload FROM order_payloads WHERE order_id = ?";

const SELECT_PAYLOADS: &str =
    in_many!("SELECT order_id, payload FROM order_payloads WHERE order_id");

/// Buyers' data in orders, and its schemas.
#[derive(Clone, Copy, Debug)]
pub struct PayloadStore<'a>(pub(super) &'a SaleStore);

impl PayloadStore<'_> {
    /// Returns a sale's payload schema; `None`: it has none.
    pub async fn payload_schema(self, sale: &SaleId) -> Result<Option<Value>, SqlError> {
        let row = self
            .0
            .db
            .one(sql(SELECT_SCHEMA).text(sale.as_str()))
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let document = row.text("document")?;
        let document = serde_json::from_str(&document);
        Ok(Some(document.map_err(|error| damaged("document", error))?))
    }

    /// Returns the payload of an order.
    pub async fn payload(self, order_id: &str) -> Result<Option<Payload>, SqlError> {
        let row = self.0.db.one(sql(SELECT_PAYLOAD).text(order_id)).await?;
        let payload = row.map(|row| row.text("payload")).transpose()?;
        Ok(payload.map(Payload::of_sql))
    }

    pub(super) async fn add_payloads(self, found: &mut [FoundOrder]) -> Result<(), SqlError> {
        for some in found.chunks_mut(MANY) {
            let ids: Vec<String> = some.iter().map(|one| one.order.id.clone()).collect();
            let names: Vec<&str> = ids.iter().map(String::as_str).collect();
            let select = filled(&names).fold(sql(SELECT_PAYLOADS), |select, id| select.text(id));
            for row in &self.0.db.all(select).await? {
                let order = row.text("order_id")?;
                let payload = Payload::of_sql(row.text("payload")?);
                if let Some(one) = some.iter_mut().find(|one| one.order.id == order) {
                    one.payload = Some(payload);
                }
            }
        }
        Ok(())
    }
}

/// Sets or deletes a sale's payload schema.
pub(super) async fn set_schema(
    tx: &mut Tx,
    sale: &SaleId,
    schema: Option<&Value>,
) -> Result<(), Error> {
    tx.execute(sql(DELETE_SCHEMA).text(sale.as_str())).await?;
    if let Some(schema) = schema {
        let document = schema.to_string();
        let insert = sql(INSERT_SCHEMA).text(sale.as_str()).text(&document);
        tx.execute(insert).await?;
    }
    Ok(())
}

/// Stores the payload of a new order.
pub(super) async fn insert(tx: &mut Tx, order_id: &str, payload: &Payload) -> Result<(), Error> {
    let insert = sql(INSERT_PAYLOAD).text(order_id).text(payload.as_str());
    if !tx.insert(insert).await? {
        // A payload of an earlier order with this id exists; that order was deleted from SQL.
        let update = sql(UPDATE_PAYLOAD).text(payload.as_str()).text(order_id);
        tx.execute(update).await?;
    }
    Ok(())
}

/// Reads the payload of an order in a transaction.
pub(super) async fn in_transaction(tx: &mut Tx, order_id: &str) -> Result<Option<Payload>, Error> {
    let row = tx.one(sql(SELECT_PAYLOAD).text(order_id)).await?;
    let payload = row.map(|row| row.text("payload")).transpose()?;
    Ok(payload.map(Payload::of_sql))
}
