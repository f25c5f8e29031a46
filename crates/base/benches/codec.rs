//! A batch of 64 claims, written, framed and read: `cargo bench -p weir-resp`.
#![allow(missing_docs)] // criterion's macros make functions without

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use weir_base::resp::{Direction, Framer, decode, encode_command};

const CLAIMS: usize = 64;

/// The arguments of `claim.lua` for one shard.
fn arguments() -> Vec<Vec<u8>> {
    let fixed = ["EVALSHA", "0123456789abcdef0123456789abcdef01234567", "7"];
    let names = [
        "stock", "claims", "pending", "epoch", "sequence", "reserved", "blocked",
    ];
    let keys = names.iter().map(|name| format!("weir:{{summer:3}}:{name}"));
    let terms = ["1700000000000", "30000", "1", "1", "b", "64"];
    let users = (0..CLAIMS).map(|n| format!("u{n:011}"));
    let buckets = (0..CLAIMS).map(|n| (n * 4).to_string());
    let fixed = fixed.iter().map(ToString::to_string);
    let terms = terms.iter().map(ToString::to_string);
    let all = fixed.chain(keys).chain(terms).chain(users).chain(buckets);
    all.map(String::into_bytes).collect()
}

/// The replies of `claim.lua`.
fn replies() -> Vec<u8> {
    let granted = |n| format!("1 {} 1 1700000030000 0", 1_700_000_000_000 + n);
    let answers: Vec<String> = (0..CLAIMS as u64).map(granted).collect();
    let text = answers.join(",");
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

fn codec(criterion: &mut Criterion) {
    let (arguments, replies) = (arguments(), replies());
    let mut command = Vec::new();
    encode_command(&mut command, arguments.iter().map(Vec::as_slice));

    let mut group = criterion.benchmark_group("64 claims");
    group.throughput(Throughput::Bytes(command.len() as u64));
    group.bench_function("command written", |bencher| {
        let mut out = Vec::new();
        bencher.iter(|| {
            out.clear();
            encode_command(&mut out, black_box(&arguments).iter().map(Vec::as_slice));
            out.len()
        });
    });
    group.bench_function("command framed", |bencher| {
        bencher.iter(|| Framer::new(Direction::Commands).advance(black_box(&command), usize::MAX));
    });
    group.throughput(Throughput::Bytes(replies.len() as u64));
    group.bench_function("replies framed", |bencher| {
        bencher.iter(|| Framer::new(Direction::Replies).advance(black_box(&replies), usize::MAX));
    });
    group.bench_function("replies read", |bencher| {
        bencher.iter(|| decode(black_box(&replies)))
    });
    group.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);
