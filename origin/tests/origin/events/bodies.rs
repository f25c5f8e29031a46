//! Compressed bodies, and numbers in bodies.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use weir_event::limits::BODY_LEN_MAX;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8], window_log: u32) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(window_log).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

async fn post(world: &World, encoding: &str, body: Vec<u8>) -> Answer {
    let request = stamped(&server(), "POST", "/events")
        .header("content-type", "application/json")
        .header("content-encoding", encoding);
    world.public(request.body(Body::from(body)).unwrap()).await
}

fn events(prefix: &str) -> Vec<u8> {
    let events: Vec<Value> = (0..300)
        .map(|n| view(&format!("{prefix}{n}"), prefix))
        .collect();
    json!(events).to_string().into_bytes()
}

#[tokio::test]
async fn compressed_bodies_are_accepted_like_plain_ones() {
    let world = world(|_| {}).await;
    for (encoding, prefix, body) in [
        ("gzip", "a", gzip(&events("a"))),
        ("GZIP", "b", gzip(&events("b"))),
        ("zstd", "c", zstd(&events("c"), 23)),
        ("identity", "d", events("d")),
    ] {
        let answer = post(&world, encoding, body).await;
        assert_eq!(answer.status, 202, "{encoding}: {answer:?}");
        assert_eq!(answer.body["accepted"], 300, "{encoding}");
        until_stored(&world, prefix, 300).await;
    }
    // Business systems send them to the admin port.
    let request = Request::post("/events?key=erp")
        .header("authorization", format!("Bearer {}", crate::support::TOKEN))
        .header("content-type", "application/json")
        .header("content-encoding", "gzip");
    let body = Body::from(gzip(&events("e")));
    let answer = world.admin_request(request.body(body).unwrap()).await;
    assert_eq!(answer.body["accepted"], 300, "{answer:?}");
}

#[tokio::test]
async fn decompressed_body_is_limited_in_size() {
    let world = world(|_| {}).await;
    let spaces = |count: usize| {
        let mut bytes = br#"[{"type":"view"}"#.to_vec();
        bytes.resize(count - 1, b' ');
        bytes.push(b']');
        bytes
    };
    let (longest, bomb) = (spaces(BODY_LEN_MAX), spaces(64 * BODY_LEN_MAX));
    let too_long = spaces(BODY_LEN_MAX + 1);
    for (encoding, body, status) in [
        ("gzip", gzip(&longest), 202),
        ("zstd", zstd(&longest, 20), 202),
        ("gzip", gzip(&too_long), 413),
        ("zstd", zstd(&too_long, 20), 413),
        ("gzip", gzip(&bomb), 413),
        ("zstd", zstd(&bomb, 20), 413),
        // The decoder would need a window of 32 MiB.
        ("zstd", zstd(&bomb, 25), 400),
        ("gzip", [gzip(&longest), gzip(b" ")].concat(), 413),
        ("gzip", gzip(&longest)[..500].to_vec(), 400),
        ("zstd", zstd(&longest, 20)[..20].to_vec(), 400),
        ("gzip", events("a"), 400),
        ("zstd", gzip(&longest), 400),
        ("gzip", Vec::new(), 400),
        ("br", events("a"), 415),
        ("gzip, gzip", gzip(&gzip(&longest)), 415),
    ] {
        let answer = post(&world, encoding, body).await;
        assert_eq!(answer.status, status, "{encoding}: {answer:?}");
    }
}

#[tokio::test]
async fn numbers_are_kept_exactly_or_rejected_with_their_path() {
    let world = world(|_| {}).await;
    let event = |id: &str, number: &str| {
        format!(
            r#"{{"id":"{id}","type":"view","customer":"alice","attributes":{{"list":[{{"n":{number}}}]}}}}"#
        )
    };
    let retained = [
        "18446744073709551615",
        "-9223372036854775808",
        "0.30000000000000004",
        "19.99",
    ];
    let lost = [
        "12345678901234567890123",
        "3.14159265358979323846",
        "-9223372036854775809",
        "1e-400",
    ];
    let kept_events = retained
        .iter()
        .enumerate()
        .map(|(n, number)| event(&format!("k{n}"), number));
    let lost_events = lost
        .iter()
        .enumerate()
        .map(|(n, number)| event(&format!("l{n}"), number));
    let all: Vec<String> = kept_events.chain(lost_events).collect();
    let body = format!("[{}]", all.join(","));
    let answer = post(&world, "identity", body.into_bytes()).await;
    let invalid = ["invalid"; 4];
    assert_eq!(verdicts(&answer)[..4], ["accepted"; 4]);
    assert_eq!(verdicts(&answer)[4..], invalid);
    for verdict in &answer.body["verdicts"].as_array().unwrap()[4..] {
        let message = verdict["message"].as_str().unwrap();
        assert!(message.starts_with("attributes.list[0].n: "), "{message}");
    }
    until_stored(&world, "alice", 4).await;
    let response = world
        .admin("GET", "/customers/alice/events", &Value::Null)
        .await;
    for number in retained {
        let expected = format!(r#"{{"n":{number}}}"#);
        assert!(
            response.body.to_string().contains(&expected),
            "{number}: {response:?}"
        );
    }
    // An anonymous event keeps its number unchanged, also in dead letters.
    let anonymous = Stamps {
        consent: Consent::Anonymous,
        ..server()
    };
    let request = stamped(&anonymous, "POST", "/events").header("content-type", "application/json");
    let body = event("l9", lost[0]);
    let answer = world.public(request.body(Body::from(body)).unwrap()).await;
    assert_eq!(verdicts(&answer), ["invalid"]);
    let letters = until_dead(&world, "group=collect&reason=invalid", 5).await;
    let sent = letters
        .iter()
        .map(|letter| letter["sent"]["event"].as_str().unwrap());
    let sent: Vec<&str> = sent.filter(|sent| sent.contains("l9")).collect();
    assert!(
        sent[0].contains(lost[0]) && !sent[0].contains("alice"),
        "{sent:?}"
    );
}
