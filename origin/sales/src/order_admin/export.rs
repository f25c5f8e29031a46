//! Streams orders as CSV: one page is in memory at a time, and the next one is read when the client has received it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tracing::warn;

use crate::model::payload::Payload;
use crate::store::{FoundOrder, OrderFilter, SaleStore};
use weir_origin_core::http::csv::Csv;
use weir_origin_core::sql::SqlError;

/// Number of orders per page.
const PAGE_LEN: usize = 500;

const COLUMNS: [&str; 18] = [
    "order",
    "sale",
    "user",
    "quantity",
    "status",
    "created_at_ms",
    "paid_at_ms",
    "ended_at_ms",
    "pay_by_ms",
    "payment",
    "payment_state",
    "payment_reason",
    "payment_reference",
    "payload",
    "sku",
    "unit_amount",
    "amount",
    "currency",
];

/// A CSV table as a stream. It ends with an error if SQL does not answer, so that clients detect an incomplete table.
#[derive(Debug)]
pub struct Export(Receiver<Result<Bytes, SqlError>>);

/// Starts to read the orders that match `filter`.
pub fn export(store: SaleStore, filter: OrderFilter) -> Export {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        if let Err(error) = read(&store, &filter, &sender).await {
            warn!(%error, "order export interrupted");
            // The client has disconnected; nothing to report.
            let _ = sender.send(Err(error)).await;
        }
    });
    Export(receiver)
}

async fn read(
    store: &SaleStore,
    filter: &OrderFilter,
    sender: &Sender<Result<Bytes, SqlError>>,
) -> Result<(), SqlError> {
    let mut csv = Csv::new(&COLUMNS);
    let mut after = None;
    loop {
        let page = store
            .search()
            .find_orders(filter, after.as_ref(), PAGE_LEN)
            .await?;
        for order in &page {
            line(&mut csv, order);
        }
        let chunk = std::mem::take(&mut csv).finish();
        if sender.send(Ok(chunk.into())).await.is_err() || page.len() < PAGE_LEN {
            return Ok(());
        }
        after = page.last().map(FoundOrder::cursor);
    }
}

fn line(csv: &mut Csv, found: &FoundOrder) {
    let number =
        |existing: Option<u64>| existing.map_or_else(String::new, |existing| existing.to_string());
    let (order, payment) = (&found.order, found.payments.last());
    csv.line(&[
        &order.id,
        order.sale.as_str(),
        order.user.as_str(),
        &order.units.to_string(),
        order.status.label(),
        &order.created_at_ms.to_string(),
        &number(found.paid_at_ms),
        &number(found.ended_at_ms),
        &number(order.pay_by_ms),
        payment.map_or("", |payment| &payment.id),
        payment.map_or("", |payment| payment.state.label()),
        payment.map_or("", |payment| &payment.reason),
        payment.map_or("", |payment| &payment.reference),
        found.payload.as_ref().map_or("", Payload::as_str),
        order.sku.as_deref().unwrap_or_default(),
        &number(order.price.map(|price| price.unit_amount)),
        &number(order.price.map(|price| price.times(order.units).amount)),
        order
            .price
            .as_ref()
            .map_or("", |price| price.currency.as_str()),
    ]);
}

impl Body for Export {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let chunk = self.0.poll_recv(context);
        chunk.map(|chunk| Some(chunk?.map(Frame::data).map_err(io::Error::other)))
    }
}
