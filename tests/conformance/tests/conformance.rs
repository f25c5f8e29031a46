//! Replays all vectors on every host, and verifies that the suite detects a single wrong byte.

use std::collections::BTreeSet;
use std::io::Write;

use tokio::runtime::Runtime;
use weir_conformance::host::Host;
use weir_conformance::hosts::{served, wasi};
use weir_conformance::vector::{Changes, Content, Entry, Outcome, Vector, read_all};
use weir_conformance::{hosts, make, suite, tokens};
use weir_stack::edge;
use weir_stack::tools::Options;

/// The minimum number of vectors, and of those that property tests generate.
const VECTORS_MIN: usize = 300;
const GENERATED_MIN: usize = 40;

/// The maximum number of vectors that a host may skip: one with a path that Envoy refuses, four with requests that wait
/// while the clock is stopped.
const LEFT_OUT_MAX: usize = 5;

/// The minimum number of vectors that an edge must answer itself, so that it does not simply forward everything.
const AT_EDGES_MIN: usize = 250;

fn start(name: &str, runtime: &Runtime) -> Box<dyn Host> {
    hosts::start(name, runtime, &Options::default()).unwrap()
}

fn passes(name: &str) {
    let left_out = left_out_by(name);
    assert!(left_out <= LEFT_OUT_MAX, "{left_out}");
}

/// The number of vectors that the host skips; all others have the expected result.
fn left_out_by(name: &str) -> usize {
    let runtime = Runtime::new().unwrap();
    let mut host = start(name, &runtime);
    let vectors = read_all().unwrap();
    let report = suite::run(host.as_mut(), &vectors).unwrap();
    assert!(report.failures.is_empty(), "{}", suite::table(&[report]));
    let left_out: usize = report.left_out.values().sum();
    assert_eq!(report.passed + left_out, vectors.len());
    left_out
}

#[test]
fn engines_pass_the_vectors() {
    passes("engine");
}

#[test]
fn filters_in_host_test_pass_the_vectors() {
    passes("host-test");
}

#[test]
fn filters_in_envoy_pass_the_vectors() {
    passes("wasm");
}

/// Needs the feature `wasi`: it builds its own runtime.
#[test]
#[cfg_attr(not(feature = "wasi"), ignore = "needs the feature wasi")]
fn wasi_edge_passes_the_vectors_or_forwards() {
    let count = read_all().unwrap().len() - left_out_by(wasi::NAME);
    assert!(count >= AT_EDGES_MIN, "{count}");
}

/// Edges in the runtimes of their platforms. Missing platforms are printed past the test's captured output, with a
/// count.
#[test]
#[cfg_attr(not(feature = "wasi"), ignore = "needs the feature wasi")]
fn edges_on_platforms_pass_the_vectors_or_forward() {
    let runtime = Runtime::new().unwrap();
    let vectors = read_all().unwrap();
    for name in [served::FASTLY, served::CLOUDFLARE] {
        let is_there = match name {
            served::FASTLY => edge::viceroy().map(drop),
            _ => edge::workerd().map(drop),
        };
        if let Err(error) = is_there {
            let text = format!(
                "\n{name} was not run, none of {} vectors: {error:#}\n",
                vectors.len()
            );
            std::io::stderr().write_all(text.as_bytes()).unwrap();
            continue;
        }
        let report = suite::run(start(name, &runtime).as_mut(), &vectors).unwrap();
        assert!(report.failures.is_empty(), "{}", suite::table(&[report]));
        assert!(report.passed >= AT_EDGES_MIN, "{name}: {}", report.passed);
    }
}

/// Whether an origin could have published this state: while Redis has units, SQL has some left, and the origin does not
/// publish "sold out".
fn could_be_published(vector: &Vector) -> bool {
    let has_units = |(key, entry): (&String, &Entry)| {
        key.ends_with(":stock") && entry.value != Content::String("0".into())
    };
    let says_none = |(key, entry): (&String, &Entry)| {
        let text = serde_json::to_string(entry).unwrap();
        key.ends_with(":catalogue") && text.contains(r#"\"band\":\"none\""#)
    };
    !(vector.stored.iter().any(has_units) && vector.stored.iter().any(says_none))
}

/// If an edge does not forward a request, its answer is the same as a gateway's, even where a gateway would query
/// Redis.
#[test]
fn edge_answers_like_a_gateway_or_forwards() {
    let (mut answered, mut other) = (0, Vec::new());
    // Feeds carry changes between requests, and are constant here.
    let current = |vector: &Vector| vector.steps.iter().all(|step| step.stored.is_empty());
    let vectors = read_all().unwrap().into_iter().filter(current);
    for vector in vectors.filter(could_be_published) {
        let Ok(Some(outcomes)) = wasi::policy::replay(&vector) else {
            continue;
        };
        for (step, received) in vector.steps.iter().zip(outcomes) {
            let is_sent_on = matches!(received, Outcome::WentOn { .. });
            answered += usize::from(!is_sent_on);
            // A gateway returns the charge of a request that it later refuses; an edge is not informed of refusals.
            let is_coarse = received.summary().starts_with("429");
            if !is_sent_on && !is_coarse && received != step.expect {
                other.push((vector.name.clone(), received.summary(), step.says.clone()));
            }
        }
    }
    assert!(other.is_empty(), "{other:#?}");
    assert!(answered >= AT_EDGES_MIN, "{answered}");
}

#[test]
fn native_module_in_envoy_passes_the_vectors() {
    passes("native");
}

#[test]
fn fast_path_passes_the_vectors_in_each_delivery() {
    passes("fast-path");
}

#[test]
fn signatures_of_one_host_verify_on_another() {
    let runtime = Runtime::new().unwrap();
    let is_there = |name: &&&str| match **name {
        wasi::NAME => cfg!(feature = "wasi"),
        served::FASTLY => cfg!(feature = "wasi") && edge::viceroy().is_ok(),
        served::CLOUDFLARE => cfg!(feature = "wasi") && edge::workerd().is_ok(),
        _ => true,
    };
    let mut running: Vec<_> = hosts::NAMES
        .iter()
        .filter(is_there)
        .map(|name| start(name, &runtime))
        .collect();
    let matrix = tokens::matrix(&mut running, &read_all().unwrap()).unwrap();
    assert!(matrix.is_right(), "\n{}", matrix.table());
}

/// A vector without the results that the engines filled in.
fn by_hand(mut vector: Vector) -> Vector {
    vector.effect = Changes::new();
    for step in &mut vector.steps {
        step.expect = Outcome::Unknown;
    }
    vector
}

#[test]
fn vector_files_match_their_generators() {
    let vectors: Vec<Vector> = read_all().unwrap();
    assert!(vectors.len() >= VECTORS_MIN, "{}", vectors.len());
    let generated = vectors
        .iter()
        .filter(|vector| vector.name.contains("/generated/"));
    assert!(generated.count() >= GENERATED_MIN);
    let names: BTreeSet<&str> = vectors.iter().map(|vector| vector.name.as_str()).collect();
    assert_eq!(names.len(), vectors.len(), "two vectors have one name");
    let mut created = make::all();
    created.sort_by(|a, b| a.name.cmp(&b.name));
    let mut vectors: Vec<Vector> = vectors.into_iter().map(by_hand).collect();
    vectors.sort_by(|a, b| a.name.cmp(&b.name));
    for (vectors, created) in vectors.iter().zip(&created) {
        assert_eq!(
            vectors, created,
            "cargo xtask conformance --write makes the files anew"
        );
    }
    assert_eq!(vectors.len(), created.len());
}

/// All variants of an expectation that differ by one byte.
fn changed(vector: &Vector) -> Vec<Vector> {
    let mut all = Vec::new();
    let mut change = |edit: &dyn Fn(&mut Vector)| {
        let mut other = vector.clone();
        edit(&mut other);
        assert_ne!(&other, vector);
        all.push(other);
    };
    for index in 0..vector.steps.len() {
        change(&|vector| vector.steps[index].says.push('!'));
        match &vector.steps[index].expect {
            Outcome::Unknown => panic!("{} expects nothing", vector.name),
            Outcome::Answered { headers, .. } => {
                let count = headers.len();
                change(&|vector| edit_answer(vector, index, |status, _, _| *status += 1));
                change(&|vector| edit_answer(vector, index, |_, _, body| body.push('!')));
                for at in 0..count {
                    change(&|vector| {
                        edit_answer(vector, index, |_, headers, _| headers[at].1.push('!'))
                    });
                    change(&|vector| {
                        edit_answer(vector, index, |_, headers, _| drop(headers.remove(at)))
                    });
                }
            }
            Outcome::WentOn { added, .. } => {
                for at in 0..added.len() {
                    change(&|vector| {
                        if let Outcome::WentOn { added, .. } = &mut vector.steps[index].expect {
                            added[at].1.push('!');
                        }
                    });
                }
                change(&|vector| {
                    if let Outcome::WentOn { removed, .. } = &mut vector.steps[index].expect {
                        removed.push(("x-a".into(), "1".into()));
                    }
                });
            }
        }
    }
    for key in vector.effect.keys() {
        change(&|vector| drop(vector.effect.remove(key)));
        change(&|vector| {
            let entry = vector.effect.get_mut(key).and_then(Option::as_mut);
            match entry {
                Some(entry) => entry.expires_at_ms = Some(entry.expires_at_ms.unwrap_or(0) + 1),
                None => drop(
                    vector
                        .effect
                        .insert(key.clone(), Some(Content::String("x".into()).into())),
                ),
            }
        });
    }
    all
}

fn edit_answer(
    vector: &mut Vector,
    index: usize,
    edit: impl Fn(&mut u16, &mut Vec<(String, String)>, &mut String),
) {
    if let Outcome::Answered {
        status,
        headers,
        body,
    } = &mut vector.steps[index].expect
    {
        edit(status, headers, body);
    }
}

#[test]
fn one_changed_byte_is_detected() {
    let runtime = Runtime::new().unwrap();
    let mut host = start("engine", &runtime);
    let vectors = read_all().unwrap();
    for name in [
        "sale/stock/the-last-unit",
        "token/matrix/minted",
        "links/click-limit/of-2",
        "limits/told/grpc",
    ] {
        let vector = vectors.iter().find(|vector| vector.name == name).unwrap();
        let changed = changed(vector);
        assert!(changed.len() > 4);
        let report = suite::run(host.as_mut(), &changed).unwrap();
        assert_eq!(report.passed, 0, "{name}");
    }
}
