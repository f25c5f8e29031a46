//! `fit_query.lua` and `fit_query_bitmaps.lua`: which SKUs of one product fit which vehicles.

use alloc::vec;
use alloc::vec::Vec;

use crate::check::StoredAnswer;
use crate::{Offset, Plan, Sku};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::FitmentKeys;
use weir_scripts::reply::text;
use weir_scripts::{Call, ReplyError, Script};

/// The script of [`Plan::Directory`].
pub static SCRIPT: Script = Script {
    name: "fit_query",
    source: include_str!("../../lua/fit_query.lua"),
};

/// The script of [`Plan::Bitmaps`].
pub static BITMAPS: Script = Script {
    name: "fit_query_bitmaps",
    source: include_str!("../../lua/fit_query_bitmaps.lua"),
};

/// The calls that read which of `skus` fit which of 1 to 5 `vehicles`: one call, or one per vehicle.
pub fn calls<'a>(
    plan: Plan,
    keys: &FitmentKeys,
    vehicles: &[Offset],
    skus: impl Iterator<Item = &'a Sku> + Clone,
) -> Vec<Call> {
    match plan {
        Plan::Directory => vec![by_directory(keys, vehicles, skus)],
        Plan::Bitmaps => {
            let of = |vehicle: &Offset| by_bitmaps(keys, *vehicle, skus.clone());
            vehicles.iter().map(of).collect()
        }
    }
}

fn by_directory<'a>(
    keys: &FitmentKeys,
    vehicles: &[Offset],
    skus: impl Iterator<Item = &'a Sku>,
) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(vehicles.len() as u64);
    for vehicle in vehicles {
        args.push_decimal(vehicle.get().into());
    }
    for sku in skus {
        args.push(sku.as_str().as_bytes());
    }
    Call {
        script: &SCRIPT,
        keys: [keys.directory()].into(),
        args,
    }
}

fn by_bitmaps<'a>(
    keys: &FitmentKeys,
    vehicle: Offset,
    skus: impl Iterator<Item = &'a Sku>,
) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(vehicle.segment().into());
    args.push_decimal(vehicle.bit().into());
    for sku in skus {
        args.push(sku.as_str().as_bytes());
    }
    Call {
        script: &BITMAPS,
        keys: [keys.directory()].into(),
        args,
    }
}

/// Parses the replies to all calls, in order: one result per SKU.
///
/// # Errors
/// If the replies are not from the scripts.
pub fn parse(
    plan: Plan,
    replies: &[Value],
    vehicles: usize,
    skus: usize,
) -> Result<Vec<StoredAnswer>, ReplyError> {
    let (script, calls) = match plan {
        Plan::Directory => (&SCRIPT, 1),
        Plan::Bitmaps => (&BITMAPS, vehicles),
    };
    let all = replies.iter().map(|reply| of_reply(reply, vehicles, skus));
    let all = all.collect::<Option<Vec<_>>>();
    let all = all.filter(|all| all.len() == calls);
    let all = all.ok_or(ReplyError {
        script: script.name,
    })?;
    Ok(match plan {
        Plan::Directory => all.into_iter().flatten().collect(),
        Plan::Bitmaps => (0..skus).map(|sku| joined(&all, sku)).collect(),
    })
}

fn of_reply(reply: &Value, vehicles: usize, skus: usize) -> Option<Vec<StoredAnswer>> {
    let masks = 1_u8.checked_shl(u32::try_from(vehicles).ok()?)?;
    let one = |byte: &u8| match byte {
        b'-' => Some(StoredAnswer::Absent),
        b'!' => Some(StoredAnswer::Lost),
        _ => byte
            .checked_sub(b'@')
            .filter(|fits| *fits < masks)
            .map(StoredAnswer::Known),
    };
    let text = text(reply).filter(|text| text.len() == skus)?;
    text.iter().map(one).collect()
}

/// Joins the results of one SKU from all vehicles' replies. One missing bitmap makes the SKU unknown.
fn joined(all: &[Vec<StoredAnswer>], sku: usize) -> StoredAnswer {
    let mut fits = 0;
    for (vehicle, reply) in all.iter().enumerate() {
        match reply.get(sku) {
            Some(StoredAnswer::Known(fits_one)) => fits |= fits_one << vehicle,
            other => return other.copied().unwrap_or(StoredAnswer::Absent),
        }
    }
    StoredAnswer::Known(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_fit_query_replies_are_parsed() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let read = |text| parse(Plan::Directory, &[bulk(text)], 2, 3);
        let expected = [
            StoredAnswer::Known(3),
            StoredAnswer::Absent,
            StoredAnswer::Lost,
        ];
        assert_eq!(read("C-!").unwrap(), expected);
        for bad in ["", "C-", "C-!@", "D@@", "?@@", "a@@"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(parse(Plan::Directory, &[Value::Null], 2, 3).is_err());
        assert!(parse(Plan::Directory, &[], 1, 0).is_err());
        let bitmaps = |texts: [&str; 2]| parse(Plan::Bitmaps, &texts.map(bulk), 2, 3);
        let expected = [
            StoredAnswer::Known(2),
            StoredAnswer::Absent,
            StoredAnswer::Absent,
        ];
        assert_eq!(bitmaps(["@-A", "A@-"]).unwrap(), expected);
        assert!(bitmaps(["@-A", "A@"]).is_err());
    }
}
