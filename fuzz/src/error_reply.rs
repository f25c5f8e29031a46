//! Redis' errors.

use weir_engine::redis::{Definite, Failure, Unknown, classify, is_noscript};

/// [`classify`]: keeps the text, and never calls definite what a script may have said after it
/// wrote. (A definite failure is tried again or answered as not done: a wrong one is a lost unit.)
pub fn error_reply(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let failure = classify(data);
    match &failure {
        Failure::Definite(Definite::Reply(said)) => {
            assert_eq!(said, &text);
            assert!(!text.contains("script:") && !text.contains("user_script"));
            // What Redis' own commands answer once they run, and what redis_proxy answers when a
            // connection broke under a command.
            for unsure in ["ERR", "OOM", "BUSY", "WRONGTYPE", "READONLY", "upstream"] {
                assert!(!text.starts_with(unsure), "{text}");
            }
        }
        Failure::Unknown(Unknown::Reply(said)) => assert_eq!(said, &text),
        other => panic!("{other:?} is not of a reply"),
    }
    assert!(failure.to_string().ends_with(text.as_ref()));
    // An unknown script has not run, so the call may go out again with its source.
    assert_eq!(is_noscript(data), data.starts_with(b"NOSCRIPT"));
    // What a script raises names the script, whatever else it says.
    let raised = classify(&[data, b" script: f_x, on @user_script:3."].concat());
    assert!(matches!(raised, Failure::Unknown(_)));
}
