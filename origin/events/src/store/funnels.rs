//! Times of events by type, in the order of customers, for funnels.

use sqlx::Error;

use super::segments::{CHUNK, END, SELECT_CHUNK};
use super::{CustomerRange, EventStore};
use weir_origin_core::sql::{MANY, Row, SqlError, filled, in_many_then, sql};

/// Maximum number of events of a statement. A customer with more than this is not a person.
const ROWS_MAX: u32 = 50_000;

const SELECT_RANGE: &str = "
    SELECT customer, at_ms FROM events
    WHERE type = ? AND customer > ? AND customer <= ? AND at_ms >= ? AND at_ms < ?
    ORDER BY customer, at_ms LIMIT ?";

const SELECT_CUSTOMERS: &str = in_many_then!(
    "SELECT customer, at_ms FROM events WHERE type = ? AND at_ms >= ? AND at_ms < ? AND customer",
    " ORDER BY customer, at_ms LIMIT ?"
);

/// The times of events, with their customers, and whether these are all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTimes {
    /// The customer and the time of each event, in milliseconds since the Unix epoch.
    pub events: Vec<(String, u64)>,
    /// Whether these are all events.
    pub is_complete: bool,
}

/// Reads the events of funnels.
#[derive(Clone, Copy, Debug)]
pub struct FunnelStore<'a>(pub(super) &'a EventStore);

impl FunnelStore<'_> {
    /// The customers of about 1,000 events of the type, after this customer.
    pub async fn customer_range(
        self,
        event_type: &str,
        after: &str,
    ) -> Result<CustomerRange, SqlError> {
        let select = sql(SELECT_CHUNK).text(event_type).text(after);
        let row = self.0.db.one(select.number(CHUNK - 1)).await?;
        let to = row.map(|row| row.text("customer")).transpose()?;
        Ok(CustomerRange {
            after: after.to_owned(),
            is_last: to.is_none(),
            to: to.unwrap_or_else(|| END.to_owned()),
        })
    }

    /// The events of a type from one time to before another, of the customers in a range.
    pub async fn times_in(
        self,
        event_type: &str,
        range: &CustomerRange,
        (from_ms, to_ms): (u64, u64),
    ) -> Result<EventTimes, SqlError> {
        let select = sql(SELECT_RANGE).text(event_type);
        let select = select.text(&range.after).text(&range.to);
        let select = select.number(from_ms).number(to_ms).number(ROWS_MAX);
        let mut times = EventTimes {
            is_complete: true,
            ..EventTimes::default()
        };
        times.add(&self.0.db.all(select).await?)?;
        Ok(times)
    }

    /// The events of a type from one time to before another, of these customers.
    pub async fn times_of(
        self,
        event_type: &str,
        customers: &[&str],
        (from_ms, to_ms): (u64, u64),
    ) -> Result<EventTimes, SqlError> {
        let mut times = EventTimes {
            is_complete: true,
            ..EventTimes::default()
        };
        for some in customers.chunks(MANY) {
            let select = sql(SELECT_CUSTOMERS).text(event_type);
            let select = select.number(from_ms).number(to_ms);
            let select = filled(some).fold(select, |select, customer| select.text(customer));
            times.add(&self.0.db.all(select.number(ROWS_MAX)).await?)?;
        }
        Ok(times)
    }
}

impl EventTimes {
    fn add(&mut self, rows: &[Row]) -> Result<(), Error> {
        self.is_complete &= rows.len() < ROWS_MAX as usize;
        for row in rows {
            let event = (row.text("customer")?, row.number("at_ms")?);
            self.events.push(event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_origin_core::sql::plan::plan;

    #[tokio::test]
    async fn funnel_queries_read_parts_of_an_index() {
        for (statement, index) in [
            (
                SELECT_RANGE,
                "COVERING INDEX events_by_type (type=? AND customer>?",
            ),
            (
                SELECT_CUSTOMERS,
                "COVERING INDEX events_by_type (type=? AND customer=?",
            ),
        ] {
            let plan = plan(&[crate::MIGRATIONS], statement).await;
            assert!(
                plan.iter().any(|step| step.contains(index)),
                "{statement}: {plan:?}"
            );
        }
    }
}
