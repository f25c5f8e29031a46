//! The public status of a sale: its state, its times, and its approximate stock.

use serde::Serialize;

use crate::sale::{Band, Phase, Sale, SaleState};
use weir_base::id::SaleId;

/// A sale's public status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SaleStatus<'a> {
    /// The sale's id.
    pub id: &'a SaleId,
    /// Its state.
    pub state: Stage,
    /// Start time, in milliseconds since the Unix epoch.
    pub starts_at_ms: u64,
    /// End time (exclusive), in milliseconds since the Unix epoch.
    pub ends_at_ms: u64,
    /// The gateway's time, for countdowns, because clients' clocks may be wrong.
    pub now_ms: u64,
    /// Approximate stock level.
    pub remaining: Band,
    /// Whether buyers need a reservation.
    pub reservation: bool,
    /// Whether orders need an order token.
    pub token: bool,
}

/// State of a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SaleStage))]
pub enum Stage {
    /// It has not started, or its stock is not loaded yet.
    Scheduled,
    /// It accepts orders.
    Running,
    /// No units are left; some may return until the sale ends.
    SoldOut,
    /// It is over.
    Ended,
    /// An operator closed it, or answers it with a page.
    Closed,
    /// It accepts no new buyers.
    Draining,
    /// SQL has lost orders of it; an operator must decide.
    Paused,
}

impl<'a> SaleStatus<'a> {
    /// The status of `sale` under the effective `switch`.
    pub fn new(switch: SaleState, sale: &'a Sale, now_ms: u64) -> SaleStatus<'a> {
        let is_sold_out = sale.band == Band::None;
        SaleStatus {
            id: &sale.id,
            state: stage(switch, sale, is_sold_out, now_ms),
            starts_at_ms: sale.starts_at_ms,
            ends_at_ms: sale.ends_at_ms,
            now_ms,
            remaining: sale.band,
            reservation: sale.reservation && !sale.degrade.skip_reservation,
            token: sale.token,
        }
    }
}

fn stage(switch: SaleState, sale: &Sale, is_sold_out: bool, now_ms: u64) -> Stage {
    if switch == SaleState::Closed || sale.degrade.static_page {
        return Stage::Closed;
    }
    if sale.paused {
        return Stage::Paused;
    }
    match sale.phase(now_ms) {
        Phase::NotStarted { .. } => Stage::Scheduled,
        Phase::Running if sale.cold => Stage::Scheduled,
        Phase::Ended => Stage::Ended,
        Phase::Running if switch == SaleState::Drain => Stage::Draining,
        Phase::Running if is_sold_out => Stage::SoldOut,
        Phase::Running => Stage::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::tests::sale;

    const OPEN: SaleState = SaleState::Open;

    fn of(switch: SaleState, sale: &Sale, now_ms: u64) -> (Stage, Band) {
        let status = SaleStatus::new(switch, sale, now_ms);
        (status.state, status.remaining)
    }

    #[test]
    fn sale_stage_follows_window_switch_and_remaining_stock() {
        let sale = sale("s");
        let stage = |switch, now_ms| of(switch, &sale, now_ms).0;
        assert_eq!(stage(OPEN, 999), Stage::Scheduled);
        assert_eq!(of(OPEN, &sale, 1_000), (Stage::Running, Band::High));
        assert_eq!(stage(SaleState::Shadow, 1_000), Stage::Running);
        assert_eq!(stage(SaleState::Drain, 1_000), Stage::Draining);
        assert_eq!(stage(SaleState::Closed, 1_000), Stage::Closed);
        assert_eq!(stage(OPEN, 2_000), Stage::Ended);
        let cold = Sale {
            cold: true,
            ..sale.clone()
        };
        assert_eq!(of(OPEN, &cold, 1_000).0, Stage::Scheduled);
        assert_eq!(of(OPEN, &cold, 2_000).0, Stage::Ended);
        let reserved = Sale {
            band: Band::Reserved,
            ..sale.clone()
        };
        assert_eq!(of(OPEN, &reserved, 1_000).0, Stage::Running);
        let sold = Sale {
            band: Band::None,
            ..sale
        };
        assert_eq!(of(OPEN, &sold, 1_000), (Stage::SoldOut, Band::None));
        let paused = Sale {
            paused: true,
            ..sold
        };
        assert_eq!(of(OPEN, &paused, 1_000).0, Stage::Paused);
        assert_eq!(of(SaleState::Closed, &paused, 1_000).0, Stage::Closed);
    }

    #[test]
    fn sale_status_round_trips_as_json() {
        let sale = Sale {
            reservation: true,
            band: Band::Low,
            ..sale("s")
        };
        let status = SaleStatus::new(OPEN, &sale, 7);
        assert_eq!(
            serde_json::to_string(&status).unwrap(),
            concat!(
                r#"{"id":"s","state":"scheduled","starts_at_ms":1000,"ends_at_ms":2000,"#,
                r#""now_ms":7,"remaining":"low","reservation":true,"token":false}"#
            )
        );
    }
}
