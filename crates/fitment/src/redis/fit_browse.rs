//! `fit_browse.lua`: a page of the SKUs that fit a vehicle.

use alloc::vec::Vec;

use crate::check::Browse;
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::fitment_pages;
use weir_scripts::reply::{array, text, unsigned};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "fit_browse",
    source: include_str!("../../lua/fit_browse.lua"),
};

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// It is stale if the head of the map of vehicles has another one.
    pub stamp: u64,
    /// The answer to a client, as JSON.
    pub json: Vec<u8>,
}

/// The call that asks for a page.
pub fn call(prefix: &str, browse: &Browse) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(browse.after);
    Call {
        script: &SCRIPT,
        keys: [fitment_pages(prefix, browse.vehicle)].into(),
        args,
    }
}

/// Reads the reply. `None`: there is no such page.
///
/// # Errors
/// When it is not one of the script.
pub fn parse(value: &Value) -> Result<Option<Page>, ReplyError> {
    let page = |values: &[Value]| match values {
        [stamp, json] => Some(Page {
            stamp: unsigned(stamp)?,
            json: text(json)?.into(),
        }),
        _ => None,
    };
    let page = match value {
        Value::Null => return Ok(None),
        value => array(value).and_then(page),
    };
    page.map(Some).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
