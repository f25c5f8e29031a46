//! `tally.lua`: what gateways have decided, counted by the minute, for operators to look at.
//!
//! These are no books: a call whose reply is lost is not made again, and who dies takes up to some seconds of counts along.

use alloc::string::String;
use alloc::vec::Vec;

use weir_base::resp::Arguments;

use crate::{Call, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "tally",
    source: include_str!("../lua/tally.lua"),
};

/// How long a minute's counts are kept, in seconds.
pub const KEPT_S: u64 = 3_600;

/// The most names of one minute.
pub const NAMES_MAX: u64 = 4_096;

/// The most names of one call: Lua's stack has room for some thousands of arguments.
pub const CALL_NAMES_MAX: usize = 1_000;

/// What is counted. Names are made of words, of which only the last may come from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Requests by `what, rule` and by `what, rule, key`: what a rule has done, and to whom.
    Limits,
    /// Requests by `decided` or `shadow`, the verdict's word, and the sale's id.
    Sales,
}

impl Subject {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Sales => "sales",
        }
    }
}

/// Between the words of a name.
const BETWEEN: char = '\n';

/// The name made of these words.
pub fn name(words: &[&str]) -> String {
    let mut name = String::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            name.push(BETWEEN);
        }
        name.extend(word.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    name
}

/// The words of a name.
pub fn words(name: &str) -> Vec<&str> {
    name.split(BETWEEN).collect()
}

/// The call that adds `counts`, at most [`CALL_NAMES_MAX`], to those at `key`.
pub fn call(key: &[u8], counts: impl IntoIterator<Item = (String, u64)>) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(KEPT_S);
    args.push_decimal(NAMES_MAX);
    for (name, count) in counts {
        args.push(name.as_bytes());
        args.push_decimal(count);
    }
    Call {
        script: &SCRIPT,
        keys: [key].into(),
        args,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_words_again_and_nothing_breaks_out_of_one() {
        assert_eq!(words(&name(&["limited", "logins"])), ["limited", "logins"]);
        let hostile = name(&["limited", "logins", "a\nlimited\nother\u{0}"]);
        assert_eq!(words(&hostile), ["limited", "logins", "a limited other "]);
    }
}
