//! Redis errors.

use weir_engine::redis::{DefiniteFailure, Failure, UnknownFailure, classify, is_noscript};

/// [`classify`]. Checks that it keeps the text. Checks that it never classifies an error as definite if a script may
/// have raised it after a write. A definite failure is retried or reported as not done, so a wrong one loses a unit.
pub fn error_reply(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let failure = classify(data);
    match &failure {
        Failure::Definite(DefiniteFailure::Reply(response)) => {
            assert_eq!(response, &text);
            // Redis refuses these at a script's first write, but not after another write.
            let names_script = text.contains("script:") || text.contains("user_script");
            let refusals = ["READONLY", "OOM", "MISCONF", "NOREPLICAS"];
            let is_first_write = refusals.iter().any(|refusal| text.starts_with(refusal));
            assert!(!names_script || is_first_write, "{text}");
            // Errors of Redis commands that ran, and of redis_proxy when a connection broke during a command.
            let refusals = ["ERR max number of clients reached", "ERR AUTH"];
            let is_refusal = refusals.iter().any(|refusal| text.starts_with(refusal));
            for unsure in ["ERR", "WRONGTYPE", "upstream"] {
                assert!(is_refusal || !text.starts_with(unsure), "{text}");
            }
        }
        Failure::Unknown(UnknownFailure::Reply(response)) => assert_eq!(response, &text),
        other => panic!("{other:?} is not of a reply"),
    }
    assert!(failure.to_string().ends_with(text.as_ref()));
    // An unknown script has not run, so the call may be sent again with its source.
    assert_eq!(is_noscript(data), data.starts_with(b"NOSCRIPT"));
    // An error raised by a script names the script, for any other text.
    let raised = classify(&[data, b" script: f_x, on @user_script:3."].concat());
    assert!(matches!(raised, Failure::Unknown(_)));
}
