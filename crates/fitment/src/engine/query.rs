//! The state of one query: locations, then products, then the response.
//!
//! ```text
//! unplaced ──route──▶ placed ──ask──▶ asked ──▶ known, or lost
//!    ▲                                 │
//!    └──────── not there (any more) ◀──┘        at most twice
//! ```

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::check::{Check, StoredAnswer};
use crate::redis::fit_route::Route;
use crate::redis::keys::FitmentKeys;
use crate::redis::{fit_query, fit_route};
use crate::{Answer, Cluster, Offset, Placement, Plan, Sku};
use weir_base::resp::Value;
use weir_scripts::{Call, ReplyError};

use crate::engine::placement_cache::PlacementCache;
use crate::engine::stores::Kind;
use crate::engine::vehicles::Vehicles;

/// Maximum route reads per query: one for SKUs that are not cached, and one for SKUs that were absent, which may have
/// moved between two reads.
const ROUTE_READS_MAX: u8 = 2;

/// One query.
#[derive(Debug)]
pub(crate) struct Query {
    check: Check,
    /// The indices of the vehicles that the map contains.
    vehicles: Vec<usize>,
    offsets: Vec<Offset>,
    skus: Vec<State>,
    asks: Vec<ProductQuery>,
    /// The number of calls in flight.
    open: usize,
    route_reads: u8,
}

/// The state of a SKU.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Unplaced,
    Placed(Placement),
    Asked,
    Known(StoredAnswer),
    /// The SKU is known to be deleted.
    Gone,
}

/// The calls for one product.
#[derive(Debug)]
struct ProductQuery {
    /// The indices of its SKUs in the query.
    skus: Vec<usize>,
    /// The replies to its calls.
    replies: Vec<Option<Value>>,
}

/// Parameters of calls to Redis.
#[derive(Clone, Debug)]
pub(crate) struct QueryOptions {
    pub(crate) key_prefix: alloc::string::String,
    pub(crate) plan: Plan,
    /// Whether there is only one Redis: then a client's hint is a full location.
    pub(crate) is_one: bool,
}

/// Calls to send, by Redis.
pub(crate) type Calls = Vec<(Cluster, Vec<(Call, Kind)>)>;

impl Query {
    pub(crate) fn new(
        check: Check,
        vehicles: &Vehicles,
        places: &mut PlacementCache,
        options: &QueryOptions,
    ) -> Self {
        let numbered = check.vehicles.iter().enumerate();
        let found = numbered.filter_map(|(index, id)| Some((index, vehicles.find(*id)?)));
        let (indices, offsets) = found.unzip();
        let skus = check.skus.iter().map(|requested| {
            let remembered = places.find(&requested.sku);
            let hint = requested.spu.clone().filter(|_| options.is_one);
            let hinted = hint.map(|spu| Placement {
                cluster: Cluster::home(),
                spu,
            });
            remembered.or(hinted).map_or(State::Unplaced, State::Placed)
        });
        Self {
            skus: skus.collect(),
            check,
            vehicles: indices,
            offsets,
            asks: Vec::new(),
            open: 0,
            route_reads: 0,
        }
    }

    /// The next calls. Empty while calls are in flight, and after all data of Redis has been read.
    pub(crate) fn next(&mut self, options: &QueryOptions) -> Calls {
        if self.open > 0 || self.offsets.is_empty() {
            return Calls::new();
        }
        let mut calls = self.ask_products(options);
        let routes = self.read_routes(options);
        if !routes.is_empty() {
            calls.push((Cluster::home(), routes));
        }
        self.open = calls.iter().map(|(_, calls)| calls.len()).sum();
        calls
    }

    /// Whether calls are in flight.
    pub(crate) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// The number of SKUs without a location.
    pub(crate) fn unplaced_count(&self) -> usize {
        let unplaced = |state: &&State| **state == State::Unplaced;
        self.skus.iter().filter(unplaced).count()
    }

    fn ask_products(&mut self, options: &QueryOptions) -> Calls {
        let mut products = BTreeMap::<Placement, Vec<usize>>::new();
        for (index, state) in self.skus.iter_mut().enumerate() {
            if let State::Placed(place) = state {
                products.entry(place.clone()).or_default().push(index);
                *state = State::Asked;
            }
        }
        let mut by_cluster = BTreeMap::<Cluster, Vec<(Call, Kind)>>::new();
        for (place, skus) in products {
            let keys = FitmentKeys::new(&options.key_prefix, &place.spu);
            let names = skus.iter().filter_map(|index| self.sku(*index));
            let calls = fit_query::calls(options.plan, &keys, &self.offsets, names);
            let ask = self.asks.len();
            self.asks.push(ProductQuery {
                replies: vec![None; calls.len()],
                skus,
            });
            let kinds = (0..).map(|call| Kind::Fits { ask, call });
            let to = by_cluster.entry(place.cluster).or_default();
            to.extend(calls.into_iter().zip(kinds));
        }
        by_cluster.into_iter().collect()
    }

    fn read_routes(&mut self, options: &QueryOptions) -> Vec<(Call, Kind)> {
        let unplaced: Vec<usize> = (0..self.skus.len())
            .filter(|index| self.skus.get(*index) == Some(&State::Unplaced))
            .collect();
        if unplaced.is_empty() || self.route_reads == ROUTE_READS_MAX {
            return Vec::new();
        }
        self.route_reads += 1;
        let names = unplaced.iter().filter_map(|index| self.sku(*index));
        let calls = fit_route::calls(&options.key_prefix, names);
        let kind = |requested: Vec<usize>| {
            let of = requested.iter().filter_map(|at| unplaced.get(*at).copied());
            Kind::Routes(of.collect())
        };
        let with_kind = |(call, requested)| (call, kind(requested));
        calls.into_iter().map(with_kind).collect()
    }

    fn sku(&self, index: usize) -> Option<&Sku> {
        self.check.skus.get(index).map(|requested| &requested.sku)
    }

    /// Handles the reply to a call for routes.
    pub(crate) fn routes_read(
        &mut self,
        requested: &[usize],
        reply: &Value,
        places: &mut PlacementCache,
    ) -> Result<(), ReplyError> {
        self.open = self.open.saturating_sub(1);
        let routes = fit_route::parse(reply, requested.len())?;
        for (index, route) in requested.iter().zip(routes) {
            let state = match route {
                Some(Route {
                    place: Some(place), ..
                }) => {
                    if let Some(sku) = self.sku(*index) {
                        places.remember(sku.clone(), place.clone());
                    }
                    State::Placed(place)
                }
                Some(_) => State::Gone,
                None => State::Known(StoredAnswer::Absent),
            };
            self.set(*index, state);
        }
        Ok(())
    }

    /// Handles the reply to a call for a product.
    pub(crate) fn fits_read(
        &mut self,
        options: &QueryOptions,
        ask: usize,
        call: usize,
        reply: Value,
        places: &mut PlacementCache,
    ) -> Result<(), ReplyError> {
        self.open = self.open.saturating_sub(1);
        let Some(requested) = self.asks.get_mut(ask) else {
            return Ok(());
        };
        if let Some(place) = requested.replies.get_mut(call) {
            *place = Some(reply);
        }
        let replies: Option<Vec<Value>> = requested.replies.iter().cloned().collect();
        let Some(replies) = replies else {
            return Ok(());
        };
        let skus = core::mem::take(&mut requested.skus);
        let all = fit_query::parse(options.plan, &replies, self.offsets.len(), skus.len())?;
        for (index, stored) in skus.into_iter().zip(all) {
            self.stored(index, stored, places);
        }
        Ok(())
    }

    fn stored(&mut self, index: usize, stored: StoredAnswer, places: &mut PlacementCache) {
        let may_look_again = self.route_reads < ROUTE_READS_MAX;
        let state = match stored {
            StoredAnswer::Absent if may_look_again => State::Unplaced,
            stored => State::Known(stored),
        };
        if stored == StoredAnswer::Absent
            && let Some(sku) = self.sku(index)
        {
            places.forget(sku);
        }
        self.set(index, state);
    }

    fn set(&mut self, index: usize, state: State) {
        if let Some(place) = self.skus.get_mut(index) {
            *place = state;
        }
    }

    /// Whether the origin may have more data than Redis.
    pub(crate) fn has_gaps(&self) -> bool {
        let is_gap = |state: &State| match state {
            State::Known(StoredAnswer::Known(_)) | State::Gone => false,
            State::Known(_) | State::Unplaced | State::Placed(_) | State::Asked => true,
        };
        self.vehicles.len() < self.check.vehicles.len() || self.skus.iter().any(is_gap)
    }

    /// The response as JSON. `count` is called with the answer of each pair.
    pub(crate) fn answer(&self, mut count: impl FnMut(Answer)) -> Vec<u8> {
        let mut json = Vec::new();
        let answer = |sku: usize, vehicle: usize| {
            let answer = self.answer_of(sku, vehicle);
            count(answer);
            answer
        };
        self.check.write(answer, &mut json);
        json
    }

    fn answer_of(&self, sku: usize, vehicle: usize) -> Answer {
        let at = self
            .vehicles
            .iter()
            .position(|existing| *existing == vehicle);
        match (self.skus.get(sku), at) {
            (Some(State::Known(stored)), Some(at)) => stored.answer(at),
            _ => Answer::Unknown,
        }
    }
}
