//! Runs every target on its committed corpus and on mutations of it.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_fuzz::{TARGETS, Target};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The file names in a folder, without extensions, sorted.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// The corpus of a target, sorted.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{folder:?} is empty");
    let with_bytes = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap();
        (path, bytes)
    };
    paths.into_iter().map(with_bytes).collect()
}

/// Runs the target, and reports the input if it fails.
fn run(target: Target, name: &str, input: &[u8], origin: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        let displayed = input.escape_ascii();
        panic!("{name} fails on {origin}: b\"{displayed}\"");
    }
}

#[test]
fn fuzz_targets_match_the_corpora_and_binaries() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).into()).collect();
    assert_eq!(names(&folder("corpus")), targets);
    assert_eq!(names(&folder("fuzz_targets")), targets);
    let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();
    for target in targets {
        assert!(
            manifest.contains(&format!("name = \"{target}\"\n")),
            "{target}"
        );
    }
}

#[test]
fn corpus_inputs_pass_their_fuzz_targets() {
    for (name, target) in TARGETS {
        for (path, input) in corpus(name) {
            run(target, name, &input, &path.display().to_string());
        }
    }
}

#[test]
fn mutated_corpus_inputs_pass_their_fuzz_targets() {
    const ROUNDS: usize = 10_000;
    const TIME_MAX: Duration = Duration::from_secs(2);
    for (name, target) in TARGETS {
        let seeds: Vec<Vec<u8>> = corpus(name).into_iter().map(|(_, bytes)| bytes).collect();
        let (mut random, start) = (Random(0x5eed), Instant::now());
        for round in 0..ROUNDS {
            if start.elapsed() > TIME_MAX {
                break;
            }
            let input = mutate(&seeds, &mut random);
            run(target, name, &input, &format!("mutation {round}"));
        }
    }
}

/// A seed with a few changes.
fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = random.pick(seeds).clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = at + random.below((bytes.len() - at).min(16) + 1);
        match random.below(6) {
            0 => {
                bytes.drain(at..end);
            }
            1 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            2 => {
                let other = random.pick(seeds);
                let from = random.below(other.len() + 1);
                let to = from + random.below((other.len() - from).min(32) + 1);
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            3 => bytes.insert(at, *random.pick(b"0019-+:$*;,/?{}\"\r\n \x00\x1e\x7f\xff")),
            4 => bytes.truncate(at),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    bytes
}

/// SplitMix64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
