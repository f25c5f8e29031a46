//! `fit_browse_fill.lua`: caches a page of the SKUs that fit a vehicle.

use crate::check::Browse;
use weir_base::resp::{Arguments, Value};

use crate::redis::fit_browse::Page;
use crate::redis::keys::fitment_pages;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "fit_browse_fill",
    source: include_str!("../../lua/fit_browse_fill.lua"),
};

/// Maximum cached pages of one vehicle.
pub const PAGES_MAX: u64 = 100;

/// The call that caches a page. All pages of a vehicle expire together, `life_ms` after the first.
pub fn call(prefix: &str, browse: &Browse, page: &Page, life_ms: u64) -> Call {
    let mut args = Arguments::with_capacity(64 + page.json.len());
    args.push_decimal(page.stamp);
    args.push_decimal(browse.after);
    args.push(&page.json);
    args.push_decimal(life_ms);
    args.push_decimal(PAGES_MAX);
    Call {
        script: &SCRIPT,
        keys: [fitment_pages(prefix, browse.vehicle)].into(),
        args,
    }
}

/// Parses the reply: whether the page was cached.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
