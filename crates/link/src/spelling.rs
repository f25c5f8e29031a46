//! The spelling of codes: parsing paths, checking custom codes, and writing URLs.
//!
//! A code has one stored form, in ASCII. Non-ASCII letters are [Punycode](crate::punycode) after `xn--`, segment by
//! segment, as in host names. Keys, tables, headers and click tags therefore need no other alphabet, and each path
//! names at most one code.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use crate::code::Code;
#[cfg(feature = "origin")]
use crate::code::CodeError;
use crate::punycode;

/// Maximum length of a path that may name a code, in bytes, without the leading slash: a letter has up to four bytes,
/// each escaped as three characters.
const PATH_LEN_MAX: usize = 12 * Code::LEN_MAX + 1;

/// The prefix of the stored form of a segment with non-ASCII letters.
const PREFIX: &str = "xn--";

/// Options for the codes of a domain. All are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LinkCodeOptions))]
pub struct CodeOptions {
    /// Whether a path may have a trailing slash.
    #[serde(skip_serializing_if = "is_off")]
    pub trailing_slash: bool,
    /// Whether codes ignore case. It cannot change while the domain has links.
    #[serde(skip_serializing_if = "is_off")]
    pub ignore_case: bool,
    /// Whether custom codes may have letters and digits beyond ASCII.
    #[serde(skip_serializing_if = "is_off")]
    pub unicode: bool,
    /// Whether custom codes may have several segments, separated by slashes.
    #[serde(skip_serializing_if = "is_off")]
    pub segments: bool,
}

fn is_off(option: &bool) -> bool {
    !option
}

impl CodeOptions {
    /// Whether all options are off.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// The stored form of the code that a path, without its leading slash, names; `None` if it names none. The caller
    /// must still check the result with [`Code::new`] or [`LinkName::new`](crate::cache::LinkName::new).
    pub fn read<'a>(&self, path: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if self.is_plain() {
            return (!path.contains(&b'/')).then_some(path.into());
        }
        let path = match path.strip_suffix(b"/") {
            Some(path) if self.trailing_slash => path,
            _ => path,
        };
        if path.len() > PATH_LEN_MAX || (!self.segments && path.contains(&b'/')) {
            return None;
        }
        let is_escaped = |byte: &u8| *byte == b'%' || !byte.is_ascii();
        if self.unicode && path.iter().any(is_escaped) {
            let text = String::from_utf8(unescaped(path)?).ok()?;
            return Some(self.stored(&text)?.into_bytes().into());
        }
        if self.ignore_case && path.iter().any(u8::is_ascii_uppercase) {
            return Some(path.to_ascii_lowercase().into());
        }
        Some(path.into())
    }

    /// The stored form of a text: composed, in lower case if case is ignored, and in ASCII.
    fn stored(&self, text: &str) -> Option<String> {
        // Each letter has at least one byte in the stored form. Decomposed text has about two characters per letter.
        if text.chars().count() > 2 * Code::LEN_MAX {
            return None;
        }
        let composed: String = match self.ignore_case {
            true => text.nfc().flat_map(char::to_lowercase).nfc().collect(),
            false => text.nfc().collect(),
        };
        let mut stored = String::new();
        for (n, segment) in composed.split('/').enumerate() {
            if n > 0 {
                stored.push('/');
            }
            match segment.is_ascii() {
                true => stored.push_str(segment),
                false => {
                    stored.push_str(PREFIX);
                    stored.push_str(&punycode::encode(segment)?);
                }
            }
        }
        Some(stored)
    }

    /// The code in a URL: non-ASCII letters are percent-encoded, and browsers show them as letters.
    pub fn in_url<'a>(&self, code: &'a Code) -> Cow<'a, str> {
        let code = code.as_str();
        if !self.unicode || !code.contains(PREFIX) {
            return code.into();
        }
        let segments = code.split('/').map(|segment| {
            let letters = letters_of(segment);
            letters.map_or(Cow::Borrowed(segment), |letters| escaped(&letters).into())
        });
        segments.collect::<Vec<_>>().join("/").into()
    }

    /// The form of a generated code on this domain: in lower case with more digits, if case is ignored.
    pub fn generated(&self, code: Code) -> Code {
        match self.ignore_case {
            true => code.in_lower_case().unwrap_or(code),
            false => code,
        }
    }

    /// The generated code behind `code`, a code of this domain: the inverse of [`CodeOptions::generated`]. `None` if `code` is
    /// not generated.
    pub fn as_generated(&self, code: &Code) -> Option<Code> {
        match self.ignore_case {
            true => code.from_lower_case(),
            false => code.number().map(|_| code.clone()),
        }
    }

    /// Checks a custom code, and returns its stored form.
    ///
    /// # Errors
    /// If the code is invalid.
    #[cfg(feature = "origin")]
    pub fn choose(&self, text: &str) -> Result<Code, CodeError> {
        let named: Vec<Cow<'_, str>> = match self.unicode {
            true => text.split('/').map(named).collect::<Result<_, _>>()?,
            false => Vec::from([text.into()]),
        };
        let text = named.join("/");
        self.check(&text)?;
        let stored = self.stored(&text).ok_or(CodeError::TooLong)?;
        match is_reserved(&stored) {
            true => Err(CodeError::Reserved),
            false => Code::new(stored),
        }
    }

    #[cfg(feature = "origin")]
    fn check(&self, text: &str) -> Result<(), CodeError> {
        use unicode_security::GeneralSecurityProfile as _;

        let is_allowed = |c: char| match c {
            '/' => self.segments,
            c if c.is_ascii() => c.is_ascii_alphanumeric() || matches!(c, '-' | '_'),
            c => self.unicode && c.identifier_allowed(),
        };
        let mut characters = text.chars().zip(1..);
        if let Some((character, position)) = characters.find(|(c, _)| !is_allowed(*c)) {
            return Err(CodeError::Character {
                character,
                position,
            });
        }
        if self.segments && text.contains('/') && text.split('/').any(str::is_empty) {
            return Err(CodeError::EmptySegment);
        }
        match text.split('/').any(crate::target::is_label_homograph) {
            true => Err(CodeError::Lookalike),
            false => Ok(()),
        }
    }
}

/// A segment in its original letters, also if it was given in its stored form.
#[cfg(feature = "origin")]
fn named(segment: &str) -> Result<Cow<'_, str>, CodeError> {
    if !segment.starts_with(PREFIX) {
        return Ok(segment.into());
    }
    // Decoding time grows with the square of the length.
    if segment.len() > Code::LEN_MAX {
        return Err(CodeError::TooLong);
    }
    let letters = letters_of(segment).ok_or(CodeError::Punycode)?;
    Ok(letters.into())
}

/// The original letters of a segment in its stored form; `None` if it has only ASCII.
fn letters_of(segment: &str) -> Option<String> {
    let ascii = segment
        .strip_prefix(PREFIX)
        .filter(|ascii| ascii.is_ascii())?;
    punycode::decode(ascii).filter(|letters| !letters.is_ascii())
}

/// Whether a code is reserved for a file of the domain, or resembles a path of the API.
#[cfg(feature = "origin")]
fn is_reserved(stored: &str) -> bool {
    const FILES: [&str; 1] = ["apple-app-site-association"];
    const FIRST: [&str; 5] = ["l", "links", "link-records", "clicks", "ui"];
    const LAST: [&str; 4] = ["history", "stats", "crosstab", "conversions"];
    match (stored.split_once('/'), stored.rsplit_once('/')) {
        (Some((first, _)), Some((_, last))) => FIRST.contains(&first) || LAST.contains(&last),
        _ => FILES.contains(&stored),
    }
}

/// Decodes a path; `None` if it escapes a character that needs no escape: each path has one spelling.
fn unescaped(path: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = tail.split_at_checked(2)?;
        rest = tail;
        let digits = core::str::from_utf8(digits).ok()?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let value = u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
        if value.is_ascii() {
            return None;
        }
        bytes.push(value);
    }
    Some(bytes)
}

fn escaped(letters: &str) -> String {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let mut text = String::with_capacity(3 * letters.len());
    for byte in letters.bytes() {
        if byte.is_ascii() {
            text.push(char::from(byte));
            continue;
        }
        text.push('%');
        for half in [byte >> 4, byte & 0xf] {
            text.extend(HEX.get(usize::from(half)));
        }
    }
    text
}

#[cfg(all(test, feature = "origin"))]
mod tests;
