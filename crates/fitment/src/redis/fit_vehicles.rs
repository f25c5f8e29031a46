//! `fit_vehicles.lua`: reads the part of the vehicle map that a gateway lacks.

use alloc::vec::Vec;

use crate::{SEGMENT_LEN, VehicleId};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::VehicleMapKeys;
use weir_scripts::reply::{array, text, unsigned};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "fit_vehicles",
    source: include_str!("../../lua/fit_vehicles.lua"),
};

/// Bytes per vehicle in a block.
pub const ID_LEN: u32 = 4;

/// A gateway's version of the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VehicleMapVersion {
    /// The generation; 0 without a map.
    pub generation: u64,
    /// The number of its vehicles, from offset 1.
    pub count: u32,
}

/// The head of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The generation. It increases when the map is rebuilt and when a vehicle is retired.
    pub generation: u64,
    /// The number of vehicles.
    pub count: u32,
    /// The stamp of current pages; pages with another stamp are stale.
    pub stamp: u64,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The head. Another generation than the known one invalidates the known map.
    pub head: Head,
    /// The vehicles after the known ones, within one block; `None` is a retired one. Read again until the head's count
    /// is reached.
    pub vehicles: Vec<Option<VehicleId>>,
}

/// The call that reads the head, and up to `vehicles_max` missing vehicles.
pub fn call(keys: &VehicleMapKeys, version: VehicleMapVersion, vehicles_max: u32) -> Call {
    let segment = version.count / SEGMENT_LEN;
    let begin = version.count % SEGMENT_LEN;
    let vehicles = vehicles_max.min(SEGMENT_LEN - begin);
    let mut args = Arguments::default();
    args.push_decimal(version.generation);
    args.push_decimal((begin * ID_LEN).into());
    args.push_decimal((vehicles * ID_LEN).into());
    Call {
        script: &SCRIPT,
        keys: [keys.head(), keys.block(version.generation, segment)].into(),
        args,
    }
}

/// Parses the reply. `None`: there is no map, because nothing was imported or Redis lost it.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<Option<Tail>, ReplyError> {
    let tail = match value {
        Value::Null => return Ok(None),
        value => array(value).and_then(tail),
    };
    tail.map(Some).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

fn tail(values: &[Value]) -> Option<Tail> {
    let [generation, count, stamp, bytes] = values else {
        return None;
    };
    let head = Head {
        generation: unsigned(generation)?,
        count: unsigned(count)?,
        stamp: unsigned(stamp)?,
    };
    let (ids, rest) = text(bytes)?.as_chunks::<4>();
    let vehicle = |id: &[u8; 4]| match u32::from_be_bytes(*id) {
        0 => Some(None),
        number => VehicleId::from_number(number).ok().map(Some),
    };
    let vehicles = ids.iter().map(vehicle).collect::<Option<_>>()?;
    rest.is_empty().then_some(Tail { head, vehicles })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn only_valid_vehicle_maps_are_parsed() {
        let read = |bytes: &[u8]| {
            let numbers = [3, 2, 9].map(Value::Integer);
            parse(&Value::Array(
                [&numbers[..], &[Value::Bulk(bytes.into())]].concat(),
            ))
        };
        let found = read(b"\0\x0f\x42\x41\0\0\0\0").unwrap().unwrap();
        let first = VehicleId::from_number(1_000_001).unwrap();
        assert_eq!(found.vehicles, [Some(first), None]);
        assert_eq!(
            (found.head.generation, found.head.count, found.head.stamp),
            (3, 2, 9)
        );
        assert!(read(b"\0\0\0").is_err() && read(b"\xff\0\0\0").is_err());
        assert_eq!(parse(&Value::Null).unwrap(), None);
        assert!(parse(&Value::Array(vec![])).is_err());
    }
}
