//! Defines scripts with a list of words as call and one value as reply, as rows of a table.

/// Defines a module for each row, with the `SCRIPT`, its typed `call` and the parser of its reply. Names of the
/// surrounding module are in scope. Keys and words are arrays or [`Arguments`](weir_base::resp::Arguments); the reply
/// is a [`FromReply`](crate::reply::FromReply).
///
/// ```
/// use weir_scripts::call::decimal;
///
/// weir_scripts::scripts! {
///     /// `incr.lua`: a counter goes up.
///     mod incr = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
///     /// The call that adds `more`.
///     fn call(key: &[u8], more: u64) = [key], [decimal(more)];
///     -> usize;
/// }
/// # fn main() {
/// assert_eq!(incr::call(b"visits", 3).args.len(), 1);
/// # }
/// ```
#[macro_export]
macro_rules! scripts {
    ($(
        $(#[$script_doc:meta])*
        mod $name:ident = $source:expr;
        $(#[$call_doc:meta])*
        fn call($($param:ident: $type:ty),*) = $keys:expr, $args:expr;
        -> $reply:ty;
    )*) => {$(
        $(#[$script_doc])*
        pub mod $name {
            #[allow(unused_imports, reason = "a row may need no name of the module around it")]
            use super::*;

            /// The script.
            pub static SCRIPT: $crate::Script = $crate::Script {
                name: stringify!($name),
                source: $source,
            };

            $(#[$call_doc])*
            pub fn call($($param: $type),*) -> $crate::Call {
                $crate::Call {
                    script: &SCRIPT,
                    keys: $keys.into(),
                    args: $args.into(),
                }
            }

            /// Parses the reply.
            ///
            /// # Errors
            /// If the reply is not from this script.
            pub fn parse(
                value: &$crate::reply::Value,
            ) -> Result<$reply, $crate::ReplyError> {
                $crate::reply::read(value, &SCRIPT)
            }
        }
    )*};
}
