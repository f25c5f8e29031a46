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
    /// The page is stale if the head of the vehicle map has another stamp.
    pub stamp: u64,
    /// The JSON response.
    pub json: Vec<u8>,
}

/// The call that reads a page.
pub fn call(prefix: &str, browse: &Browse) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(browse.after);
    Call {
        script: &SCRIPT,
        keys: [fitment_pages(prefix, browse.vehicle)].into(),
        args,
    }
}

/// Parses the reply; `None` if the page is not cached.
///
/// # Errors
/// If the reply is not from this script.
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
