//! `link_read.lua`: a short link is asked for.

use alloc::vec::Vec;

use crate::click::ClickId;
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::LinkKeys;
use weir_scripts::reply::{array, integer};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "link_read",
    source: include_str!("../../lua/link_read.lua"),
};

/// What stands in Redis of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its [record](crate::record::Link::decode).
    pub record: Vec<u8>,
    /// How long it still lives if nobody asks for it again, in milliseconds; `None` is for ever.
    pub left_ms: Option<u64>,
    /// How many clicks it had left before this one, if it has only so many. With none left nothing was
    /// counted, and the link leads nowhere.
    pub clicks_left: Option<u64>,
}

/// For how long a click's mark is kept, in milliseconds: much longer than a request, or a call that is on its way
/// somewhere.
pub const MARK_MS: u64 = 60_000;

/// What the arguments take on the wire.
const ARGS_LEN_USUAL: usize = 40;

/// Why a link is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody only looks: nothing changes.
    Look,
    /// It was clicked: its life is renewed, if enough of it is gone.
    Renew,
    /// This is that click: the link's life is renewed, too, and if it has only so many clicks, one is used. The same
    /// click uses one however often it is read.
    Click(ClickId),
}

impl Purpose {
    /// The word for the script and the origin.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Renew => "renew",
            Self::Click(_) => "click",
        }
    }

    /// The click, if it is one.
    pub const fn click(self) -> Option<ClickId> {
        match self {
            Self::Click(click) => Some(click),
            Self::Look | Self::Renew => None,
        }
    }
}

/// The call that reads a link for this purpose. Its life is renewed if more than `renew_permille` thousandths of it are
/// gone.
pub fn call(keys: &LinkKeys, renew_permille: u32, purpose: Purpose) -> Call {
    let click = purpose.click();
    let mut args = Arguments::with_capacity(ARGS_LEN_USUAL);
    args.push_decimal(renew_permille.into());
    args.push(purpose.label().as_bytes());
    if click.is_some() {
        args.push_decimal(MARK_MS);
    }
    Call {
        script: &SCRIPT,
        keys: keys.of_read(click),
        args,
    }
}

/// Reads the reply: `None` if there is no such link.
///
/// # Errors
/// When the reply is not one of the script.
pub fn parse(value: &Value) -> Result<Option<Read>, ReplyError> {
    if *value == Value::Null {
        return Ok(None);
    }
    read(value).map(Some).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

fn read(value: &Value) -> Option<Read> {
    let [Value::Bulk(record), pttl, left] = array(value)? else {
        return None;
    };
    Some(Read {
        record: record.clone(),
        left_ms: bounded(pttl)?,
        clicks_left: bounded(left)?,
    })
}

/// A number, or -1 for none.
fn bounded(value: &Value) -> Option<Option<u64>> {
    match integer(value)? {
        -1 => Some(None),
        number => u64::try_from(number).ok().map(Some),
    }
}
