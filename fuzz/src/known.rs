//! Where a reader is known not to do what its target asks: each as narrow as it can be told. A
//! function goes when its reader is mended.

use weir_resp::Value;

/// The decoder takes a number of more than 20 digits if it fits, after leading zeros; the framer
/// does not.
pub(crate) fn number_with_many_zeros(stream: &[u8]) -> bool {
    stream.windows(22).any(|window| {
        b":$*".contains(&window[0])
            && window[1..].iter().all(|b| b.is_ascii_digit() || *b == b'-')
            && window[2] == b'0'
    })
}

/// The framer takes an empty array within 16 arrays, since nothing nests deeper; the decoder says
/// that it is too deep.
pub(crate) fn empty_array_too_deep(stream: &[u8]) -> bool {
    let zero = |after: &[u8]| {
        let digits = after.iter().take_while(|b| b"-0".contains(b)).count();
        digits > 0 && after.get(digits) == Some(&b'\r')
    };
    let mut tails = (0..stream.len()).map(|at| &stream[at..]);
    tails.any(|tail| tail.strip_prefix(b"*").is_some_and(zero))
}

/// A route's path may hold a `?`, and then matches no request.
pub(crate) fn route_with_query(path: &str) -> bool {
    path.contains('?')
}

/// An audit with a stock that is no count is taken as one of a cold shard, whatever it is and not
/// only the script's -1.
pub(crate) fn stock_of_an_audit(stock: &Value) -> bool {
    !matches!(stock, Value::Integer(-1..))
}
