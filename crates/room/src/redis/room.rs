//! What the scripts of waiting rooms share: what a call brings, and the header of a reply.

use alloc::format;
use alloc::string::String;

use crate::draw::Seed;
use crate::{NUMBER_MAX, RoomState, Setting, Snapshot, Terms};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::RoomKeys;
use weir_scripts::reply::{array, text, unsigned};
use weir_scripts::{Call, Script};

/// What a call brings.
#[derive(Clone, Copy, Debug)]
pub struct CallContext {
    /// The terms.
    pub terms: Terms,
    /// The setting that is in force if Redis has none.
    pub setting: Setting,
    /// What the caller has heard.
    pub seen: RoomState,
    /// The time in Redis at which this was asked, as far as the caller knows; 0 if it does not.
    pub asked_ms: u64,
}

/// The beginning of a call.
pub(crate) fn begin(script: &'static Script, keys: &RoomKeys, brought: &CallContext) -> Call {
    let RoomState {
        seq,
        head,
        floor,
        inside,
        drew,
        base,
        drawn,
        seed_of,
        seed,
        called,
    } = brought.seen;
    let mut args = Arguments::default();
    args.push(listed(&brought.terms.numbers()).as_bytes());
    args.push(listed(&brought.setting.numbers()).as_bytes());
    let seen = [
        seq,
        head,
        floor,
        inside,
        drew,
        base,
        drawn,
        seed_of,
        called,
        brought.asked_ms,
    ];
    args.push(listed(&seen).as_bytes());
    args.push(seed.map_or_else(|| "-".into(), Seed::to_hex).as_bytes());
    Call {
        script,
        keys: keys.of_room(),
        args,
    }
}

/// Numbers with spaces between them.
pub(crate) fn listed(numbers: &[u64]) -> String {
    let mut text = String::new();
    for number in numbers {
        let space = if text.is_empty() { "" } else { " " };
        text.push_str(&format!("{space}{number}"));
    }
    text
}

/// Reads a number of a room. The scripts give none that Lua cannot count exactly, and nobody could read a greater one in a pass.
pub(crate) fn number(value: &Value) -> Option<u64> {
    unsigned(value).filter(|number| *number < NUMBER_MAX)
}

/// Reads the header of a reply.
pub(crate) fn snapshot(value: &Value) -> Option<Snapshot> {
    let [
        seq,
        head,
        floor,
        inside,
        called,
        is_settling,
        is_lobby,
        version,
        mode,
        per_minute,
        active_max,
        opens_at_ms,
        opening,
        drew,
        base,
        drawn,
        seed_of,
        seed,
        joined,
        entered,
        missed,
        now_ms,
    ] = array(value)?
    else {
        return None;
    };
    let setting = [version, mode, per_minute, active_max, opens_at_ms];
    let setting = setting.map(number);
    let [
        Some(version),
        Some(mode),
        Some(per_minute),
        Some(active_max),
        Some(opens_at_ms),
    ] = setting
    else {
        return None;
    };
    Some(Snapshot {
        seen: RoomState {
            seq: number(seq)?,
            head: number(head)?,
            floor: number(floor)?,
            inside: number(inside)?,
            drew: number(drew)?,
            base: number(base)?,
            drawn: number(drawn)?,
            seed_of: number(seed_of)?,
            seed: match text(seed)? {
                b"-" => None,
                hex => Some(Seed::from_hex(hex)?),
            },
            called: number(called)?,
        },
        is_settling: unsigned::<u8>(is_settling)? == 1,
        is_lobby: unsigned::<u8>(is_lobby)? == 1,
        setting: Setting::from_numbers([version, mode, per_minute, active_max, opens_at_ms])?,
        opening: number(opening)?,
        joined: number(joined)?,
        entered: number(entered)?,
        missed: number(missed)?,
        now_ms: number(now_ms)?,
    })
}
