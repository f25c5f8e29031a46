//! RESP parsing: the lengths of values, and the commands of a call.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

/// Maximum nesting; Redis replies have less.
const DEPTH_MAX: usize = 32;
/// Maximum size, in bytes; it bounds memory for a wrong length.
const BYTES_MAX: usize = 64 << 20;

/// Why a scan returned no length.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// More bytes are needed.
    Incomplete,
    /// No continuation is valid RESP.
    Malformed,
}

/// Counts the values in `bytes`, which must be complete.
///
/// # Errors
/// [`Short::Incomplete`] if the last value is incomplete.
pub(crate) fn count(bytes: &[u8]) -> Result<usize, Short> {
    let mut rest = bytes;
    let mut values = 0;
    while !rest.is_empty() {
        rest = &rest[length(rest)?..];
        values += 1;
    }
    Ok(values)
}

/// The length in bytes of the first `values` values, once all are complete.
pub(crate) fn length_of(values: usize, bytes: &[u8]) -> Result<usize, Short> {
    let mut at = 0;
    for _ in 0..values {
        at += length(&bytes[at..])?;
    }
    Ok(at)
}

/// The commands in `bytes`: non-empty arrays of bulk strings, with their contents.
///
/// # Errors
/// [`Short::Malformed`] for a value that is not a command, and the errors of [`count`].
pub(crate) fn commands(bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, Short> {
    let (mut commands, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let (b'*', parts @ 1.., line_end) = line(bytes, at)? else {
            return Err(Short::Malformed);
        };
        at = line_end;
        let mut command = Vec::new();
        for _ in 0..parts {
            let (b'$', length @ 0.., line_end) = line(bytes, at)? else {
                return Err(Short::Malformed);
            };
            at = bulk_end(bytes, line_end, length)?;
            command.push(bytes[line_end..at - 2].to_vec());
        }
        commands.push(command);
    }
    Ok(commands)
}

fn length(bytes: &[u8]) -> Result<usize, Short> {
    // The remaining values of each open level, which avoids recursion.
    let mut open = vec![1usize];
    let mut at = 0;
    while let Some(remaining) = open.last_mut() {
        if *remaining == 0 {
            open.pop();
            continue;
        }
        *remaining -= 1;
        let (kind, number, line_end) = line(bytes, at)?;
        at = line_end;
        match (kind, number) {
            (b'+' | b'-' | b':', _) | (b'$' | b'*', -1) => {}
            (b'$', n) => at = bulk_end(bytes, at, n)?,
            (b'*', n) => open.push(usize::try_from(n).map_err(|_| Short::Malformed)?),
            _ => return Err(Short::Malformed),
        }
        if open.len() > DEPTH_MAX {
            return Err(Short::Malformed);
        }
    }
    Ok(at)
}

/// The kind, the number (0 for text) and the end of the line that starts at `at`.
fn line(bytes: &[u8], at: usize) -> Result<(u8, i64, usize), Short> {
    let rest = bytes.get(at..).ok_or(Short::Incomplete)?;
    let kind = *rest.first().ok_or(Short::Incomplete)?;
    let end = rest.windows(2).position(|w| w == b"\r\n");
    let end = end.ok_or(Short::Incomplete)?;
    let number = match kind {
        b'$' | b'*' => std::str::from_utf8(&rest[1..end])
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or(Short::Malformed)?,
        _ => 0,
    };
    Ok((kind, number, at + end + 2))
}

fn bulk_end(bytes: &[u8], at: usize, length: i64) -> Result<usize, Short> {
    let length = usize::try_from(length).map_err(|_| Short::Malformed)?;
    if length > BYTES_MAX {
        return Err(Short::Malformed);
    }
    let end = at + length + 2;
    match bytes.get(end - 2..end) {
        None => Err(Short::Incomplete),
        Some(b"\r\n") => Ok(end),
        Some(_) => Err(Short::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resp_values_of_every_kind_are_counted() {
        let bytes = b"+OK\r\n-ERR x\r\n:-3\r\n$-1\r\n*-1\r\n$3\r\na\r\n\r\n*2\r\n*1\r\n:1\r\n$0\r\n\r\n*0\r\n";
        assert_eq!(count(bytes), Ok(8));
        assert_eq!(length_of(2, bytes), Ok(b"+OK\r\n-ERR x\r\n".len()));
    }

    #[test]
    fn truncated_resp_value_is_incomplete() {
        let bytes = b"*2\r\n$3\r\nGET\r\n*1\r\n:12\r\n";
        for cut in 1..bytes.len() {
            assert_eq!(count(&bytes[..cut]), Err(Short::Incomplete), "cut at {cut}");
        }
    }

    #[test]
    fn invalid_resp_is_malformed() {
        for bytes in [
            &b"GET x\r\n"[..],
            b"$x\r\n",
            b"$3\r\nabcde",
            b"*-2\r\n",
            b"$99999999999\r\n",
        ] {
            assert_eq!(count(bytes), Err(Short::Malformed), "{bytes:?}");
        }
        assert_eq!(count(&b"*1\r\n".repeat(64)), Err(Short::Malformed));
    }
}
