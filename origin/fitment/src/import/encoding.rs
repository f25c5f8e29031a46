//! Encodings of imports. Readers accept UTF-8 only, so a file in another encoding is first decoded in place.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use encoding_rs::{DecoderResult, Encoding, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE};

use super::read::{Format, ReadError};

/// Length of the file head that shows the encoding: byte order mark and XML declaration.
const HEAD_LEN: u64 = 256;

const CHUNK_LEN: usize = 64 * 1024;

/// Decodes the file at `path` to UTF-8, through the temporary file `beside`. Returns the original encoding; `None`:
/// UTF-8.
///
/// The decoded file replaces the original atomically and begins with a byte order mark. A second call therefore does
/// nothing.
pub(super) fn decode_file(
    path: &Path,
    beside: &Path,
    format: Format,
) -> Result<Option<&'static Encoding>, ReadError> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_LEN).read_to_end(&mut head)?;
    let Some(encoding) = encoding_of(&head, format).map_err(ReadError::File)? else {
        return Ok(None);
    };
    let decoded = decode(path, beside, encoding);
    let moved = decoded.and_then(|()| Ok(std::fs::rename(beside, path)?));
    if moved.is_err() {
        let _ = std::fs::remove_file(beside);
    }
    moved.map(|()| Some(encoding))
}

/// The encoding of a file with this head; `None`: UTF-8.
fn encoding_of(head: &[u8], format: Format) -> Result<Option<&'static Encoding>, String> {
    if let Some((encoding, _)) = Encoding::for_bom(head) {
        return Ok((encoding != UTF_8).then_some(encoding));
    }
    // Tables and XML both begin with two ASCII characters.
    match head {
        [0, 1..=u8::MAX, 0, 1..=u8::MAX, ..] => return Ok(Some(UTF_16BE)),
        [1..=u8::MAX, 0, 1..=u8::MAX, 0, ..] => return Ok(Some(UTF_16LE)),
        _ => {}
    }
    let label = match format {
        Format::Csv => None,
        #[cfg(feature = "aces")]
        Format::Aces => declared(head),
    };
    let Some(label) = label else {
        return Ok(None);
    };
    match Encoding::for_label(label) {
        // The first bytes are not UTF-16, so a UTF-16 declaration is wrong; UTF-8 needs no decoding.
        Some(encoding) if [UTF_8, UTF_16BE, UTF_16LE].contains(&encoding) => Ok(None),
        Some(encoding) if encoding != REPLACEMENT => Ok(Some(encoding)),
        _ => Err(format!(
            "line 1: unsupported encoding {:?}: save and declare the file as UTF-8",
            String::from_utf8_lossy(label)
        )),
    }
}

/// The encoding that an XML declaration names.
#[cfg(feature = "aces")]
fn declared(head: &[u8]) -> Option<&[u8]> {
    let head = head.strip_prefix(b"<?xml")?;
    let end = head.windows(2).position(|two| two == b"?>")?;
    let declaration = head.get(..end)?;
    let name = b"encoding";
    let at = declaration
        .windows(name.len())
        .position(|window| window == name)?;
    let value = declaration.get(at + name.len()..)?.trim_ascii_start();
    let value = value.strip_prefix(b"=")?.trim_ascii_start();
    let (quote, value) = value.split_first()?;
    let end = value.iter().position(|byte| byte == quote)?;
    value.get(..end)
}

fn decode(path: &Path, beside: &Path, encoding: &'static Encoding) -> Result<(), ReadError> {
    let mut from = BufReader::new(File::open(path)?);
    let mut to = BufWriter::new(File::create(beside)?);
    to.write_all("\u{feff}".as_bytes())?;
    let mut decoder = encoding.new_decoder_with_bom_removal();
    let (mut bytes, mut text) = (vec![0; CHUNK_LEN], vec![0; CHUNK_LEN]);
    let mut line = 1;
    loop {
        let length = from.read(&mut bytes)?;
        let mut rest = bytes.get(..length).unwrap_or_default();
        loop {
            let (result, read, written) =
                decoder.decode_to_utf8_without_replacement(rest, &mut text, length == 0);
            let decoded = text.get(..written).unwrap_or_default();
            line += decoded.iter().filter(|byte| **byte == b'\n').count();
            to.write_all(decoded)?;
            rest = rest.get(read..).unwrap_or_default();
            match result {
                DecoderResult::InputEmpty => break,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(..) => {
                    return Err(ReadError::File(format!(
                        "line {line}: the text is not {}: save the file as UTF-8",
                        encoding.name()
                    )));
                }
            }
        }
        if length == 0 {
            break;
        }
    }
    to.into_inner()
        .map_err(std::io::IntoInnerError::into_error)?
        .sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_is_taken_from_bom_pattern_or_declaration() {
        let utf16: Vec<u8> = "sku\tvehicle"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        let name =
            |head: &[u8], format| encoding_of(head, format).map(|found| found.map(Encoding::name));
        assert_eq!(name(b"\xef\xbb\xbfsku", Format::Csv), Ok(None));
        assert_eq!(name(b"\xff\xfes\0", Format::Csv), Ok(Some("UTF-16LE")));
        assert_eq!(name(b"\xfe\xff\0s", Format::Csv), Ok(Some("UTF-16BE")));
        assert_eq!(name(&utf16, Format::Csv), Ok(Some("UTF-16LE")));
        assert_eq!(name(b"", Format::Csv), Ok(None));
        let declares = |encoding: &str| format!("<?xml version='1.0' encoding = {encoding} ?><A/>");
        #[cfg(feature = "aces")]
        for (encoding, found) in [
            ("'UTF-8'", Ok(None)),
            ("\"utf-16\"", Ok(None)),
            ("'windows-1252'", Ok(Some("windows-1252"))),
            ("\"ISO-8859-1\"", Ok(Some("windows-1252"))),
            ("'Shift_JIS'", Ok(Some("Shift_JIS"))),
        ] {
            assert_eq!(name(declares(encoding).as_bytes(), Format::Aces), found);
        }
        #[cfg(feature = "aces")]
        for encoding in ["'EBCDIC'", "'ISO-2022-KR'"] {
            let error = name(declares(encoding).as_bytes(), Format::Aces).unwrap_err();
            assert!(error.contains(encoding.trim_matches('\'')), "{error}");
        }
        assert_eq!(
            name(declares("'Shift_JIS'").as_bytes(), Format::Csv),
            Ok(None)
        );
    }

    #[test]
    fn file_is_decoded_once_and_its_invalid_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (path, beside) = (dir.path().join("file"), dir.path().join("beside"));
        let text = format!("sku;vehicle\r\n{}", "Größe 😀;1000001\r\n".repeat(20_000));
        let utf16 = |text: &str| {
            let units = "\u{feff}".encode_utf16().chain(text.encode_utf16());
            units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
        };
        std::fs::write(&path, utf16(&text)).unwrap();
        let found = decode_file(&path, &beside, Format::Csv).unwrap();
        assert_eq!(found, Some(UTF_16LE));
        let decoded = std::fs::read_to_string(&path).unwrap();
        assert_eq!(decoded, format!("\u{feff}{text}"));
        assert!(!beside.exists());
        assert_eq!(decode_file(&path, &beside, Format::Csv).unwrap(), None);
        let mut broken = utf16("a\nb\nc");
        broken.extend_from_slice(&[0, 0xdc]);
        std::fs::write(&path, broken).unwrap();
        let error = decode_file(&path, &beside, Format::Csv).unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with("line 3: the text is not UTF-16LE"),
            "{message}"
        );
        assert!(!beside.exists());
    }
}
