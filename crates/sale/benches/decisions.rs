//! Measures the decisions on one request: `cargo bench -p weir-sale`.
#![allow(clippy::unwrap_used)]
#![allow(missing_docs)] // criterion's macros make functions without

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_sale::admission::admit;
use weir_sale::claim::Ticket;
use weir_sale::ledger::ShardProbe;
use weir_sale::sale::{Band, Catalogue, Degrade, Sale, SaleState};
use weir_sale::shard::home_shard;
use weir_sale::sold_out::SoldOutMemory;
use weir_sale::token::{self, Ages};

const NOW_MS: u64 = 1_700_000_000_000;
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const SHARDS: u32 = 4;

fn user() -> UserId {
    UserId::new("u00000000042").unwrap()
}

fn sale(name: &str) -> Sale {
    Sale {
        id: SaleId::new(name).unwrap(),
        starts_at_ms: 1,
        ends_at_ms: u64::MAX,
        shards: SHARDS,
        first_shard: 0,
        user_cap: 1,
        state: SaleState::Open,
        reservation: false,
        token: true,
        challenge: None,
        degrade: Degrade::default(),
        sku: None,
        cold: false,
        band: Band::High,
        paused: false,
    }
}

fn ring() -> KeyRing {
    KeyRing::new(vec![SigningKey::new("t1", SECRET).unwrap()]).unwrap()
}

fn admission(criterion: &mut Criterion) {
    let names = (0..100).map(|n| sale(&format!("sale-{n}")));
    let catalogue = Catalogue {
        sales: names.collect(),
        ..Catalogue::default()
    };
    let catalogue = catalogue.checked().unwrap();
    let mut memory = SoldOutMemory::default();
    let removed = SaleId::new("sale-50").unwrap();
    let nothing = ShardProbe {
        stock: Some(0),
        epoch: 0,
        open_claims: 0,
        moving: 0,
    };
    memory.learn_probe(&removed, 0, &[nothing; SHARDS as usize]);
    let user = user();
    for (subject, name) in [("admit, open", "sale-7"), ("admit, sold out", "sale-50")] {
        criterion.bench_function(subject, |bencher| {
            bencher.iter(|| {
                let sale = catalogue.find(black_box(name.as_bytes())).unwrap();
                admit(SaleState::Open, sale, black_box(&user), &memory, NOW_MS)
            });
        });
    }
    criterion.bench_function("home shard", |bencher| {
        bencher.iter(|| home_shard(black_box(&user), SHARDS));
    });
}

fn signatures(criterion: &mut Criterion) {
    let (ring, user, sale) = (ring(), user(), sale("summer").id);
    criterion.bench_function("token minted", |bencher| {
        bencher.iter(|| token::mint(&ring, &sale, black_box(&user), NOW_MS));
    });
    let minted = token::mint(&ring, &sale, &user, NOW_MS - 5_000);
    criterion.bench_function("token checked", |bencher| {
        bencher.iter(|| {
            let token = black_box(minted.as_bytes());
            token::check(&ring, token, &sale, &user, NOW_MS, Ages::default()).unwrap();
        });
    });
    let ticket = Ticket {
        sale,
        shard: 3,
        generation: NOW_MS,
        quantity: 1,
        deadline_ms: NOW_MS + 30_000,
        user,
    };
    criterion.bench_function("claim ticket written and signed", |bencher| {
        bencher.iter(|| ring.sign(&black_box(&ticket).encode()));
    });
}

criterion_group!(decisions, admission, signatures);
criterion_main!(decisions);
