//! The pump's behaviour when Redis refuses commands.

use super::*;

const READONLY: &[u8] = b"-READONLY You can't write against a read only replica. \
    script: 9282fe9cd1ad17b421df71a1d74837df7d50241a, on @user_script:1.\r\n";

impl Bench {
    /// Two requests, one in each call of a batch, and the reply to it.
    fn pair(&mut self, reply: impl FnOnce(usize) -> Reply) -> Vec<CompletedBatch<u32>> {
        self.enqueue(0, 0, 0).unwrap();
        self.enqueue(1, 1, 0).unwrap();
        self.turn(0);
        let batch = self.sent.last().unwrap().0;
        self.reply_with(batch, reply, 1).unwrap()
    }

    fn counted(&mut self) -> Vec<(String, u64)> {
        let names: Vec<String> = self.metrics.counters().map(ToString::to_string).collect();
        let mut counted = vec![];
        self.metrics.collect(|index, count| {
            if names[index].contains("refused") {
                counted.push((names[index].clone(), count));
            }
        });
        counted
    }
}

#[test]
fn refused_call_is_counted_logged_and_definite() {
    let mut bench = Bench::new(SETTINGS);
    let completed = bench.pair(|_| Ok([b":1\r\n", READONLY].concat()));
    assert_eq!(completed[0].outcome, Ok(Value::Integer(1)));
    let refused = &completed[1].outcome;
    assert!(
        matches!(refused, Err(Failure::Definite(DefiniteFailure::Reply(error))) if error.starts_with("READONLY ")),
        "{refused:?}"
    );
    let [line] = &bench.logged[..] else {
        panic!("{:?}", bench.logged);
    };
    for part in ["\"echo\"", "\"weir_redis\"", "\"READONLY ", "primary"] {
        assert!(line.contains(part), "{line}");
    }
    let name = "t_redis_refused_total.reason.readonly".to_string();
    assert_eq!(bench.counted(), [(name, 1)]);
}

#[test]
fn refused_login_refuses_each_request_of_the_batch() {
    let mut bench = Bench::new(SETTINGS);
    let refused = Failure::from(UnknownFailure::Login("WRONGPASS invalid".into()));
    let completed = bench.pair(|_| Err(refused.clone()));
    let outcomes: Vec<_> = completed.into_iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Err(refused.clone()), Err(refused)]);
    assert!(bench.logged[0].contains("\"AUTH\""), "{:?}", bench.logged);
    let name = "t_redis_refused_total.reason.wrongpass".to_string();
    assert_eq!(bench.counted(), [(name, 2)]);
}

#[test]
fn unknown_script_counts_and_its_second_call_decides() {
    let mut bench = Bench::new(SETTINGS);
    assert_eq!(bench.pair(noscript), []);
    let batch = bench.sent.last().unwrap().0;
    let completed = bench.reply_with(batch, ok, 2).unwrap();
    assert_eq!(streams(&completed), [Some(0), Some(1)]);
    assert_eq!(bench.logged, [""; 0]);
    let name = "t_redis_refused_total.reason.noscript".to_string();
    assert_eq!(bench.counted(), [(name, 2)]);
}
