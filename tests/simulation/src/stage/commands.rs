//! Parses commands as Redis does.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use weir_base::resp::{Value, decode};
use weir_scripts::{Script, gateway_report, tally};

/// Every script of the simulated domains.
fn scripts() -> impl Iterator<Item = &'static Script> {
    let domains = [
        weir_limit::redis::SCRIPTS,
        weir_link::redis::SCRIPTS,
        weir_room::redis::SCRIPTS,
        weir_sale::redis::SCRIPTS,
    ];
    let all = domains.into_iter().flatten().copied();
    all.chain([&gateway_report::SCRIPT, &tally::SCRIPT])
}

/// Every script by its digest.
pub(crate) static DIGESTS: LazyLock<BTreeMap<String, &'static str>> = LazyLock::new(|| {
    scripts()
        .map(|script| (script.sha1_hex(), script.name))
        .collect()
});

/// A command's words.
pub(crate) type CommandArgs = Vec<Vec<u8>>;

/// The words of each command.
pub(crate) fn read(bytes: &[u8]) -> Vec<CommandArgs> {
    let mut rest = bytes;
    let mut commands = Vec::new();
    while !rest.is_empty() {
        let (value, used) = decode(rest).expect("parties send whole commands");
        rest = &rest[used..];
        commands.push(words(value));
    }
    commands
}

pub(crate) fn commands_in(bytes: &[u8]) -> usize {
    read(bytes).len()
}

pub(crate) fn words(value: Value) -> CommandArgs {
    let Value::Array(values) = value else {
        panic!("a command is an array");
    };
    let word = |value| match value {
        Value::Bulk(word) => word,
        other => panic!("a command's word is a byte string, not {other:?}"),
    };
    values.into_iter().map(word).collect()
}

/// A call of a script.
pub(crate) struct ScriptCall<'a> {
    pub(crate) name: &'static str,
    pub(crate) keys: &'a [Vec<u8>],
    pub(crate) args: &'a [Vec<u8>],
}

/// The scripts that a server has loaded, by digest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripts(BTreeSet<&'static str>);

impl Scripts {
    /// The script of a command; `None` if the server does not have its digest.
    pub(crate) fn find<'a>(&mut self, words: &'a CommandArgs) -> Option<ScriptCall<'a>> {
        let name = name_of(words).expect("parties call scripts of ours");
        match words[0].as_slice() {
            b"EVAL" => {
                self.0.insert(name);
            }
            _ if !self.0.contains(name) => return None,
            _ => {}
        }
        let count: usize = number(&words[2]) as usize;
        let (keys, args) = words[3..].split_at(count);
        Some(ScriptCall { name, keys, args })
    }

    /// The server has restarted.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The reply to an unknown digest.
pub(crate) fn no_script() -> Value {
    Value::Error(b"NOSCRIPT No matching script. Please use EVAL.".to_vec())
}

/// The name of the script that a command calls.
pub(crate) fn name_of(words: &CommandArgs) -> Option<&'static str> {
    match words[0].as_slice() {
        b"EVAL" => {
            let found = scripts().find(|script| script.source.as_bytes() == words[1]);
            found.map(|script| script.name)
        }
        b"EVALSHA" => {
            let digest = String::from_utf8_lossy(&words[1]);
            DIGESTS.get(digest.as_ref()).copied()
        }
        _ => None,
    }
}

/// A number in decimal.
pub(crate) fn number(word: &[u8]) -> u64 {
    let text = std::str::from_utf8(word).expect("numbers are text");
    text.parse().expect("it is a number")
}

/// Readable text of commands.
pub(crate) fn describe(commands: &[u8]) -> String {
    let texts = read(commands).iter().map(describe_one).collect::<Vec<_>>();
    texts.join("; ")
}

fn describe_one(words: &CommandArgs) -> String {
    let (name, rest) = match name_of(words) {
        Some(name) => (name, &words[3..]),
        None => ("", &words[..]),
    };
    let rest: Vec<_> = rest
        .iter()
        .map(|word| String::from_utf8_lossy(word))
        .collect();
    format!("{name} {}", rest.join(" "))
}
