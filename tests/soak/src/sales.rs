//! One sale per period, and its stock balance.

use anyhow::{Result, ensure};
use serde_json::json;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use weir_stack::Stack;
use weir_tests::{StockBalance, stock_balance};

/// Units and shards of a sale.
const TOTAL: u64 = 500;
const SHARDS: u32 = 4;

/// How long a unit is held for an unpaid order.
const HOLD: Duration = Duration::from_secs(15);

/// The time limit after a sale's last buyer until all units are back: a hold, a claim's lifetime, the reconciler's
/// rounds, and a fault of that period.
const DRAIN_LIMIT: Duration = Duration::from_secs(90);
const DRAIN_POLL: Duration = Duration::from_millis(500);

/// Sales to check.
#[derive(Debug, Default)]
pub(crate) struct Sales {
    remaining: VecDeque<String>,
}

/// The result of checking a sale.
#[derive(Debug, Clone)]
pub(crate) struct Checked {
    pub(crate) sale: String,
    /// The problem, if any.
    pub(crate) problem: Option<String>,
}

impl Sales {
    /// Opens the sale of a period.
    pub(crate) async fn open(stack: &Stack, sale: &str) -> Result<()> {
        let hold_ms = u64::try_from(HOLD.as_millis())?;
        let more = json!({ "payment": { "hold": { "pay_within_ms": hold_ms } } });
        stack.open_sale_with(sale, TOTAL, SHARDS, more).await
    }

    /// Marks a sale whose buyers have left.
    pub(crate) fn leave(&mut self, sale: String) {
        self.remaining.push_back(sale);
    }

    /// Checks the sales that were left at least `rests` sales ago.
    pub(crate) async fn check(&mut self, stack: &Stack, rests: usize) -> Vec<Checked> {
        let mut checked = Vec::new();
        while self.remaining.len() > rests {
            let Some(sale) = self.remaining.pop_front() else {
                break;
            };
            let problem = drained(stack, &sale).await.err();
            checked.push(Checked {
                sale,
                problem: problem.map(|problem| format!("{problem:#}")),
            });
        }
        checked
    }
}

/// Waits until all units of a sale without payments are in stock again.
async fn drained(stack: &Stack, sale: &str) -> Result<()> {
    let deadline = Instant::now() + DRAIN_LIMIT;
    loop {
        let stock_balance = stock_balance(stack, sale).await;
        if let Ok(stock_balance) = stock_balance {
            ensure!(stock_balance.orders <= TOTAL, "oversold: {stock_balance:?}");
            if is_whole(&stock_balance) {
                return Ok(());
            }
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        ensure!(!remaining.is_zero(), "units are missing: {stock_balance:?}");
        sleep(DRAIN_POLL).await;
    }
}

fn is_whole(stock_balance: &StockBalance) -> bool {
    stock_balance.balance()
        && stock_balance.orders == 0
        && stock_balance.held == 0
        && stock_balance.stock == TOTAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_extra_unit_fails_the_sale_check() {
        let whole = StockBalance {
            total: TOTAL,
            orders: 0,
            remaining: TOTAL,
            stock: TOTAL,
            held: 0,
        };
        assert!(is_whole(&whole));
        for stock in [TOTAL - 1, TOTAL + 1] {
            assert!(!is_whole(&StockBalance { stock, ..whole }));
        }
        let held = StockBalance {
            held: 1,
            stock: TOTAL - 1,
            ..whole
        };
        assert!(!is_whole(&held));
    }
}
