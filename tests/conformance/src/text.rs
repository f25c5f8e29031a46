//! Encodes bytes as readable text for JSON.

use anyhow::{Context, Result};

/// Encodes printable UTF-8 unchanged, except `\\` for a backslash; every other byte as `\x` and two digits.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push('\n'),
                _ if char.is_control() => {
                    let mut buffer = [0; 4];
                    push_bytes(char.encode_utf8(&mut buffer).as_bytes(), &mut text);
                }
                _ => text.push(char),
            }
        }
        push_bytes(chunk.invalid(), &mut text);
    }
    text
}

fn push_bytes(bytes: &[u8], text: &mut String) {
    bytes
        .iter()
        .for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
}

/// Decodes the result of [`escape`].
///
/// # Errors
/// A backslash begins an unknown escape.
pub fn unescape(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, behind)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        rest = match behind.strip_prefix('\\') {
            Some(rest) => {
                bytes.push(b'\\');
                rest
            }
            None => {
                let digits = behind.strip_prefix('x').and_then(|hex| hex.get(..2));
                let byte = digits.and_then(|hex| u8::from_str_radix(hex, 16).ok());
                bytes.push(byte.with_context(|| format!("a stray backslash in {text:?}"))?);
                &behind[3..]
            }
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn escaped_text_round_trips(bytes: Vec<u8>, text: String) {
            prop_assert_eq!(unescape(&escape(&bytes)).unwrap(), bytes);
            prop_assert_eq!(unescape(&escape(text.as_bytes())).unwrap(), text.into_bytes());
        }
    }

    #[test]
    fn escaped_text_stays_readable() {
        assert_eq!(escape("a\\b\0é\n".as_bytes()), "a\\\\b\\x00é\n");
        assert_eq!(escape(b"\xff1"), "\\xff1");
        assert!(unescape("\\y").is_err() && unescape("\\x1").is_err());
    }
}
