//! The shared parts of the scripts: the context of a call, and the header of a reply.

use alloc::format;
use alloc::string::String;

use crate::draw::Seed;
use crate::{NUMBER_MAX, RoomState, Setting, Snapshot, Terms};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::RoomKeys;
use weir_scripts::reply::{array, text, unsigned};
use weir_scripts::{Call, Script};

/// The context of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallContext {
    /// The fixed parameters.
    pub terms: Terms,
    /// The settings in force if Redis has none.
    pub setting: Setting,
    /// The caller's state of the room.
    pub observed: RoomState,
    /// When the call was made, by the clock of Redis as the caller estimates it; 0 if unknown.
    pub asked_ms: u64,
}

/// The beginning of a call.
pub(crate) fn begin(script: &'static Script, keys: &RoomKeys, context: &CallContext) -> Call {
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
    } = context.observed;
    let mut args = Arguments::default();
    args.push(listed(&context.terms.numbers()).as_bytes());
    args.push(listed(&context.setting.numbers()).as_bytes());
    let observed = [
        seq,
        head,
        floor,
        inside,
        drew,
        base,
        drawn,
        seed_of,
        called,
        context.asked_ms,
    ];
    args.push(listed(&observed).as_bytes());
    args.push(seed.map_or_else(|| "-".into(), Seed::to_hex).as_bytes());
    Call {
        script,
        keys: keys.of_room(),
        args,
    }
}

/// Numbers separated by spaces.
pub(crate) fn listed(numbers: &[u64]) -> String {
    let mut text = String::new();
    for number in numbers {
        let space = if text.is_empty() { "" } else { " " };
        text.push_str(&format!("{space}{number}"));
    }
    text
}

/// Parses a number of a room. The scripts return only numbers that Lua represents exactly, and tokens cannot contain
/// greater ones.
pub(crate) fn number(value: &Value) -> Option<u64> {
    unsigned(value).filter(|number| *number < NUMBER_MAX)
}

/// Parses the header of a reply.
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
        observed: RoomState {
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
