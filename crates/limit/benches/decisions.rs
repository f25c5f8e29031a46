//! Measures the decisions on one request: `cargo bench -p weir-limit`.
#![allow(missing_docs)] // criterion's macros make functions without

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use weir_limit::{Fingerprint, Quota, Slot};

const NOW_MS: u64 = 1_700_000_000_000;

fn limits(criterion: &mut Criterion) {
    let quota = Quota::per_second(20, 40);
    criterion.bench_function("token bucket in a slot", |bencher| {
        let mut bytes = Vec::new();
        let mut now_ms = NOW_MS;
        bencher.iter(|| {
            now_ms += 100;
            let fingerprint = Fingerprint::new(7, black_box(b"u00000000042"));
            let mut slot = Slot::read(std::mem::take(&mut bytes), &quota);
            let mut state = slot.state(&quota, fingerprint, now_ms);
            let check = state.check(&quota, 1);
            state.charge(&quota, 1);
            slot.put(&quota, fingerprint, &state, now_ms);
            bytes = slot.as_bytes().to_vec();
            check
        });
    });
}

criterion_group!(decisions, limits);
criterion_main!(decisions);
