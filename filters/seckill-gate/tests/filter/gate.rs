//! The built filter in a Proxy-Wasm host, as clients, Redis and the origin see it.

use std::time::Duration;

use super::support::{
    CATALOGUE, CONFIG, Gate, NOTHING_LEFT, SECRET, commands, granted, reply_to, users,
};
use weir_base::key::SigningKey;
use weir_sale::claim::Ticket;
use weir_sale::redis::claim;

#[test]
fn granted_request_carries_signed_claim_and_returns_verdict() {
    let gate = Gate::ready();
    let buyer = gate.buy("alice");
    assert!(buyer.is_paused());
    gate.answer_claims(|_user| granted(7));
    let upstream = buyer.upstream_request();
    let ticket = String::from_utf8(upstream.headers.get("x-weir-claim").unwrap().to_vec()).unwrap();
    let signature = String::from_utf8(
        upstream
            .headers
            .get("x-weir-claim-signature")
            .unwrap()
            .to_vec(),
    )
    .unwrap();
    let key = SigningKey::new("k1", SECRET.as_bytes()).unwrap();
    key.verify(&ticket, &signature).unwrap();
    let ticket = Ticket::decode(&ticket).unwrap();
    assert_eq!(
        (
            ticket.sale.as_str(),
            ticket.user.as_str(),
            ticket.generation
        ),
        ("open", "alice", 7)
    );
    // The route puts it into the response.
    assert_eq!(upstream.headers.get("x-weir-verdict").unwrap(), b"granted");
    assert_eq!(gate.requests("granted"), 1);
}

#[test]
fn every_shard_reply_maps_to_its_answer() {
    let gate = Gate::ready();
    for (reply, status, verdict, retry_after) in [
        ("3 5", 409, "cap_reached", None),
        ("5", 503, "unavailable", Some("1")),
        ("4 5 0", 409, "sold_out", None),
    ] {
        let buyer = gate.buy("alice");
        gate.answer_claims(|_user| reply.into());
        let answer = buyer.reply().unwrap();
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("x-weir-verdict").unwrap(), verdict);
        assert_eq!(answer.header("retry-after"), retry_after, "{verdict}");
        assert!(
            answer
                .body_text()
                .contains(&format!(r#""error":"{verdict}""#)),
            "{}",
            answer.body_text()
        );
        assert_eq!(gate.requests(verdict), 1);
    }
}

#[test]
fn sold_out_is_never_answered_while_sql_has_units() {
    let gate = Gate::ready();
    for _ in 0..2 {
        // The second time from memory.
        let buyer = gate.buy_from("busy", "alice");
        gate.answer_claims(|_user| "4 5 0".into());
        let answer = buyer.reply().unwrap();
        assert_eq!(answer.status, 409);
        assert_eq!(answer.header("x-weir-verdict").unwrap(), "all_reserved");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    gate.host.run_until_idle();
    // The catalogue is read more often now.
    let calls = gate.host.calls();
    assert!(calls.iter().all(|call| users(&call.body).is_empty()));
}

#[test]
fn reached_cap_names_the_existing_order_of_the_user() {
    let gate = Gate::ready();
    let buyer = gate.buy("alice");
    gate.answer_claims(|_user| "3 1700".into());
    let body = buyer.reply().unwrap().body_text().to_owned();
    let shard = weir_sale::shard::home_shard(&weir_base::id::UserId::new("alice").unwrap(), 2);
    assert!(
        body.contains(&format!(r#""order":"open.{shard}.1700""#)),
        "{body}"
    );
}

#[test]
fn unknown_sale_or_invalid_user_is_answered_without_redis() {
    let gate = Gate::ready();
    for (path, user, status, verdict) in [
        (
            "/sales/nothing/orders",
            "alice".as_bytes(),
            404,
            "unknown_sale",
        ),
        ("/sales/\u{7f}/orders", b"alice", 404, "unknown_sale"),
        ("/sales/open/orders", b"", 401, "invalid_user"),
        ("/sales/open/orders", b"a\xffb", 401, "invalid_user"),
        ("/sales/open/orders", &[b'x'; 129], 401, "invalid_user"),
        ("/sales/later/orders", b"alice", 403, "not_started"),
        ("/sales/over/orders", b"alice", 410, "ended"),
        ("/sales/shut/orders", b"alice", 403, "closed"),
    ] {
        let request = gate
            .host
            .request(0)
            .method("POST")
            .path(path)
            .header("x-user-id", user)
            .send();
        let answer = request.reply().unwrap();
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("x-weir-verdict").unwrap(), verdict);
    }
    gate.host.run_until_idle();
    assert!(gate.host.calls().is_empty());
}

#[test]
fn sale_before_its_start_answers_with_a_retry_time() {
    let gate = Gate::ready();
    let early = gate
        .host
        .request(0)
        .method("POST")
        .path("/sales/later/orders")
        .header("x-user-id", "a")
        .send();
    let seconds: u64 = early
        .reply()
        .unwrap()
        .header("retry-after")
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    gate.host.advance(Duration::from_secs(seconds));
    gate.answer_polls();
    assert!(gate.buy_from("later", "a").is_paused(), "in time");
}

#[test]
fn repeated_answer_has_the_wait_at_its_own_time() {
    let gate = Gate::ready();
    let wait_s = || -> u64 {
        let answer = gate.buy_from("later", "a").reply().unwrap();
        answer.header("retry-after").unwrap().parse().unwrap()
    };
    let first = wait_s();
    assert_eq!(wait_s(), first);
    gate.host.advance(Duration::from_secs(2));
    assert_eq!(wait_s(), first - 2);
}

#[test]
fn order_is_named_only_to_its_user() {
    let gate = Gate::ready();
    for (user, reply) in [
        ("alice", "3 1700"),
        ("bob", "3 0"),
        ("carol", "3 1800"),
        ("dave", "3 0"),
    ] {
        let buyer = gate.buy(user);
        gate.answer_claims(|_user| reply.into());
        let body = buyer.reply().unwrap().body_text().to_owned();
        let generation = reply.trim_start_matches("3 ");
        let is_named = body.contains(&format!(r#".{generation}""#));
        let has_order = generation != "0";
        assert_eq!(is_named, has_order, "{user}: {body}");
        assert_eq!(body.contains(r#""order""#), has_order, "{user}: {body}");
    }
}

#[test]
fn other_requests_pass_unchanged_except_for_gateway_headers() {
    let gate = Gate::ready();
    for (method, path) in [
        ("GET", "/sales/open/orders"),
        ("POST", "/"),
        ("POST", "/sales/open"),
        ("POST", "/sales/open/orders/1"),
    ] {
        let request = gate
            .host
            .request(0)
            .method(method)
            .path(path)
            .header("x-weir-claim", "forged")
            .header("X-Weir-Claim-Signature", "forged")
            .header("x-noise", b"\xff\xfe")
            .send();
        let upstream = request.upstream_request();
        assert!(
            upstream.headers.get("x-weir-claim").is_none(),
            "{method} {path}"
        );
        assert!(upstream.headers.get("x-weir-claim-signature").is_none());
        assert_eq!(upstream.headers.get("x-noise").unwrap(), b"\xff\xfe");
    }
}

#[test]
fn forged_claim_is_replaced_by_the_real_one() {
    let gate = Gate::ready();
    let request = gate
        .request("open", "alice")
        .header("x-weir-claim", "forged")
        .send();
    gate.answer_claims(|_user| granted(7));
    let claims = request
        .upstream_request()
        .headers
        .get_all("x-weir-claim")
        .count();
    assert_eq!(claims, 1);
    assert!(
        request
            .upstream_request()
            .headers
            .get("x-weir-claim")
            .unwrap()
            .starts_with(b"v1;open;")
    );
}

#[test]
fn simultaneous_requests_share_a_call_and_get_their_own_replies() {
    let gate = Gate::ready();
    let buyers: Vec<_> = (0..100).map(|n| gate.buy(&format!("user-{n}"))).collect();
    gate.host.run_until_idle();
    let calls = gate.host.calls();
    let users: Vec<_> = calls.iter().map(|call| users(&call.body).len()).collect();
    assert_eq!(users, [64, 36], "what does not fit makes a second batch");
    let is_one = |call: &weir_host_test::Call| commands(&call.body) == 1;
    assert!(calls.iter().all(is_one), "one command for both shards");
    gate.answer_claims(|user| {
        let n: u64 = user.trim_start_matches("user-").parse().unwrap();
        if n.is_multiple_of(2) {
            granted(1_000 + n)
        } else {
            "4 5 0".into()
        }
    });
    for (n, buyer) in (0..).zip(&buyers) {
        if n % 2 == 0 {
            let claim = String::from_utf8(
                buyer
                    .upstream_request()
                    .headers
                    .get("x-weir-claim")
                    .unwrap()
                    .to_vec(),
            )
            .unwrap();
            let ticket = Ticket::decode(&claim).unwrap();
            assert_eq!(
                (ticket.user.as_str(), ticket.generation),
                (format!("user-{n}").as_str(), 1_000 + n)
            );
        } else {
            assert_eq!(buyer.reply().unwrap().status, 409);
        }
    }
}

#[test]
fn empty_shard_costs_no_redis_call_until_its_epoch_changes() {
    let gate = Gate::ready();
    gate.buy("alice");
    gate.answer_claims(|_user| "4 5 0".into());
    let again = gate.buy("alice");
    assert_eq!(
        again.reply().unwrap().header("x-weir-verdict").unwrap(),
        "sold_out"
    );
    gate.host.run_until_idle();
    assert!(gate.host.calls().is_empty());

    gate.poll_with_epoch(5);
    assert!(gate.buy("alice").reply().is_some(), "nothing has come back");
    gate.poll_with_epoch(6);
    assert!(gate.buy("alice").is_paused(), "units have come back");
}

#[test]
fn lost_claim_answer_can_be_fetched_after_sold_out() {
    let gate = Gate::ready();
    gate.buy("alice");
    let held = NOTHING_LEFT.replacen(":5\r\n:0", ":5\r\n:1", 1);
    gate.answer_claims_and_looks(|_user| "4 5 1".into(), &held);
    let again = gate.buy("alice");
    assert!(
        again.is_paused(),
        "a claim is open: Redis must be asked whose"
    );
    gate.answer_claims(|_user| granted(7).replacen('1', "2", 1));
    assert!(again.is_continued());
    assert_eq!(gate.requests("granted_again"), 1);
}

#[test]
fn workers_do_not_wake_each_other() {
    let gate = Gate::ready();
    let on = |worker, user: &str| {
        gate.host
            .request(worker)
            .method("POST")
            .path("/sales/open/orders")
            .header("x-user-id", user)
            .send()
    };
    let (first, second) = (on(0, "alice"), on(1, "bob"));
    gate.host.run_until_idle();
    assert_eq!(gate.host.calls().len(), 2);
    gate.answer_claims(|_user| granted(7));
    assert!(first.is_continued() && second.is_continued());
}

#[test]
fn new_sale_in_the_catalogue_opens_within_one_poll() {
    let gate = Gate::ready();
    assert_eq!(gate.buy_from("fresh", "a").status(), Some(404));
    gate.host.advance(Duration::from_millis(500));
    let catalogue = CATALOGUE.replace(r#""id":"open""#, r#""id":"fresh""#);
    gate.answer_polls_with(&catalogue);
    assert!(gate.buy_from("fresh", "a").is_paused());
    assert_eq!(gate.buy_from("open", "a").status(), Some(404));
}

#[test]
fn invalid_configuration_is_refused_by_its_field_path() {
    let refused = |from: &str, to: &str| {
        assert!(CONFIG.contains(from));
        let started = super::support::host(&CONFIG.replace(from, to)).start();
        started.err().expect("refused").to_string()
    };
    for (from, to, expected) in [
        (
            r#""user_header""#,
            r#""user_heder""#,
            "user_heder: unknown field `user_heder`",
        ),
        (
            r#""deadline_ms": 250"#,
            r#""deadline_ms": "250""#,
            "redis.deadline_ms: invalid type: string",
        ),
        (
            "WEIR_CLAIM_SECRET",
            "NO_SUCH",
            "claim.keys[0].secret.env: the environment variable",
        ),
        (
            r#""secret": { "env": "WEIR_CLAIM_SECRET" }"#,
            r#""id": "k1""#,
            "claim.keys[0]: missing field `secret`",
        ),
    ] {
        let log = refused(from, to);
        assert!(
            log.contains(&format!("seckill-gate: configuration refused: {expected}")),
            "{log}"
        );
    }
    assert!(!refused("WEIR_CLAIM_SECRET", "NO_SUCH").contains(SECRET));
}

/// The cost of a request is a number, not a time. Raise it only with a reason.
#[test]
fn each_kind_of_request_stays_within_its_budget() {
    let gate = Gate::ready();
    let sold_out = {
        gate.buy("alice");
        gate.answer_claims(|_user| "4 5 0".into());
        gate.buy("alice").cost()
    };
    // Headers, clock, answer.
    assert!(sold_out.host_calls_total() <= 3, "{sold_out:?}");
    assert!(sold_out.fuel < 30_000, "{sold_out:?}");

    let passing = gate
        .host
        .request(0)
        .method("GET")
        .path("/index.html")
        .send()
        .cost();
    // Headers, none of which are reserved for gateways.
    assert!(passing.host_calls_total() <= 1, "{passing:?}");
    assert!(passing.fuel < 15_000, "{passing:?}");
}

/// The total cost in the VM of 64 requests in one batch, responses included.
#[test]
fn claim_batch_stays_within_its_cost_budget() {
    let gate = Gate::ready();
    let before = gate.host.cost();
    (0..64).for_each(|n| drop(gate.buy(&format!("user-{n}"))));
    gate.answer_claims(|_user| "3 0".into());
    let after = gate.host.cost();
    let calls = after.host_calls_total() - before.host_calls_total();
    // Each request: headers, clock, effective context, answer; and one batch.
    assert!(calls <= 4 * 64 + 20, "{calls}");
    let fuel = (after.fuel - before.fuel) / 64;
    assert!(fuel < 60_000, "{fuel} a request");
}

#[test]
fn reply_helpers_match_the_replies_of_the_script() {
    let reply = reply_to(&["a".into()], |_user| granted(7));
    let (value, _) = weir_base::resp::decode(reply.as_bytes()).unwrap();
    assert!(claim::parse(&value, 1).is_ok());
}
