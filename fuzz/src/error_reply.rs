//! Redis' errors.

use weir_engine::redis::{DefiniteFailure, Failure, UnknownFailure, classify, is_noscript};

/// [`classify`]: keeps the text, and never calls definite what a script may have said after it
/// wrote. (A definite failure is tried again or answered as not done: a wrong one is a lost unit.)
pub fn error_reply(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let failure = classify(data);
    match &failure {
        Failure::Definite(DefiniteFailure::Reply(said)) => {
            assert_eq!(said, &text);
            // What Redis refuses a script at its first write, and not after another one.
            let names_script = text.contains("script:") || text.contains("user_script");
            let refusals = ["READONLY", "OOM", "MISCONF", "NOREPLICAS"];
            let is_first_write = refusals.iter().any(|refusal| text.starts_with(refusal));
            assert!(!names_script || is_first_write, "{text}");
            // What Redis' own commands answer once they run, and what redis_proxy answers when a
            // connection broke under a command.
            let refusals = ["ERR max number of clients reached", "ERR AUTH"];
            let is_refusal = refusals.iter().any(|refusal| text.starts_with(refusal));
            for unsure in ["ERR", "WRONGTYPE", "upstream"] {
                assert!(is_refusal || !text.starts_with(unsure), "{text}");
            }
        }
        Failure::Unknown(UnknownFailure::Reply(said)) => assert_eq!(said, &text),
        other => panic!("{other:?} is not of a reply"),
    }
    assert!(failure.to_string().ends_with(text.as_ref()));
    // An unknown script has not run, so the call may go out again with its source.
    assert_eq!(is_noscript(data), data.starts_with(b"NOSCRIPT"));
    // What a script raises names the script, whatever else it says.
    let raised = classify(&[data, b" script: f_x, on @user_script:3."].concat());
    assert!(matches!(raised, Failure::Unknown(_)));
}
