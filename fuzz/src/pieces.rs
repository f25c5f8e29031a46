//! Cuts a stream into pieces as the input defines, so that the fuzzer also mutates the cuts.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is what the fuzzer looks for"
)]

/// Cuts the bytes after the first line into pieces, whose lengths the bytes of that line define. A byte with bit 6 set
/// (letters) is a piece of 64 times its low four bits. Any other byte (digits) is a piece of its low four bits, so `0`
/// is an empty piece. The line repeats until all is cut. Without a line feed, or if the line only defines empty pieces,
/// all is one piece.
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
        let (chunk, after) = rest.split_at(length(byte).min(rest.len()));
        pieces.push(chunk);
        rest = after;
    }
    pieces
}

/// The first line without its line feed, and the rest. Without a line feed the line is empty, and the rest is
/// everything.
fn split_line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|&byte| byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (&[], data),
    }
}
