//! What buyers say with their orders, and what sales want of it.

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

/// What buyers say with their orders, and what sales want of it.
#[derive(Clone, Copy, Debug)]
pub struct PayloadStore<'a>(pub(super) &'a SaleStore);

impl PayloadStore<'_> {
    /// What a sale wants of payloads, in JSON Schema; `None`: it takes none.
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

    /// What its buyer has said with an order.
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

/// Notes what a sale wants from now on.
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

/// Keeps what a buyer has said with a new order.
pub(super) async fn insert(tx: &mut Tx, order_id: &str, payload: &Payload) -> Result<(), Error> {
    let insert = sql(INSERT_PAYLOAD).text(order_id).text(payload.as_str());
    if !tx.insert(insert).await? {
        // An order of this name was there, and somebody has taken it out of SQL.
        let update = sql(UPDATE_PAYLOAD).text(payload.as_str()).text(order_id);
        tx.execute(update).await?;
    }
    Ok(())
}

/// The payload of an order, within a transaction.
pub(super) async fn in_transaction(tx: &mut Tx, order_id: &str) -> Result<Option<Payload>, Error> {
    let row = tx.one(sql(SELECT_PAYLOAD).text(order_id)).await?;
    let payload = row.map(|row| row.text("payload")).transpose()?;
    Ok(payload.map(Payload::of_sql))
}
