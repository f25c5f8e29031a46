//! A SKU moves from one product to another during a query, while its relations change. The test checks every order of
//! the steps on the model. No answer may be wrong, and a SKU that always existed may never be "unknown".
//!
//! The writer writes the new location, switches the route, and drops the old location; it may crash after any step and
//! start again. The reader uses a cached route or reads it, reads the location, and if the SKU is absent reads the
//! route once more.

use weir_fitment::check::StoredAnswer;
use weir_fitment::model::{Product, Routes};
use weir_fitment::{Answer, Cluster, Offset, Placement, Plan, Shape, Sku, Spu};

/// Vehicles that the parts fit: this one before and after the change, that one only after it.
const ALWAYS: u32 = 3;
const LATER: u32 = 60_001;

fn sku() -> Sku {
    Sku::new("S1").unwrap()
}

fn shape(numbers: &[u32]) -> Shape {
    let offsets: Vec<Offset> = numbers.iter().filter_map(|n| Offset::new(*n)).collect();
    Shape::from_offsets(Plan::Directory, &offsets, 2)
}

fn place(index: usize) -> Placement {
    Placement {
        cluster: Cluster::home(),
        spu: Spu::new(format!("P{index}")).unwrap(),
    }
}

/// Redis with two products.
#[derive(Clone)]
struct Store {
    products: [Product; 2],
    routes: Routes,
}

impl Store {
    fn new() -> Self {
        let mut store = Self {
            products: Default::default(),
            routes: Routes::default(),
        };
        store.products[0].put(&sku(), 1, false, &shape(&[ALWAYS]));
        store.routes.put(&sku(), 1, false, Some(place(0)));
        store
    }

    /// One call of the writer, which moves the SKU to the second product at version 2, or, at version 3, also adds a
    /// vehicle.
    fn write(&mut self, (version, step): (u64, u8)) {
        let offsets: &[u32] = if version == 3 {
            &[ALWAYS, LATER]
        } else {
            &[ALWAYS]
        };
        match step {
            0 => drop(self.products[1].put(&sku(), version, false, &shape(offsets))),
            1 => drop(self.routes.put(&sku(), version, false, Some(place(1)))),
            _ => drop(self.products[0].drop(0, &[(sku(), version)])),
        }
    }

    fn route(&self) -> Option<usize> {
        let (_, place) = self.routes.get(&sku())?;
        let name = &place.as_ref()?.spu;
        (0..2).find(|index| place_name(*index) == name.as_str())
    }

    fn ask(&self, index: usize) -> StoredAnswer {
        let vehicles = [ALWAYS, LATER].map(|number| Offset::new(number).unwrap());
        self.products[index].query(&vehicles, &sku())
    }
}

fn place_name(index: usize) -> String {
    format!("P{index}")
}

/// The reader's state after each call.
#[derive(Clone, Default)]
struct Reader {
    route: Option<usize>,
    looks: u8,
    reported: Option<StoredAnswer>,
}

impl Reader {
    fn step(&mut self, store: &Store) {
        match self.route {
            None => {
                self.route = store.route();
                self.looks += 1;
            }
            Some(index) => match store.ask(index) {
                StoredAnswer::Absent if self.looks < 2 => self.route = None,
                reply => self.reported = Some(reply),
            },
        }
    }
}

/// Tries every order of the writer's and the reader's calls.
fn every_order(store: &Store, writes: &[(u64, u8)], reader: &Reader, orders: &mut u32) {
    if let Some(reply) = reader.reported {
        *orders += 1;
        // It fits one vehicle from the start, and the other after the change: a relation that is not written yet may be
        // missing.
        assert_eq!(
            reply.answer(0),
            Answer::Fits,
            "a wrong answer, or an unknown SKU"
        );
        assert_ne!(reply.answer(1), Answer::Unknown);
        return;
    }
    if let Some((write, rest)) = writes.split_first() {
        let mut store = store.clone();
        store.write(*write);
        every_order(&store, rest, reader, orders);
    }
    let mut reader = reader.clone();
    reader.step(store);
    every_order(store, writes, &reader, orders);
}

fn check(writes: &[(u64, u8)]) {
    // With an outdated cached route, and without one.
    for route in [Some(0), None] {
        let reader = Reader {
            route,
            looks: u8::from(route.is_some()),
            reported: None,
        };
        let mut orders = 0;
        every_order(&Store::new(), writes, &reader, &mut orders);
        assert!(orders as usize > writes.len(), "{orders}");
    }
    let mut end = Store::new();
    writes.iter().for_each(|write| end.write(*write));
    assert_eq!(end.route(), Some(1));
    assert_eq!(end.ask(0), StoredAnswer::Absent);
}

#[test]
fn answers_stay_correct_during_a_product_move() {
    check(&[(2, 0), (2, 1), (2, 2)]);
}

#[test]
fn crashed_writer_restarts_its_move_safely() {
    for done in 0..=3 {
        let first = [(2, 0), (2, 1), (2, 2)].into_iter().take(done);
        let again = [(2, 0), (2, 1), (2, 2)];
        check(&first.chain(again).collect::<Vec<_>>());
    }
}

#[test]
fn concurrent_move_and_change_keep_answers_correct() {
    // Each has three steps; the writer of version 3 has read the result of the other.
    let all = orders_of(&[(2, 0), (2, 1), (2, 2)], &[(3, 0), (3, 1), (3, 2)]);
    assert_eq!(all.len(), 20);
    for writes in all {
        check(&writes);
        let mut end = Store::new();
        writes.iter().for_each(|write| end.write(*write));
        assert_eq!(
            end.ask(1),
            StoredAnswer::Known(0b11),
            "the later version counts"
        );
    }
}

/// A writer that stalled before its write, and continues long after the move.
#[test]
fn late_older_entry_does_not_restore_old_placement() {
    let mut store = Store::new();
    for step in 0..3 {
        store.write((2, step));
    }
    assert!(!store.products[0].put(&sku(), 1, false, &shape(&[ALWAYS])));
    assert!(!store.routes.put(&sku(), 1, false, Some(place(0))));
    assert_eq!(
        (store.route(), store.ask(0)),
        (Some(1), StoredAnswer::Absent)
    );
}

fn orders_of(a: &[(u64, u8)], b: &[(u64, u8)]) -> Vec<Vec<(u64, u8)>> {
    let (Some((first_a, rest_a)), Some((first_b, rest_b))) = (a.split_first(), b.split_first())
    else {
        return vec![[a, b].concat()];
    };
    let behind = |first: &(u64, u8), rests: Vec<Vec<(u64, u8)>>| {
        let rests = rests.into_iter();
        rests
            .map(|rest| [&[*first], &rest[..]].concat())
            .collect::<Vec<_>>()
    };
    let with_a = behind(first_a, orders_of(rest_a, b));
    [with_a, behind(first_b, orders_of(a, rest_b))].concat()
}
