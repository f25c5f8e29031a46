//! Random schedules of queries, moves, losses and failures: each client gets one answer, and it is correct.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::Value as Json;
use weir_engine::StreamId;
use weir_fitment::model::LostKey;
use weir_fitment::{Placement, Spu};

use crate::host::{Host, home, question, sku};

/// A low rate of origin queries, so that most gaps are answered here.
const CONFIG: &str = r#"{"redis":{"deadline_ms":100},"places_max":4,
    "origin":{"limit":{"rate":1,"per":"1s","burst":1}}}"#;

const SKUS: usize = 4;
const SPUS: usize = 3;
const VEHICLES: u32 = 4;

#[derive(Clone, Debug)]
enum Step {
    Ask(Vec<u32>, Vec<usize>),
    /// Changes the relations of a SKU.
    Change(usize, BTreeSet<u32>),
    /// Moves a SKU to another product.
    Move(usize, usize),
    Lose(usize),
    LoseRoutes,
    Reply(usize),
    Fail(usize),
    Tick(u64),
    Leave(usize),
    Disconnect,
    Connect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let vehicles = proptest::collection::vec(1..=VEHICLES + 1, 1..=3);
    let skus = proptest::collection::vec(0..=SKUS, 1..=4);
    let fits = proptest::collection::btree_set(1..=VEHICLES, 0..3);
    let step = prop_oneof![
        6 => (vehicles, skus).prop_map(|(vehicles, skus)| Step::Ask(vehicles, skus)),
        2 => (0..SKUS, fits).prop_map(|(sku, fits)| Step::Change(sku, fits)),
        3 => (0..SKUS, 0..SPUS).prop_map(|(sku, spu)| Step::Move(sku, spu)),
        1 => (0..SKUS).prop_map(Step::Lose),
        1 => Just(Step::LoseRoutes),
        6 => (0..4_usize).prop_map(Step::Reply),
        1 => (0..4_usize).prop_map(Step::Fail),
        4 => prop_oneof![Just(1_u64), Just(20), Just(300)].prop_map(Step::Tick),
        1 => (0..4_usize).prop_map(Step::Leave),
        1 => Just(Step::Disconnect),
        2 => Just(Step::Connect),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The allowed answers to a query: every state of its SKUs since it was sent.
struct OpenQuestion {
    vehicles: Vec<u32>,
    skus: Vec<usize>,
    /// By SKU.
    truths: Vec<BTreeSet<BTreeSet<u32>>>,
}

struct World {
    host: Host,
    fits: Vec<BTreeSet<u32>>,
    places: Vec<Placement>,
    requested: BTreeMap<StreamId, OpenQuestion>,
    closed: BTreeSet<StreamId>,
}

fn name(number: usize) -> String {
    format!("S{number}")
}

impl World {
    fn new() -> Self {
        let mut host = Host::with(CONFIG);
        host.map(2, VEHICLES);
        host.learn();
        let places = vec![home("P0"); SKUS];
        for (number, place) in places.iter().enumerate() {
            host.put(&name(number), place, &[]);
        }
        Self {
            host,
            fits: vec![BTreeSet::new(); SKUS],
            places,
            requested: BTreeMap::new(),
            closed: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Ask(vehicles, skus) => self.ask(vehicles, skus),
            Step::Change(number, fits) => {
                self.fits[*number].clone_from(fits);
                self.write(*number);
                for requested in self.requested.values_mut() {
                    requested.truths[*number].insert(fits.clone());
                }
            }
            Step::Move(number, spu) => self.go(*number, *spu),
            Step::Lose(number) => {
                let place = &self.places[*number];
                let key = ("home".to_owned(), place.spu.clone());
                if let Some(product) = self.host.redis.products.get_mut(&key) {
                    product.lose(&LostKey::Set(sku(&name(*number))));
                }
            }
            Step::LoseRoutes => self.host.redis.routes = Default::default(),
            Step::Reply(index) => {
                if let Some(&batch) = self.host.calls.keys().nth(*index) {
                    self.host.reply(batch);
                }
            }
            Step::Fail(index) => {
                if let Some(&batch) = self.host.calls.keys().nth(*index) {
                    self.host.lose(batch);
                }
            }
            Step::Tick(ms) => {
                self.host.now_ms += ms;
                self.host.tick();
            }
            Step::Leave(index) => {
                let open = self
                    .requested
                    .keys()
                    .filter(|one| !self.closed.contains(one));
                if let Some(&stream) = open.copied().collect::<Vec<_>>().get(*index) {
                    self.closed.insert(stream);
                    self.host.close(stream);
                }
            }
            Step::Disconnect => self.host.is_connected = false,
            Step::Connect => self.host.is_connected = true,
        }
    }

    fn ask(&mut self, vehicles: &[u32], skus: &[usize]) {
        let names: Vec<String> = skus.iter().map(|number| name(*number)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let truths = self.fits.iter().map(|fits| BTreeSet::from([fits.clone()]));
        let requested = OpenQuestion {
            vehicles: vehicles.to_vec(),
            skus: skus.to_vec(),
            truths: truths.collect(),
        };
        let stream = self.host.ask(&question(vehicles, &names));
        self.requested.insert(stream, requested);
    }

    fn write(&mut self, number: usize) {
        let fits: Vec<u32> = self.fits[number].iter().copied().collect();
        self.host
            .put(&name(number), &self.places[number].clone(), &fits);
    }

    /// Writes the new location, switches the route, and drops the old location.
    fn go(&mut self, number: usize, spu: usize) {
        let to = home(&format!("P{spu}"));
        let from = std::mem::replace(&mut self.places[number], to.clone());
        self.write(number);
        if from != to {
            let key = ("home".to_owned(), Spu::new(from.spu.as_str()).unwrap());
            let old = self.host.redis.products.get_mut(&key).unwrap();
            old.drop(1, &[(sku(&name(number)), u64::MAX >> 12)]);
            old.forget(&[(sku(&name(number)), u64::MAX >> 12)]);
        }
    }

    fn check(&mut self) {
        self.host.is_connected = true;
        for _ in 0..20 {
            self.host.advance(100);
        }
        assert_eq!(self.host.engine.waiting(), 0);
        for (stream, requested) in &self.requested {
            if self.closed.contains(stream) || self.host.has_passed(*stream) {
                continue;
            }
            let (status, reply) = self.host.response(*stream);
            if status == 503 {
                continue;
            }
            assert_eq!(status, 200);
            for (index, number) in requested.skus.iter().enumerate() {
                requested.check_sku(*number, &reply["skus"][index]["answers"]);
            }
        }
    }
}

impl OpenQuestion {
    /// Checks that all answers for one SKU are from the same moment.
    fn check_sku(&self, number: usize, answers: &Json) {
        let answers: Vec<&str> = answers
            .as_array()
            .unwrap()
            .iter()
            .map(|answer| answer.as_str().unwrap())
            .collect();
        let of = |fits: &BTreeSet<u32>| -> Vec<&str> {
            let answer = |vehicle: &u32| match fits.contains(vehicle) {
                _ if *vehicle > VEHICLES => "unknown",
                true => "fits",
                false => "does_not",
            };
            self.vehicles.iter().map(answer).collect()
        };
        let is_unknown = answers.iter().all(|answer| *answer == "unknown");
        let truths = self.truths.get(number);
        let is_true = truths.is_some_and(|truths| truths.iter().any(|fits| of(fits) == answers));
        assert!(
            is_unknown || is_true,
            "S{number}: {answers:?}, true: {truths:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_answer_was_true_at_some_time(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.check();
    }
}
