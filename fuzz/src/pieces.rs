//! Cutting a stream into pieces as the input itself says, so that the fuzzer finds the cuts too.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is what the fuzzer looks for"
)]

/// Cuts what follows the first line into pieces, by the bytes of that line: a byte with bit 6 set
/// (letters) is a piece of 64 times its low four bits, any other (digits) a piece of as many bytes
/// as its low four bits say, so that `0` is an empty piece. The line counts again and again until
/// all is cut. Without a line feed, or if the line only names empty pieces, all is one piece.
///
/// ```
/// let pieces = weir_fuzz::pieces::cut(b"102\nabcd");
/// assert_eq!(pieces, [b"a".as_slice(), b"", b"bc", b"d"]);
/// ```
pub fn cut(data: &[u8]) -> Vec<&[u8]> {
    let (line, mut rest) = split_line(data);
    let length = |byte: &u8| usize::from(byte & 0x0f) << if byte & 0x40 == 0 { 0 } else { 6 };
    if line.iter().all(|byte| length(byte) == 0) {
        return vec![rest];
    }
    let mut pieces = Vec::new();
    for byte in line.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(length(byte).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// The first line without its line feed, and what follows it. Without a line feed the line is
/// empty, and everything follows.
fn split_line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|&byte| byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (&[], data),
    }
}
