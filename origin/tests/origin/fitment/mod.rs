//! Vehicle fitment on a real Redis and a real database.

mod api;
mod files;
mod garages;
mod imports;
mod map;
mod moves;
mod redis;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_fitment::check::StoredAnswer;
use weir_fitment::redis::fit_vehicles::VehicleMapVersion;
use weir_fitment::redis::keys::{FitmentKeys, VehicleMapKeys};
use weir_fitment::redis::{fit_query, fit_route, fit_vehicles};
use weir_fitment::{Answer, Offset, Placement, Plan, Sku, VehicleId};
use weir_origin::fitment::Fitment;

use crate::support::World;

fn sku(name: &str) -> Sku {
    Sku::new(name).unwrap()
}

fn vehicle(number: u32) -> VehicleId {
    VehicleId::from_number(1_000_000 + number).unwrap()
}

fn fitment(world: &World) -> &Fitment {
    world.origin.fitment().unwrap()
}

/// Creates vehicles 1 to `count`, and these SKUs of these products.
async fn catalogue(world: &World, count: u32, skus: &[(&str, &str)]) {
    let vehicles: Vec<_> = (1..=count)
        .map(|n| (vehicle(n), Default::default()))
        .collect();
    fitment(world)
        .store()
        .put_vehicles(&vehicles)
        .await
        .unwrap();
    for (sku, spu) in skus {
        put_product(world, sku, spu).await;
    }
}

async fn put_product(world: &World, sku: &str, spu: &str) {
    let body = json!({ "spu": spu, "type": "tyre", "merchant": "m1" });
    let path = format!("/fitment/products/{sku}");
    assert_eq!(world.admin("PUT", &path, &body).await.status, 204);
}

async fn add(world: &World, sku: &str, number: u32) -> u16 {
    let path = format!("/fitment/relations/{sku}/{}", vehicle(number));
    world.admin("PUT", &path, &json!({})).await.status.as_u16()
}

async fn remove(world: &World, sku: &str, number: u32) -> u16 {
    let path = format!("/fitment/relations/{sku}/{}", vehicle(number));
    world
        .admin("DELETE", &path, &Value::Null)
        .await
        .status
        .as_u16()
}

/// Waits until Redis has all changes from SQL.
async fn follow(world: &World) {
    while fitment(world).keep_map().await.unwrap() {}
    fitment(world).publish_dirty().await.unwrap();
}

/// The map as gateways cache it: offsets by id.
async fn map(world: &World) -> BTreeMap<VehicleId, Offset> {
    let keys = VehicleMapKeys::new(&world.prefix);
    let (mut existing, mut all) = (VehicleMapVersion::default(), Vec::new());
    loop {
        let reply = world
            .script(&fit_vehicles::call(&keys, existing, 50_000))
            .await;
        let Some(tail) = fit_vehicles::parse(&reply).unwrap() else {
            return BTreeMap::new();
        };
        if tail.head.generation != existing.generation {
            (existing, all) = (VehicleMapVersion::default(), Vec::new());
            existing.generation = tail.head.generation;
            continue;
        }
        all.extend(tail.vehicles);
        existing.count = all.len() as u32;
        if existing.count >= tail.head.count {
            break;
        }
    }
    let offsets = (1..).map(|number| Offset::new(number).unwrap());
    let existing = all.into_iter().zip(offsets);
    existing
        .filter_map(|(vehicle, offset)| Some((vehicle?, offset)))
        .collect()
}

async fn route(world: &World, sku: &Sku) -> Option<Placement> {
    let (call, _) = fit_route::calls(&world.prefix, [sku]).remove(0);
    let routes = fit_route::parse(&world.script(&call).await, 1).unwrap();
    routes.into_iter().next().unwrap()?.place
}

async fn query(world: &World, place: &Placement, offset: Offset, sku: &Sku) -> StoredAnswer {
    let keys = FitmentKeys::new(&world.prefix, &place.spu);
    let call = fit_query::calls(Plan::Directory, &keys, &[offset], [sku].into_iter()).remove(0);
    let reply = world.script(&call).await;
    fit_query::parse(Plan::Directory, &[reply], 1, 1).unwrap()[0]
}

/// The answer from Redis alone, as a gateway reads it.
async fn in_redis(world: &World, name: &str, number: u32) -> Answer {
    let sku = sku(name);
    let (Some(place), Some(offset)) = (
        route(world, &sku).await,
        map(world).await.get(&vehicle(number)).copied(),
    ) else {
        return Answer::Unknown;
    };
    query(world, &place, offset, &sku).await.answer(0)
}

/// The origin's answers, one label per vehicle.
async fn check(world: &World, name: &str, numbers: &[u32]) -> Vec<String> {
    let vehicles: Vec<_> = numbers.iter().map(|n| vehicle(*n).to_string()).collect();
    let body = json!({ "vehicles": vehicles, "skus": [name] });
    let answer = world.admin("POST", "/fitment/check", &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answers = answer.body["skus"][0]["answers"]
        .as_array()
        .unwrap()
        .clone();
    answers
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}
