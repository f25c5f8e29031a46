//! Challenges before an order token.

use serde_json::Value;
use weir_base::headers;
use weir_sale::challenge::{VALID_MS, solve};

use crate::bench::{Bench, NOW_MS, Outcome, Reply};

const CHECKOUT: &str = r#", "checkout_routes": [{ "path": "/sales/{sale}/checkout" }],
    "token": { "keys": [{ "secret": { "env": "S" } }], "min_age_ms": 2000, "max_age_ms": 5000 }"#;

const CAPTCHA: &str = r#", "captcha": { "cluster": "provider", "host": "captcha.example", "path": "/siteverify",
    "site_key": "public", "secret": { "env": "S" }, "tells_address": true"#;

const BITS: u8 = 8;

/// A gate whose sale has this challenge.
fn with(challenge: &str, more: &str) -> Bench {
    let mut bench = Bench::with(&format!("{CHECKOUT}{more}"));
    let wants = format!(r#""token":true,"challenge":{challenge},"state""#);
    bench.catalogue = bench.catalogue.replace("\"state\"", &wants);
    bench.advance(300);
    bench
}

fn working() -> Bench {
    with(r#"{"proof_of_work":{"bits":8}}"#, "")
}

fn check_out(bench: &mut Bench, stream: u32, user: &str, more: &[(&str, &str)]) {
    let mut headers = vec![("x-user-id", user)];
    headers.extend(more);
    bench.request(stream, "POST", "/sales/s/checkout", &headers);
}

fn answer(bench: &Bench, stream: u32) -> Value {
    serde_json::from_str(&bench.answer(stream).1).unwrap()
}

/// The challenge for `user`.
fn challenge_for(bench: &mut Bench, stream: u32, user: &str) -> String {
    check_out(bench, stream, user, &[]);
    let challenge_for = answer(bench, stream);
    let text = &challenge_for["challenge"]["proof_of_work"]["text"];
    text.as_str().unwrap().to_owned()
}

fn counted(bench: &mut Bench, outcome: &str) -> usize {
    bench.counted(&format!("challenges_total.outcome.{outcome}"))
}

#[test]
fn request_without_solution_is_challenged_and_solver_gets_token() {
    let mut bench = working();
    check_out(&mut bench, 1, "alice", &[("accept-language", "de")]);
    let (status, _) = bench.answer(1);
    let reply = answer(&bench, 1);
    assert_eq!(
        (status, &reply["error"]),
        (403, &"challenge_required".into())
    );
    assert_eq!(reply["type"], "urn:weir:problem:challenge_required");
    assert!(
        reply["message"]
            .as_str()
            .unwrap()
            .contains("Sicherheitsprüfung")
    );
    let header = |name| bench.answer_header(1, name);
    assert_eq!(
        header(headers::VERDICT).as_deref(),
        Some("challenge_required")
    );
    assert_eq!(header("content-language").as_deref(), Some("de"));
    let work = &reply["challenge"]["proof_of_work"];
    let expires_at_ms = NOW_MS + 300 + VALID_MS;
    assert_eq!(
        (&work["bits"], &work["expires_at_ms"]),
        (&8.into(), &expires_at_ms.into())
    );
    let solution = solve(work["text"].as_str().unwrap(), BITS);
    check_out(&mut bench, 2, "alice", &[(headers::SOLUTION, &solution)]);
    assert_eq!(bench.outcome(2), None, "Redis is asked");
    bench.run(Reply::Granted);
    assert_eq!(bench.answer(2).0, 200);
    let minted = answer(&bench, 2);
    assert_eq!(minted["usable_at_ms"], NOW_MS + 300 + 2_000);
    let token = minted["token"].as_str().unwrap();
    bench.advance(2_000);
    let order = [("x-user-id", "alice"), (headers::ORDER_TOKEN, token)];
    bench.request(3, "POST", "/sales/s/orders", &order);
    bench.run(Reply::Granted);
    assert_eq!(bench.outcome(3), Some(Outcome::WentOn));
    assert_eq!(
        (counted(&mut bench, "asked"), counted(&mut bench, "solved")),
        (1, 1)
    );
    assert_eq!(bench.counted("requests_total.verdict.token_minted"), 1);
    assert_eq!(
        bench.counted("requests_total.verdict.challenge_required"),
        1
    );
}

/// So a lost answer requires no second challenge, and one challenge yields no second token.
#[test]
fn repeated_solution_returns_the_same_token() {
    let mut bench = working();
    let challenge = challenge_for(&mut bench, 1, "alice");
    let solution = solve(&challenge, BITS);
    let send = |bench: &mut Bench, stream: u32, solution: &str, is_lost: bool| {
        check_out(bench, stream, "alice", &[(headers::SOLUTION, solution)]);
        bench.send();
        if is_lost {
            bench.lose_reply();
        }
        bench.run(Reply::Granted);
        bench.advance(100);
    };
    send(&mut bench, 2, &solution, true);
    assert_eq!(bench.answer(2).0, 503);
    assert!(bench.answer(2).1.contains("unavailable"));
    send(&mut bench, 3, &solution, false);
    // Another solution of the same challenge.
    let other = (0..)
        .map(|n| solve(&challenge, BITS).replace(':', &format!(":{n}")))
        .find(|other| other != &solution && is_solution(other));
    send(&mut bench, 4, &other.unwrap(), false);
    let (third, fourth) = (answer(&bench, 3), answer(&bench, 4));
    assert_eq!(third["token"], fourth["token"]);
    assert_eq!(third["expires_at_ms"], fourth["expires_at_ms"]);
    assert_eq!(
        third["expires_at_ms"],
        NOW_MS + 300 + 5_000,
        "since the first"
    );
    assert_eq!(counted(&mut bench, "again"), 2);
}

#[test]
fn solution_for_expired_token_gets_a_new_challenge() {
    let mut bench = working();
    let solution = solve(&challenge_for(&mut bench, 1, "alice"), BITS);
    check_out(&mut bench, 2, "alice", &[(headers::SOLUTION, &solution)]);
    bench.run(Reply::Granted);
    for (stream, after_ms, status) in [(3, 5_000, 200), (4, 1, 403)] {
        bench.advance(after_ms);
        check_out(
            &mut bench,
            stream,
            "alice",
            &[(headers::SOLUTION, &solution)],
        );
        bench.run(Reply::Granted);
        assert_eq!(bench.answer(stream).0, status);
    }
    let reply = answer(&bench, 4);
    assert!(reply["challenge"]["proof_of_work"]["text"].is_string());
}

fn is_solution(text: &str) -> bool {
    use sha2::{Digest, Sha256};
    let digits = text.rsplit(':').next().unwrap();
    digits.len() <= 20 && Sha256::digest(text)[0] == 0
}

#[test]
fn invalid_solution_gets_a_new_challenge_without_redis_call() {
    let mut bench = working();
    let challenge = challenge_for(&mut bench, 1, "alice");
    let solution = solve(&challenge, BITS);
    let calls = bench.calls;
    let refused = |bench: &mut Bench, stream, user, solution: &str, reason: &str| {
        check_out(bench, stream, user, &[(headers::SOLUTION, solution)]);
        let reply = answer(bench, stream);
        assert_eq!(reply["error"], "challenge_required", "{reason}");
        assert!(reply["challenge"]["proof_of_work"]["text"].is_string());
        assert_eq!(counted(bench, reason), 1, "{reason}");
    };
    refused(&mut bench, 2, "bob", &solution, "foreign_user");
    refused(&mut bench, 3, "alice", "nonsense", "malformed");
    refused(
        &mut bench,
        4,
        "alice",
        &solution.replacen("k1.", "k2.", 1),
        "forged",
    );
    assert_eq!(bench.calls, calls);
    bench.advance(VALID_MS);
    refused(&mut bench, 5, "alice", &solution, "expired");
    bench.catalogue = bench.catalogue.replace("\"bits\":8", "\"bits\":12");
    let challenge = challenge_for(&mut bench, 6, "alice");
    bench.advance(300);
    let solution = solve(&challenge, BITS);
    refused(&mut bench, 7, "alice", &solution, "too_easy");
}

#[test]
fn solution_gets_no_token_without_redis() {
    let mut bench = working();
    let solution = solve(&challenge_for(&mut bench, 1, "alice"), BITS);
    bench.is_down = true;
    check_out(&mut bench, 2, "alice", &[(headers::SOLUTION, &solution)]);
    bench.send();
    bench.advance(300);
    assert_eq!(bench.answer(2).0, 503);
    let retry_after = bench.answer_header(2, "retry-after");
    assert_eq!(retry_after.as_deref(), Some("1"));
    bench.is_down = false;
    bench.advance(300);
    check_out(&mut bench, 3, "alice", &[(headers::SOLUTION, &solution)]);
    bench.run(Reply::Granted);
    assert_eq!(bench.answer(3).0, 200);
}

#[test]
fn client_that_leaves_during_redis_call_can_send_again() {
    let mut bench = working();
    let solution = solve(&challenge_for(&mut bench, 1, "alice"), BITS);
    check_out(&mut bench, 2, "alice", &[(headers::SOLUTION, &solution)]);
    bench.send();
    bench.close_with(2, None);
    assert!(bench.is_at_rest());
    bench.run(Reply::Granted);
    check_out(&mut bench, 3, "alice", &[(headers::SOLUTION, &solution)]);
    bench.run(Reply::Granted);
    assert_eq!(bench.answer(3).0, 200);
    assert!(bench.is_at_rest());
}

#[test]
fn shadow_mode_counts_challenges_without_sending_them() {
    let mut bench = working();
    bench.catalogue = bench.catalogue.replace("\"open\"", "\"shadow\"");
    bench.advance(300);
    check_out(&mut bench, 1, "alice", &[]);
    assert_eq!(bench.answer(1).0, 200);
    assert_eq!(bench.counted("shadow_total.verdict.challenge_required"), 1);
    assert_eq!(counted(&mut bench, "asked"), 0);
}

// --- captchas

fn captcha(more: &str) -> Bench {
    with(r#"{"captcha":{}}"#, &format!("{CAPTCHA}{more} }}"))
}

fn send(bench: &mut Bench, stream: u32, solution: &str) {
    check_out(bench, stream, "alice", &[(headers::CAPTCHA, solution)]);
}

#[test]
fn captcha_provider_decides_about_the_token() {
    let mut bench = captcha("");
    check_out(&mut bench, 1, "alice", &[]);
    assert_eq!(bench.answer(1).0, 403);
    assert_eq!(
        answer(&bench, 1)["challenge"]["captcha"]["site_key"],
        "public"
    );
    send(&mut bench, 2, "a+b");
    let fetch = bench.fetches.front().unwrap().1.clone();
    let form = String::from_utf8(fetch.body.to_vec()).unwrap();
    assert!(
        form.ends_with("&response=a%2Bb&remoteip=192.0.2.1"),
        "{form}"
    );
    let header = |expected: &str| {
        fetch
            .headers
            .iter()
            .find(|(name, _)| *name == expected)
            .cloned()
    };
    assert_eq!(header(":path").unwrap().1, "/siteverify");
    assert_eq!(header(":authority").unwrap().1, "captcha.example");
    assert_eq!(header("content-length").unwrap().1, form.len().to_string());
    assert_eq!((&*fetch.cluster, fetch.timeout_ms), ("provider", 2_000));
    bench.fetched(Some((200, r#"{"success":true,"hostname":"shop.example"}"#)));
    assert_eq!(bench.answer(2).0, 200);
    assert!(answer(&bench, 2)["token"].is_string());
    send(&mut bench, 3, "used");
    bench.fetched(Some((
        200,
        r#"{"success":false,"error-codes":["timeout-or-duplicate"]}"#,
    )));
    assert_eq!(bench.answer(3).0, 403);
    assert_eq!(
        answer(&bench, 3)["challenge"]["captcha"]["site_key"],
        "public"
    );
    let counts = ["asked", "solved", "captcha_refused"].map(|word| counted(&mut bench, word));
    assert_eq!(counts, [1, 1, 1]);
    assert!(bench.is_at_rest());
}

#[test]
fn malformed_captcha_response_is_not_sent_to_the_provider() {
    let mut bench = captcha("");
    for (stream, text) in (1..).zip(["", "a b", &"x".repeat(4_097), "\u{e9}"]) {
        send(&mut bench, stream, text);
        assert_eq!(bench.answer(stream).0, 403, "{text}");
    }
    assert!(bench.fetches.is_empty());
}

#[test]
fn silent_captcha_provider_refuses_or_passes_as_configured() {
    for (more, status) in [("", 503), (r#", "if_unreachable": "pass""#, 200)] {
        let mut bench = captcha(more);
        let answers = [None, Some((500, "")), Some((200, "<html>"))];
        for (stream, answer) in (1..).zip(answers) {
            send(&mut bench, stream, "x");
            bench.fetched(answer);
            assert_eq!(bench.answer(stream).0, status, "{answer:?}");
        }
        assert_eq!(counted(&mut bench, "captcha_unreachable"), 3);
    }
}

#[test]
fn client_that_leaves_during_captcha_check_gets_no_token() {
    let mut bench = captcha("");
    send(&mut bench, 1, "x");
    bench.close_with(1, None);
    assert!(bench.is_at_rest());
    bench.fetched(Some((200, r#"{"success":true}"#)));
    assert_eq!(bench.outcome(1), None);
    for stream in 2..1_026 {
        send(&mut bench, stream, "x");
    }
    send(&mut bench, 2_000, "x");
    assert_eq!(bench.answer(2_000).0, 503);
    assert!(bench.answer(2_000).1.contains("overloaded"));
}

#[test]
fn gate_without_captcha_provider_logs_it_and_gives_no_token() {
    let mut bench = with(r#"{"captcha":{}}"#, "");
    assert_eq!(bench.warnings, 1);
    check_out(&mut bench, 1, "alice", &[]);
    assert_eq!(bench.answer(1).0, 503);
}
