//! `link_read.lua`: reads a short link.

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

/// A link's state in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its [record](crate::record::Link::decode).
    pub record: Vec<u8>,
    /// Its remaining lifetime, in milliseconds; `None`: permanent.
    pub left_ms: Option<u64>,
    /// How many clicks were left before this one, if the link has a click limit. At 0, no click was counted, and the
    /// link is inactive.
    pub clicks_left: Option<u64>,
}

/// Lifetime of a click's marker, in milliseconds: much longer than any request or call in flight.
pub const MARK_MS: u64 = 60_000;

/// Usual size of the arguments on the wire, in bytes.
const ARGS_LEN_USUAL: usize = 40;

/// The purpose of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reads without changes.
    Look,
    /// A click: renews the link's lifetime if enough of it has passed.
    Renew,
    /// This click: renews the lifetime, and uses one click if the link has a click limit. Repeated reads with the same
    /// ID use one click.
    Click(ClickId),
}

impl Purpose {
    /// The label for the script and the origin.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Renew => "renew",
            Self::Click(_) => "click",
        }
    }

    /// The click ID, if there is one.
    pub const fn click(self) -> Option<ClickId> {
        match self {
            Self::Click(click) => Some(click),
            Self::Look | Self::Renew => None,
        }
    }
}

/// The call that reads a link for this purpose. It renews the lifetime if more than `renew_permille` thousandths have
/// passed.
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

/// Parses the reply; `None` if the link does not exist.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<Option<Read>, ReplyError> {
    if *value == Value::Null {
        return Ok(None);
    }
    read(value).map(Some).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

fn read(value: &Value) -> Option<Read> {
    let [Value::Bulk(record), pttl, remaining] = array(value)? else {
        return None;
    };
    Some(Read {
        record: record.clone(),
        left_ms: bounded(pttl)?,
        clicks_left: bounded(remaining)?,
    })
}

/// A number; -1 means none.
fn bounded(value: &Value) -> Option<Option<u64>> {
    match integer(value)? {
        -1 => Some(None),
        number => u64::try_from(number).ok().map(Some),
    }
}
