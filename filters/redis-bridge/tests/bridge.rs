//! The built filter in a Proxy-Wasm host: the state machine's decisions reach the wire.

use weir_host_test::{Builder, ConnState, Connection, Host};

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

fn builder(config: &str) -> Builder {
    let module = weir_stack::wasm::filter("redis-bridge").unwrap();
    Host::builder()
        .module_file(module)
        .plugin_config(config.as_bytes())
}

fn start(config: &str) -> Host {
    builder(config).start().unwrap()
}

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nhost: weir_redis\r\ntransfer-encoding: chunked\r\n\r\n";

/// A connection whose caller has opened a stream.
fn open(host: &Host) -> Connection {
    let connection = host.connection(0);
    assert_eq!(connection.downstream(HEAD), b"");
    connection
}

fn message(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0], length.as_slice(), body].concat()
}

/// A call on an open stream.
fn call(body: &[u8]) -> Vec<u8> {
    let message = message(body);
    let size = format!("{:x}\r\n", message.len());
    [size.as_bytes(), &message, b"\r\n"].concat()
}

/// The answer to the first call of a stream.
fn first_answer(replies: &[u8]) -> Vec<u8> {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\n\
                 transfer-encoding: chunked\r\n\r\n";
    [head.as_slice(), &answer(replies)].concat()
}

/// The answer to any other.
fn answer(replies: &[u8]) -> Vec<u8> {
    let message = message(replies);
    let size = format!("{:08x}\r\n", message.len());
    [size.as_bytes(), &message, b"\r\n"].concat()
}

/// The end of a response.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn upstream_in_pieces(connection: &Connection, replies: &[u8], size: usize) -> Vec<u8> {
    replies
        .chunks(size)
        .flat_map(|chunk| connection.upstream(chunk))
        .collect()
}

#[test]
fn many_commands_in_one_call_pass_at_any_split_of_replies() {
    let host = start("");
    let connection = open(&host);
    let replies = b"+OK\r\n-ERR no\r\n*2\r\n*1\r\n:1\r\n$2\r\n\r\n\r\n$-1\r\n";
    for (index, size) in [1, 2, 3, 7, 1_000].into_iter().enumerate() {
        assert_eq!(connection.downstream(call(&PING.repeat(4))), PING.repeat(4));
        let expected = match index {
            0 => first_answer(replies),
            _ => answer(replies),
        };
        assert_eq!(
            upstream_in_pieces(&connection, replies, size),
            expected,
            "{size}"
        );
    }
}

#[test]
fn call_in_pieces_passes_as_one() {
    let host = start("");
    let connection = host.connection(0);
    let bytes = [HEAD, &call(&PING.repeat(2))].concat();
    let (before, end) = bytes.split_at(bytes.len() - 2);
    let (last, first) = before.split_last().unwrap();
    for byte in first {
        assert_eq!(connection.downstream([*byte]), b"");
    }
    assert_eq!(connection.downstream([*last]), PING.repeat(2));
    assert_eq!(connection.downstream(end), b"", "the end of the chunk");
    assert_eq!(connection.state(), ConnState::Open);
}

#[test]
fn megabyte_replies_pass_unchanged() {
    let host = start("");
    let connection = open(&host);
    connection.downstream(call(PING));
    let reply = [b"$1048576\r\n".as_slice(), &vec![0xff; 1_048_576], b"\r\n"].concat();
    assert_eq!(
        upstream_in_pieces(&connection, &reply, 16_384),
        first_answer(&reply)
    );
}

fn assert_takes_no_more(connection: &Connection) {
    assert_eq!(
        connection.state(),
        ConnState::Open,
        "the caller closes, once it has read the answer"
    );
    connection.downstream(call(PING));
    assert_eq!(connection.state(), ConnState::ClosedByFilter);
}

#[test]
fn bad_request_head_gets_400_and_never_reaches_redis() {
    let host = start("");
    let connection = host.connection(0);
    let passed = connection.downstream(b"POST / HTTP/1.1\r\ncontent-length: 14\r\n\r\n");
    assert_eq!(passed, PING, "what makes Redis answer");
    let answer = String::from_utf8(connection.upstream(b"+PONG\r\n")).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
        "{answer}"
    );
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert_takes_no_more(&connection);
}

#[test]
fn bad_call_is_refused_and_never_reaches_redis() {
    let host = start("");
    let connection = open(&host);
    let passed = connection.downstream(call(b"*1\r\n:1\r\n"));
    assert_eq!(passed, PING, "what makes Redis answer, instead of the call");
    let last = first_answer(b"refused: the body is not RESP commands");
    let expected = [&last, LAST_CHUNK].concat();
    assert_eq!(connection.upstream(b"+PONG\r\n"), expected);
    assert_takes_no_more(&connection);
}

#[test]
fn exceeding_a_configured_limit_ends_the_stream() {
    let host =
        start(r#"{ "request_bytes_max": 32768, "replies_bytes_max": 10, "commands_max": 1 }"#);
    let long = [b"*1\r\n$32768\r\n".as_slice(), &[b'x'; 32_768], b"\r\n"].concat();
    let check = |body: &[u8], reply: &[u8], expected: &str| {
        let connection = open(&host);
        connection.downstream(call(body));
        let last = first_answer(expected.as_bytes());
        let expected = [&last, LAST_CHUNK].concat();
        assert_eq!(connection.upstream(reply), expected);
    };
    let connection = open(&host);
    connection.downstream(call(PING));
    assert_eq!(
        connection.upstream(b"+PONG\r\n"),
        first_answer(b"+PONG\r\n")
    );
    check(
        &long,
        b"+PONG\r\n",
        "refused: the body is longer than request_bytes_max",
    );
    check(
        PING,
        b"+0123456789\r\n",
        "failed: the replies are longer than replies_bytes_max",
    );
    check(PING, b"nonsense\r\n", "failed: the replies are not RESP");
}

#[test]
fn second_call_before_first_reply_closes_the_connection() {
    let host = start("");
    let connection = open(&host);
    connection.downstream(call(PING));
    assert_eq!(connection.downstream(call(PING)), b"");
    assert_eq!(connection.state(), ConnState::ClosedByFilter);
}

#[test]
fn stream_ended_by_its_caller_closes_the_connection() {
    let host = start("");
    let connection = open(&host);
    assert_eq!(connection.downstream(LAST_CHUNK), b"");
    assert_eq!(connection.state(), ConnState::ClosedByFilter);
}

#[test]
fn connections_do_not_mix() {
    let host = start("");
    let (a, b) = (open(&host), open(&host));
    a.downstream(call(PING));
    b.downstream(call(PING));
    assert_eq!(b.upstream(b"+B\r\n"), first_answer(b"+B\r\n"));
    assert_eq!(a.upstream(b"+A\r\n"), first_answer(b"+A\r\n"));
}

#[test]
fn disconnected_caller_leaves_nothing_behind() {
    let host = start("");
    for _ in 0..100 {
        let connection = open(&host);
        connection.downstream(call(PING));
        connection.downstream_close();
    }
    let contexts = host.open_contexts(weir_host_test::Thread::Worker(0));
    assert_eq!(contexts, 0, "no stream is left");
}

#[test]
fn invalid_configuration_is_refused_by_its_field_path() {
    let refused = |config: &str| {
        let started = builder(config).start();
        started.err().expect("refused").to_string()
    };
    let zero = refused(r#"{ "commands_max": 0 }"#);
    assert!(
        zero.contains(
            "redis-bridge: configuration refused: commands_max: must be at least 1, is 0"
        ),
        "{zero}"
    );
    let small = refused(r#"{ "request_bytes_max": 100 }"#);
    assert!(
        small.contains("request_bytes_max: must be at least 32768, is 100"),
        "{small}"
    );
    assert!(refused(r#"{ "size": 1 }"#).contains("size: unknown field `size`"));
    assert!(refused(r#"{ "commands_max": -1 }"#).contains("commands_max: invalid value"));
}

const AUTH: &str =
    r#"{ "auth": { "username": "weir", "password": { "env": "WEIR_REDIS_PASSWORD" } } }"#;
const LOGIN: &[u8] = b"*3\r\n$4\r\nAUTH\r\n$4\r\nweir\r\n$6\r\nsesame\r\n";

fn start_with_password() -> Host {
    let host = builder(AUTH).env("WEIR_REDIS_PASSWORD", "sesame");
    host.start().unwrap()
}

#[test]
fn password_is_sent_once_per_connection_and_reply_is_dropped() {
    let host = start_with_password();
    for _ in 0..2 {
        let connection = open(&host);
        let passed = connection.downstream(call(PING));
        assert_eq!(passed, [LOGIN, PING].concat());
        assert_eq!(connection.upstream(b"+OK\r"), b"");
        let answered = connection.upstream(b"\n+PONG\r\n");
        assert_eq!(answered, first_answer(b"+PONG\r\n"));
        assert_eq!(connection.downstream(call(PING)), PING);
        assert_eq!(connection.upstream(b"+OK\r\n"), answer(b"+OK\r\n"));
    }
}

#[test]
fn refused_login_ends_the_stream_with_the_redis_error() {
    let host = start_with_password();
    let connection = open(&host);
    connection.downstream(call(PING));
    let passed = connection.upstream(b"-WRONGPASS invalid password\r\n-NOAUTH no\r\n");
    let last = first_answer(b"login: WRONGPASS invalid password");
    assert_eq!(passed, [&last, LAST_CHUNK].concat());
    assert_eq!(connection.upstream(b"+PONG\r\n"), b"", "no raw reply");
    assert_takes_no_more(&connection);
    assert!(!host.logged("sesame"));
}

#[test]
fn missing_password_variable_is_refused_by_name() {
    let refused = builder(AUTH).start().err().expect("refused").to_string();
    assert!(refused.contains("auth.password.env"), "{refused}");
    assert!(refused.contains("WEIR_REDIS_PASSWORD"), "{refused}");
}

/// The cost of a call is a number, not a time. Raise it only with a reason.
#[test]
fn bridge_call_stays_within_its_cost_budget() {
    let host = start("");
    let connection = open(&host);
    let calls = 100;
    for _ in 0..calls {
        connection.downstream(call(&PING.repeat(2)));
        connection.upstream(b"+PONG\r\n+PONG\r\n");
    }
    let cost = connection.cost();
    // Two getters and two setters per call, and one log line's set-up for the connection.
    assert!(
        cost.host_calls_total() <= 4 * calls + 4,
        "{}",
        cost.host_calls_total()
    );
    assert!(cost.fuel / calls < 12_000, "{}", cost.fuel / calls);
}

/// After Redis has lost a script, the call contains it, possibly with a full batch.
#[test]
fn minimum_call_limit_fits_every_script() {
    const BOUND: usize = 32 * 1024;
    const BATCH: usize = 10 * 1024;
    let scripts = [
        weir_sale::redis::claim::SCRIPT.source,
        weir_limit::redis::limit::SCRIPT.source,
        weir_room::redis::room_ask::SCRIPT.source,
    ];
    for script in scripts {
        assert!(script.len() + BATCH < BOUND, "{}", script.len());
    }
}
