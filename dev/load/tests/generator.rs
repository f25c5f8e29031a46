//! The generator against servers that answer, stall, close and stay silent.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use weir_load::{Outcome, Pace, Plan, RunMark, run};

const ANSWER: &[u8] = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok";

/// A server that runs `serve` for each connection.
fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Answers requests one at a time until the client closes. Calls `before` with each request's number.
fn answer_all(mut stream: TcpStream, before: impl Fn(u64)) {
    let mut buffer = [0; 1_024];
    for number in 0.. {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(_) => before(number),
        }
        if stream.write_all(ANSWER).is_err() {
            return;
        }
    }
}

fn go(server: SocketAddr, pace: Pace, connections: usize, window_ms: u64) -> Outcome {
    let plan = Plan {
        server,
        connections,
        pace,
        warm_up: Duration::from_millis(50),
        window: Duration::from_millis(window_ms),
        core: None,
    };
    let mut marks = Vec::new();
    let mut numbers = Vec::new();
    let outcome = run(
        &plan,
        &mut |n, text| {
            numbers.push(n);
            text.extend(format!("GET /{n} HTTP/1.1\r\nhost: x\r\n\r\n").bytes());
        },
        &mut |mark| marks.push(mark),
    );
    assert_eq!(marks, [RunMark::Begin, RunMark::End]);
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64));
    outcome.unwrap()
}

#[test]
fn closed_loop_counts_answers_by_status_on_every_connection() {
    let server = server(|stream| answer_all(stream, |_| {}));
    let outcome = go(server, Pace::Closed, 7, 200);
    assert!(outcome.answers > 0 && outcome.rate() > 0.0);
    assert_eq!(outcome.latencies.count(), outcome.answers);
    assert_eq!(outcome.statuses.keys().copied().collect::<Vec<_>>(), [201]);
    assert_eq!((outcome.reconnects, outcome.unanswered), (0, 0));
}

/// One stall of 300 ms: about 200 requests are due more than 100 ms before its end. A closed loop would see only one of
/// them.
#[test]
fn open_loop_measures_requests_due_during_a_server_stall() {
    let stall = |number| {
        if number == 200 {
            std::thread::sleep(Duration::from_millis(300));
        }
    };
    let server = server(move |stream| answer_all(stream, stall));
    let pace = Pace::Open {
        per_second: 1_000.0,
    };
    let outcome = go(server, pace, 1, 1_000);
    assert!(
        (900..=1_100).contains(&outcome.latencies.count()),
        "{outcome:?}"
    );
    assert!(outcome.latencies.percentile_ms(85.0) >= 100.0);
}

#[test]
fn unanswered_request_counts_with_its_waiting_time() {
    let server = server(|stream| {
        answer_all(stream, |number| {
            if number == 100 {
                std::thread::sleep(Duration::from_secs(3_600));
            }
        });
    });
    let outcome = go(
        server,
        Pace::Open {
            per_second: 1_000.0,
        },
        1,
        300,
    );
    assert!(outcome.unanswered > 0, "{outcome:?}");
    assert!(outcome.latencies.percentile_ms(100.0) >= 2_000.0);
    assert!(outcome.latencies.count() > outcome.answers);
}

#[test]
fn connection_closed_by_the_server_is_reopened() {
    let server = server(|mut stream| {
        let mut buffer = [0; 1_024];
        let received = stream.read(&mut buffer);
        if received.is_ok_and(|read| read > 0) {
            stream.write_all(ANSWER).ok();
        }
    });
    let outcome = go(server, Pace::Closed, 2, 100);
    assert!(outcome.reconnects > 0 && outcome.answers > 0, "{outcome:?}");
}

#[test]
fn missing_server_is_an_error() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = listener.local_addr().unwrap();
    drop(listener);
    let plan = Plan {
        server,
        connections: 1,
        pace: Pace::Closed,
        warm_up: Duration::ZERO,
        window: Duration::ZERO,
        core: None,
    };
    assert!(run(&plan, &mut |_, _| {}, &mut |_| {}).is_err());
}
