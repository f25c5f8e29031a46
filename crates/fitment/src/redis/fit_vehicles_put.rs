//! `fit_vehicles_put.lua`: appends vehicles to the map, or rebuilds it.

use alloc::vec::Vec;

use crate::{SEGMENT_LEN, VehicleId};
use weir_base::resp::{Arguments, Value};

use crate::redis::fit_vehicles::{Head, ID_LEN};
use crate::redis::keys::VehicleMapKeys;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "fit_vehicles_put",
    source: include_str!("../../lua/fit_vehicles_put.lua"),
};

/// Consecutive vehicles of one segment.
#[derive(Clone, Copy, Debug)]
pub struct MapPiece<'a> {
    /// The number of vehicles before them.
    pub before: u32,
    /// The vehicles; `None`: a retired one.
    pub vehicles: &'a [Option<VehicleId>],
}

/// The outcome of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VehiclesPutOutcome {
    /// The piece is written.
    Done,
    /// Redis has a newer generation.
    Superseded,
    /// The preceding part is lost: a new generation must be written.
    Hole,
}

/// The call that writes a piece of one generation. Its last piece also writes the head.
pub fn call(
    keys: &VehicleMapKeys,
    generation: u64,
    chunk: MapPiece<'_>,
    head: Option<Head>,
) -> Call {
    let (segment, begin) = (chunk.before / SEGMENT_LEN, chunk.before % SEGMENT_LEN);
    let number = |vehicle: &Option<VehicleId>| vehicle.map_or(0, VehicleId::number).to_be_bytes();
    let bytes: Vec<u8> = chunk.vehicles.iter().flat_map(number).collect();
    let mut args = Arguments::default();
    args.push_decimal(generation);
    args.push_decimal((begin * ID_LEN).into());
    args.push(&bytes);
    match head {
        None => {
            args.push(b"");
            args.push(b"");
        }
        Some(head) => {
            args.push_decimal(head.count.into());
            args.push_decimal(head.stamp);
        }
    }
    Call {
        script: &SCRIPT,
        keys: [keys.head(), keys.block(generation, segment)].into(),
        args,
    }
}

/// Parses the reply.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<VehiclesPutOutcome, ReplyError> {
    match value {
        Value::Integer(0) => Ok(VehiclesPutOutcome::Superseded),
        Value::Integer(1) => Ok(VehiclesPutOutcome::Done),
        Value::Integer(2) => Ok(VehiclesPutOutcome::Hole),
        _ => Err(ReplyError {
            script: SCRIPT.name,
        }),
    }
}
