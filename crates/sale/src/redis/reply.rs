//! Replies of shard scripts that are one number, or a number and data.

use crate::ledger::{
    DepositReply, FollowUpReply, LendReply, ReleaseReply, SettleReply, StockChanged, Transfer,
    WipeReply,
};
use weir_base::resp::Value;
use weir_scripts::reply::{FromReply, array, integer, unsigned};

/// Replies with a number each, for parsing and for the model.
macro_rules! codes {
    ($($reply:ident { $($code:literal => $variant:ident),* })*) => {$(
        impl FromReply for $reply {
            fn from_reply(value: &Value) -> Option<Self> {
                match value {
                    $(Value::Integer($code) => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        #[cfg(feature = "model")]
        impl $reply {
            /// The number in the script's reply.
            pub fn code(self) -> i64 {
                match self {
                    $(Self::$variant => $code,)*
                }
            }
        }
    )*};
}

codes! {
    DepositReply { 1 => Deposited, 2 => Already, 3 => Cold }
    FollowUpReply { 0 => Nothing, 1 => Done, 2 => Cold }
    ReleaseReply { 0 => Nothing, 1 => Ended, 2 => StillOut }
    SettleReply { 0 => Nothing, 1 => Settled }
    WipeReply { 0 => Warm, 1 => Begun, 2 => Other }
}

impl FromReply for LendReply {
    fn from_reply(value: &Value) -> Option<Self> {
        match array(value)? {
            [Value::Integer(1), id, units] => Some(Self::Lent(Transfer {
                id: unsigned(id)?,
                units: unsigned(units)?,
            })),
            [Value::Integer(2)] => Some(Self::Nothing),
            [Value::Integer(3)] => Some(Self::Cold),
            _ => None,
        }
    }
}

impl FromReply for StockChanged {
    fn from_reply(value: &Value) -> Option<Self> {
        match array(value)? {
            [Value::Integer(1), units] => integer(units).map(Self::Done),
            [Value::Integer(2)] => Some(Self::Over),
            [Value::Integer(3)] => Some(Self::Cold),
            _ => None,
        }
    }
}
