//! Replies of scripts.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is what the fuzzer looks for"
)]

use weir_base::resp::{Value, decode};
use weir_history::redis::{history_count, history_fill, history_read, history_view};
use weir_limit::redis::limit::Answer;
use weir_limit::redis::{limit, limit_back};
use weir_link::redis::{link_back, link_clicks, link_read};
use weir_sale::ledger::{Audit, ClaimReply, OpenClaim, ReleaseReply, SettleReply};
use weir_sale::redis::{audit, claim, deposit, lend, overdue, probe, release, settle, warm};

/// The parsers of all scripts, on one reply. Checks that a parsed reply encodes to the same reply, and that a reply for
/// another number of requests is refused.
pub fn script_replies(data: &[u8]) {
    let Ok((value, _)) = decode(data) else {
        return;
    };
    let count = match &value {
        Value::Array(values) => values.len(),
        _ => 0,
    };
    for wrong in [count + 1, count.wrapping_sub(1)] {
        assert!(release::parse(&value, wrong).is_err());
    }
    check_claims(&value);
    if let Ok(replies) = release::parse(&value, count) {
        let messages = replies.into_iter().map(say_release).collect();
        assert_eq!(Value::Array(messages), value);
    }
    if let Ok(reply) = settle::parse(&value) {
        let messages = match reply {
            SettleReply::Nothing => 0,
            SettleReply::Settled => 1,
        };
        assert_eq!(Value::Integer(messages), value);
    }
    if let Ok(was_cold) = warm::parse(&value) {
        assert_eq!(Value::Integer(was_cold.into()), value);
    }
    if let Ok(reply) = audit::parse(&value) {
        check_audit(&reply, &value);
    }
    // These lose only spaces and order; no bytes may panic them.
    let _ = (
        lend::parse(&value),
        deposit::parse(&value),
        overdue::parse(&value),
        link_read::parse(&value),
        link_back::parse(&value),
        link_clicks::parse(&value),
        history_fill::parse(&value),
        history_read::parse_count(&value),
        history_count::parse(&value),
    );
    if let Ok(outcomes) = history_view::parse(&value, count) {
        assert_eq!(outcomes.len(), count);
    }
    if let Ok(shards) = probe::parse(&value, count) {
        assert_eq!(shards.len(), count);
    }
    check_limits(&value, count);
    if let Ok(taken_back) = limit_back::parse(&value, 3) {
        assert!(taken_back <= 3);
        assert_eq!(
            integers(vec![taken_back as i128]),
            Value::Array(vec![value])
        );
    }
}

/// The answers to all charges, as one request's and each as another's.
fn check_limits(value: &Value, count: usize) {
    let asks = count / 5;
    for shape in [vec![asks], vec![1; asks]] {
        let parse = |shape: &[usize]| limit::parse(value, shape.iter().copied());
        assert!(parse(&[&*shape, &[1]].concat()).is_err(), "one too few");
        assert!(asks == 0 || parse(&shape[1..]).is_err(), "one too many");
        let Ok(requests) = parse(&shape) else {
            continue;
        };
        let lens: Vec<usize> = requests.iter().map(Vec::len).collect();
        assert_eq!(lens, shape);
        let is_charged = |answers: &Vec<Answer>| answers.iter().any(|answer| answer.used > 0);
        for answers in requests.iter().filter(|answers| is_charged(answers)) {
            assert!(answers.iter().all(|answer| answer.check.is_allowed()));
        }
        let replies = requests.iter().flatten().flat_map(say_limit).collect();
        assert_eq!(integers(replies), *value);
    }
}

fn say_limit(answer: &Answer) -> [i128; 5] {
    let Answer {
        check,
        used: accepted,
    } = *answer;
    [
        check.wait_ms.into(),
        check.remaining.into(),
        check.reset_ms.into(),
        check.mark.into(),
        accepted.into(),
    ]
}

/// Checks that granted claims encode to the same reply, and that a reply for another number of users is refused.
fn check_claims(value: &Value) {
    let count = match value {
        Value::Bulk(text) => text.split(|&byte| byte == b',').count(),
        _ => 0,
    };
    for wrong in [count + 1, count.wrapping_sub(1)] {
        assert!(claim::parse(value, wrong).is_err());
    }
    if let Ok(replies) = claim::parse(value, count) {
        let messages: Vec<String> = replies.into_iter().map(say_claim).collect();
        assert_eq!(Value::Bulk(messages.join(",").into()), *value);
    }
}

fn say_claim(reply: ClaimReply) -> String {
    let held = |kind: u8, held: OpenClaim| {
        let OpenClaim {
            generation,
            quantity,
            deadline_ms,
            delivery,
        } = held;
        format!("{kind} {generation} {quantity} {deadline_ms} {delivery}")
    };
    match reply {
        ClaimReply::Granted(granted) => held(1, granted),
        ClaimReply::GrantedAgain(granted) => held(2, granted),
        ClaimReply::CapReached { generation } => format!("3 {generation}"),
        ClaimReply::Empty { epoch, open_claims } => format!("4 {epoch} {open_claims}"),
        ClaimReply::Cold => "5".into(),
        ClaimReply::Blocked => "6".into(),
        ClaimReply::NotReserved => "7".into(),
        ClaimReply::Draining => "8".into(),
        ClaimReply::Ordered {
            generation,
            quantity,
        } => format!("9 {generation} {quantity}"),
        ClaimReply::InProgress => "10".into(),
    }
}

fn say_release(reply: ReleaseReply) -> Value {
    Value::Integer(match reply {
        ReleaseReply::Nothing => 0,
        ReleaseReply::Ended => 1,
        ReleaseReply::StillOut => 2,
    })
}

fn check_audit(reply: &Audit, value: &Value) {
    let Value::Array(received) = value else {
        panic!("an audit was read from {value:?}");
    };
    let stock = integers(reply.stock.into_iter().map(i128::from).collect());
    assert_eq!(stock, received[0]);
    let terms: Vec<i128> = vec![
        reply.held.into(),
        reply.bought.into(),
        reply.deferred.into(),
        reply.epoch.into(),
        reply.sequence.into(),
    ];
    assert_eq!(integers(terms), Value::Array(received[1..6].to_vec()));
    let pairs = |value: &Value| match value {
        Value::Array(flat) => flat.len() / 2,
        other => panic!("no hash: {other:?}"),
    };
    assert_eq!(reply.transfers.len(), pairs(&received[6]));
    assert_eq!(reply.deposits.len(), pairs(&received[7]));
}

fn integers(fields: Vec<i128>) -> Value {
    let integer = |field| Value::Integer(i64::try_from(field).expect("it came as an i64"));
    Value::Array(fields.into_iter().map(integer).collect())
}
