//! `tally.lua`: decision counts of gateways, by the minute, for operators.
//!
//! The counts are approximate: a call without a reply is not repeated, and a crash loses some seconds of counts.

use alloc::string::String;
use alloc::vec::Vec;

use weir_base::resp::Arguments;

use crate::{Call, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "tally",
    source: include_str!("../lua/tally.lua"),
};

/// Retention of a minute's counts, in seconds.
pub const KEPT_S: u64 = 3_600;

/// Maximum names of one minute.
pub const NAMES_MAX: u64 = 4_096;

/// Maximum names of one call: Lua's stack holds a few thousand arguments.
pub const CALL_NAMES_MAX: usize = 1_000;

/// The subject of the counts. Names consist of words, of which only the last may come from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Requests by `what, rule` and by `what, rule, key`: decisions of a rule, in total and by key.
    Limits,
    /// Requests by `decided` or `shadow`, the verdict's label, and the sale's id.
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

/// The separator between the words of a name.
const BETWEEN: char = '\n';

/// The name from these words.
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
    fn tally_name_round_trips_and_neutralizes_separators() {
        assert_eq!(words(&name(&["limited", "logins"])), ["limited", "logins"]);
        let hostile = name(&["limited", "logins", "a\nlimited\nother\u{0}"]);
        assert_eq!(words(&hostile), ["limited", "logins", "a limited other "]);
    }
}
