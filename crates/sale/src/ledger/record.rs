//! A shard's record of one user.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{DELIVERIES_MAX, Deduction, OpenClaim, OrderEntry};

/// One user's claim and orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The last claim, open or not.
    pub(super) generation: u64,
    /// The units of the open claim; 0 without one.
    pub(super) held: u64,
    /// The open claim's deadline.
    pub(super) deadline_ms: u64,
    /// The number of deliveries of the open claim.
    pub(super) deliveries: u32,
    /// The deliveries that are not released: one bit each.
    pub(super) out: u32,
    /// The existing orders, oldest first.
    pub(super) orders: Vec<OrderEntry>,
}

impl Record {
    /// The record of a user with these orders and no open claim.
    pub(super) fn from_orders(orders: &[OrderEntry]) -> Self {
        Self {
            orders: orders.to_vec(),
            ..Self::default()
        }
    }

    pub(super) fn is_open(&self, generation: u64) -> bool {
        self.held > 0 && self.generation == generation
    }

    /// Whether it contains no data.
    pub(super) fn is_blank(&self) -> bool {
        self.held == 0 && self.orders.is_empty()
    }

    /// Ends the open claim and returns its units.
    pub(super) fn close(&mut self) -> u64 {
        self.deadline_ms = 0;
        self.deliveries = 0;
        self.out = 0;
        core::mem::take(&mut self.held)
    }

    /// The order of this generation.
    pub(super) fn order(&self, generation: u64) -> Option<&OrderEntry> {
        let mut orders = self.orders.iter();
        orders.find(|order| order.generation == generation)
    }

    /// The units of all existing orders.
    pub(super) fn ordered(&self) -> u64 {
        self.orders.iter().map(|order| order.units).sum()
    }

    /// The units of the orders with this deduction.
    pub(super) fn ordered_so(&self, deduction: Deduction) -> u64 {
        self.orders
            .iter()
            .filter(|order| order.deduction == deduction)
            .map(|order| order.units)
            .sum()
    }

    /// Removes and returns the order of this generation.
    pub(super) fn take_order(&mut self, generation: u64) -> Option<OrderEntry> {
        let at = self
            .orders
            .iter()
            .position(|order| order.generation == generation)?;
        Some(self.orders.remove(at))
    }

    /// Delivers the open claim.
    pub(super) fn deliver(&mut self) -> OpenClaim {
        let delivery = self.deliveries.min(DELIVERIES_MAX);
        self.deliveries = delivery + 1;
        self.out |= 1 << delivery;
        OpenClaim {
            delivery,
            ..self.as_open_claim()
        }
    }

    /// Releases a delivery. Returns whether others remain.
    pub(super) fn take_back(&mut self, delivery: u32) -> bool {
        if delivery < DELIVERIES_MAX {
            self.out &= !(1 << delivery);
        }
        self.out != 0
    }

    /// The open claim as its first delivery.
    pub(super) fn as_open_claim(&self) -> OpenClaim {
        OpenClaim {
            delivery: 0,
            generation: self.generation,
            // Only a grant writes it, from a `u32`.
            quantity: self.held as u32,
            deadline_ms: self.deadline_ms,
        }
    }
}
