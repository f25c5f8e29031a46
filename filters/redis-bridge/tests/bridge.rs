//! The built filter in a Proxy-Wasm host: what its state machine decides reaches the wire.

use weir_host_test::{ConnState, Connection, Host};

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

fn start(config: &str) -> Host {
    let module = weir_stack::wasm::filter("redis-bridge").unwrap();
    Host::builder()
        .module_file(module)
        .plugin_config(config.as_bytes())
        .start()
        .unwrap()
}

fn call(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST / HTTP/1.1\r\nhost: weir_redis\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn response(replies: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
        replies.len()
    );
    [head.as_bytes(), replies].concat()
}

fn upstream_in_pieces(connection: &Connection, replies: &[u8], size: usize) -> Vec<u8> {
    replies
        .chunks(size)
        .flat_map(|piece| connection.upstream(piece))
        .collect()
}

#[test]
fn many_commands_in_one_call_wherever_the_replies_are_cut() {
    let host = start("");
    let connection = host.connection(0);
    let replies = b"+OK\r\n-ERR no\r\n*2\r\n*1\r\n:1\r\n$2\r\n\r\n\r\n$-1\r\n";
    for size in [1, 2, 3, 7, 1_000] {
        assert_eq!(connection.downstream(call(&PING.repeat(4))), PING.repeat(4));
        assert_eq!(
            upstream_in_pieces(&connection, replies, size),
            response(replies),
            "{size}"
        );
    }
}

#[test]
fn a_call_that_comes_in_pieces_passes_as_one() {
    let host = start("");
    let connection = host.connection(0);
    let bytes = call(&PING.repeat(2));
    let (last, first) = bytes.split_last().unwrap();
    for byte in first {
        assert_eq!(connection.downstream([*byte]), b"");
    }
    assert_eq!(connection.downstream([*last]), PING.repeat(2));
}

#[test]
fn replies_of_a_megabyte_pass_whole() {
    let host = start("");
    let connection = host.connection(0);
    connection.downstream(call(PING));
    let reply = [b"$1048576\r\n".as_slice(), &vec![0xff; 1_048_576], b"\r\n"].concat();
    assert_eq!(
        upstream_in_pieces(&connection, &reply, 16_384),
        response(&reply)
    );
}

#[test]
fn a_bad_call_is_answered_with_400_and_nothing_of_it_reaches_redis() {
    let host = start("");
    let connection = host.connection(0);
    let passed = connection.downstream(call(b"*1\r\n:1\r\n"));
    assert_eq!(
        passed, PING,
        "what makes redis_proxy answer, instead of the call"
    );
    let answer = String::from_utf8(connection.upstream(b"+PONG\r\n")).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
        "{answer}"
    );
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(
        connection.state(),
        ConnState::Open,
        "the caller closes, once it has read it"
    );
    connection.downstream(call(PING));
    assert_eq!(connection.state(), ConnState::ClosedByFilter);
}

#[test]
fn limits_are_configuration_and_end_in_413_or_502() {
    let host = start(r#"{ "request_bytes_max": 20, "replies_bytes_max": 10, "commands_max": 1 }"#);
    let status = |body: &[u8], reply: &[u8]| {
        let connection = host.connection(0);
        connection.downstream(call(body));
        let answer = connection.upstream(reply);
        String::from_utf8_lossy(&answer[9..12]).into_owned()
    };
    assert_eq!(status(PING, b"+PONG\r\n"), "200");
    assert_eq!(
        status(b"*1\r\n$12\r\n123456789012\r\n", b"+PONG\r\n"),
        "413"
    );
    assert_eq!(status(PING, b"+0123456789\r\n"), "502");
    assert_eq!(status(PING, b"nonsense\r\n"), "502");
}

#[test]
fn a_second_call_before_the_first_is_answered_closes_the_connection() {
    let host = start("");
    let connection = host.connection(0);
    connection.downstream(call(PING));
    assert_eq!(connection.downstream(call(PING)), b"");
    assert_eq!(connection.state(), ConnState::ClosedByFilter);
}

#[test]
fn connections_do_not_mix() {
    let host = start("");
    let (a, b) = (host.connection(0), host.connection(0));
    a.downstream(call(PING));
    b.downstream(call(PING));
    assert_eq!(b.upstream(b"+B\r\n"), response(b"+B\r\n"));
    assert_eq!(a.upstream(b"+A\r\n"), response(b"+A\r\n"));
}

#[test]
fn a_caller_that_goes_leaves_nothing_behind() {
    let host = start("");
    for _ in 0..100 {
        let connection = host.connection(0);
        connection.downstream(call(PING));
        connection.downstream_close();
    }
    let contexts = host.open_contexts(weir_host_test::Thread::Worker(0));
    assert_eq!(contexts, 0, "no stream is left");
}

#[test]
fn a_bad_configuration_is_refused_by_the_fields_path() {
    let refused = |config: &str| {
        let module = weir_stack::wasm::filter("redis-bridge").unwrap();
        let started = Host::builder()
            .module_file(module)
            .plugin_config(config.as_bytes())
            .start();
        started.err().expect("refused").to_string()
    };
    let zero = refused(r#"{ "commands_max": 0 }"#);
    assert!(
        zero.contains("redis-bridge: configuration refused: commands_max: must be at least 1"),
        "{zero}"
    );
    assert!(refused(r#"{ "size": 1 }"#).contains("size: unknown field `size`"));
    assert!(refused(r#"{ "commands_max": -1 }"#).contains("commands_max: invalid value"));
}

/// What one call costs is a number, not a time. Raised only with a reason.
#[test]
fn a_call_stays_within_its_budget() {
    let host = start("");
    let connection = host.connection(0);
    let calls = 100;
    for _ in 0..calls {
        connection.downstream(call(&PING.repeat(2)));
        connection.upstream(b"+PONG\r\n+PONG\r\n");
    }
    let cost = connection.cost();
    // Two getters and two setters a call, and one log line's worth of set-up for the connection.
    assert!(
        cost.host_calls_total() <= 4 * calls + 4,
        "{}",
        cost.host_calls_total()
    );
    assert!(cost.fuel / calls < 12_000, "{}", cost.fuel / calls);
}
