//! `room_look.lua`: the state of a waiting room, for operators.

use alloc::string::String;
use alloc::vec::Vec;

use crate::NUMBER_MAX;
use crate::draw::Seed;
use crate::state::{SLOT_MS, SLOTS, WAITS};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::RoomKeys;
use crate::redis::room::number;
use weir_scripts::reply::{array, text};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "room_look",
    source: include_str!("../../lua/room_look.lua"),
};

/// The number of leading numbers in the state: see `room_state.lua`.
const FIELDS: usize = 16;

/// The state of a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomReading {
    /// The last assigned position.
    pub seq: u64,
    /// How far the queue has been called.
    pub head: u64,
    /// Active sessions.
    pub inside: u64,
    /// Called positions that are not claimed yet.
    pub called: u64,
    /// The opening of the last draw, in milliseconds since the Unix epoch; 0 for none.
    pub drew: u64,
    /// The draw covers the positions after this one.
    pub base: u64,
    /// The last position of the draw.
    pub drawn: u64,
    /// The opening of the seed; 0 for none.
    pub seed_of: u64,
    /// The seed.
    pub seed: Option<Seed>,
    /// Positions assigned since Redis has the room.
    pub joined: u64,
    /// Entries since then.
    pub entered: u64,
    /// Entries in the last minute, in steps of [`SLOT_MS`].
    pub entered_last_minute: u64,
    /// Called positions that have expired since then.
    pub missed: u64,
    /// Entries by waiting time.
    pub waits: [u64; WAITS],
}

/// The call that reads a room.
pub fn call(keys: &RoomKeys) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(WAITS as u64);
    args.push_decimal(SLOT_MS);
    args.push_decimal(SLOTS);
    Call {
        script: &SCRIPT,
        keys: keys.of_room(),
        args,
    }
}

/// Parses the reply; `None` if Redis does not have the room.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<Option<RoomReading>, ReplyError> {
    read(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

fn read(value: &Value) -> Option<Option<RoomReading>> {
    let [state, now_ms, inside, holding, recent, waits @ ..] = array(value)? else {
        return None;
    };
    let waits: &[Value; WAITS] = waits.try_into().ok()?;
    let state = String::from_utf8(text(state)?.to_vec()).ok()?;
    if state.is_empty() {
        return Some(None);
    }
    let words: Vec<&str> = state.split(' ').collect();
    let (fields, rest) = words.split_at_checked(FIELDS)?;
    let fields: Vec<u64> = fields
        .iter()
        .map(|word| word_number(word))
        .collect::<Option<_>>()?;
    let fields: [u64; FIELDS] = fields.try_into().ok()?;
    let [
        seq,
        head,
        _,
        _,
        _,
        _,
        ghosts,
        ghosts_ms,
        _,
        drew,
        base,
        drawn,
        seed_of,
        joined,
        entered,
        missed,
    ] = fields;
    let (seed, windows) = rest.split_first()?;
    let remaining = |window: &[&str; 3]| window.last().and_then(|remaining| word_number(remaining));
    let called = windows.as_chunks::<3>().0.iter().filter_map(remaining);
    let ghosts = if number(now_ms)? < ghosts_ms {
        ghosts
    } else {
        0
    };
    let mut look = RoomReading {
        seq,
        head,
        inside: number(inside)? + ghosts,
        called: called.fold(number(holding)?, u64::saturating_add),
        drew,
        base,
        drawn,
        seed_of,
        seed: Seed::from_hex(seed.as_bytes()),
        joined,
        entered,
        entered_last_minute: number(recent)?,
        missed,
        waits: [0; WAITS],
    };
    for (count, value) in look.waits.iter_mut().zip(waits) {
        *count = number(value)?;
    }
    Some(Some(look))
}

/// Like [`number`], for a word of the state.
fn word_number(word: &str) -> Option<u64> {
    word.parse().ok().filter(|number| *number < NUMBER_MAX)
}
