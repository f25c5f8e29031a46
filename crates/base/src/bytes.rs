//! Comparisons of short byte strings.

/// Whether two byte strings are equal. `==` costs about seven WebAssembly instructions per byte; this costs as many per eight
/// bytes.
// Most comparisons end at the length, which then costs no call.
#[inline]
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && has_same_bytes(a, b)
}

/// [`is_same`] for texts of the same length.
fn has_same_bytes(a: &[u8], b: &[u8]) -> bool {
    // The last eight bytes overlap the last whole word.
    if let (Some(a_end), Some(b_end)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        let mut words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
        return a_end == b_end && words.all(|(a, b)| a == b);
    }
    if let (Some(a_end), Some(b_end)) = (a.last_chunk::<4>(), b.last_chunk::<4>()) {
        return a_end == b_end && a.first_chunk::<4>() == b.first_chunk::<4>();
    }
    a.iter().zip(b).all(|(a, b)| a == b)
}

/// `text` without `prefix`; `None` if it does not begin with `prefix`.
pub fn strip_prefix<'t>(text: &'t [u8], prefix: &[u8]) -> Option<&'t [u8]> {
    let (begin, rest) = text.split_at_checked(prefix.len())?;
    is_same(begin, prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn texts_are_equal_if_all_bytes_are_equal() {
        for len in 0..40 {
            let text: Vec<u8> = (0..len).collect();
            assert!(is_same(&text, &text.clone()));
            assert_eq!(strip_prefix(&text, &text), Some(&b""[..]));
            for at in 0..text.len() {
                let mut other = text.clone();
                other[at] ^= 0x80;
                assert!(!is_same(&text, &other), "{len} {at}");
                assert!(!is_same(&text, &text[..at]), "{len} {at}");
                assert_eq!(strip_prefix(&text, &other), None);
                assert_eq!(strip_prefix(&text, &text[..at]), Some(&text[at..]));
                assert_eq!(strip_prefix(&text[..at], &text), None);
            }
        }
    }
}
