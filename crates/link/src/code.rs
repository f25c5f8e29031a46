//! The names of links: `<domain>/<code>`.
//!
//! A *generated* code is a number in base62 (digits `0-9A-Za-z` in ASCII order), padded on the left with `0` to its
//! [`Length`]. Codes of one length therefore sort like their numbers. A *custom* code is chosen by people. A custom
//! code of 5 to 8 base62 digits also has a number, which [`Code::number`] returns, so that it is never generated again.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use weir_base::id::{IdError, check};

/// A domain's short name in keys, in the API and in statistics: 1 to [`DomainId::LEN_MAX`] of `a-z`,
/// `0-9` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DomainId(Box<str>);

/// A link's name under its domain: [`Code::LEN_MIN`] to [`Code::LEN_MAX`] of `0-9A-Za-z-_`, or segments of these with a slash
/// between them.
///
/// The alphabet is narrow because a code appears unescaped in paths and in Redis hash tags, where a `}` would move the
/// key to another slot. Upper and lower case are different codes. For the spellings that paths may use, see
/// [`CodeOptions`](super::spelling::CodeOptions).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Code(Box<str>);

/// A link's full name, shown as `<domain>/<code>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkId {
    /// The domain.
    pub domain: DomainId,
    /// The code under it.
    pub code: Code,
}

/// How many digits a generated code has: 5 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Length(u8);

/// Why a link's name is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// A character that codes may not have.
    #[error(
        "has the invalid character {character:?} at position {position}: use 0-9, A-Z, a-z, - and _"
    )]
    Character {
        /// The character.
        character: char,
        /// Its position, from 1.
        position: usize,
    },
    /// A slash at either end, or two slashes in a row.
    #[error("has an empty segment: write one slash between two segments")]
    EmptySegment,
    /// Reserved for Weir's own paths.
    #[error("is reserved for Weir: choose another code")]
    Reserved,
    /// People could confuse it with another code.
    #[error("mixes scripts, or has letters that look like ASCII: use the letters of one language")]
    Lookalike,
    /// Begins with the prefix of the stored form of non-ASCII letters, but does not decode.
    #[error("has a segment that starts with xn-- and is not Punycode: write its letters")]
    Punycode,
    /// Fewer bytes than [`Code::LEN_MIN`].
    #[error("is shorter than {} bytes", Code::LEN_MIN)]
    TooShort,
    /// More bytes than [`Code::LEN_MAX`].
    #[error("is longer than {} bytes", Code::LEN_MAX)]
    TooLong,
    /// The domain's name is malformed.
    #[error("the domain {0}")]
    Domain(IdError),
    /// No `/` between domain and code.
    #[error("is not <domain>/<code>")]
    NoSlash,
    /// The length is not one of generated codes.
    #[error("generated codes have {} to {} digits", Length::MIN.0, Length::MAX.0)]
    Length,
}

/// The code that stands for all links of a domain. It sorts after all codes: transactions lock its rows last.
const WHOLE_DOMAIN: &str = "~";

/// Maximum digits of a number in base 36.
const LOWER_CASE_LEN_MAX: usize = 10;

impl DomainId {
    /// Maximum bytes of a domain's name.
    pub const LEN_MAX: usize = 16;

    /// Checks `bytes` and returns them as a domain's name.
    ///
    /// # Errors
    /// If the name is invalid.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, IdError> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        check(bytes.as_ref(), Self::LEN_MAX, allowed).map(|name| Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Length {
    /// The shortest.
    pub const MIN: Self = Self(5);

    /// The longest.
    pub const MAX: Self = Self(8);

    /// All lengths in ascending order.
    pub const ALL: [Self; 4] = [Self(5), Self(6), Self(7), Self(8)];

    /// Checks `digits`.
    ///
    /// # Errors
    /// If generated codes have no such length.
    pub fn new(digits: u8) -> Result<Self, CodeError> {
        let is_known = (Self::MIN.0..=Self::MAX.0).contains(&digits);
        is_known.then_some(Self(digits)).ok_or(CodeError::Length)
    }

    /// The number of digits.
    pub const fn digits(self) -> u8 {
        self.0
    }

    /// The number of digits of the same numbers in base 36.
    const fn digits_in_lower_case(self) -> usize {
        match self.0 {
            ..=5 => 6,
            6 => 7,
            7 => 9,
            _ => LOWER_CASE_LEN_MAX,
        }
    }

    /// The index in [`Length::ALL`].
    pub const fn position(self) -> usize {
        (self.0 - Self::MIN.0) as usize
    }

    /// The number of codes of this length: 62 to the power of its digits, at most 218,340,105,584,896.
    pub const fn capacity(self) -> u64 {
        62_u64.pow(self.0 as u32)
    }
}

impl Code {
    /// Minimum bytes.
    pub const LEN_MIN: usize = 3;

    /// Maximum bytes.
    pub const LEN_MAX: usize = 32;

    /// Checks `bytes` and returns them as a custom or generated code.
    ///
    /// # Errors
    /// If the code is invalid.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, CodeError> {
        let text = String::from_utf8_lossy(bytes.as_ref());
        let mut characters = text.chars().zip(1..);
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/');
        if let Some((character, position)) = characters.find(|(c, _)| !is_allowed(*c)) {
            return Err(CodeError::Character {
                character,
                position,
            });
        }
        if text.contains('/') && text.split('/').any(str::is_empty) {
            return Err(CodeError::EmptySegment);
        }
        match text.len() {
            ..Self::LEN_MIN => Err(CodeError::TooShort),
            Self::LEN_MIN..=Self::LEN_MAX => Ok(Self(text.into())),
            _ => Err(CodeError::TooLong),
        }
    }

    /// The code of `length` for `number` in base62; `None` if the number does not fit.
    pub fn generated(length: Length, number: u64) -> Option<Self> {
        if number >= length.capacity() {
            return None;
        }
        let mut digits = [0; Length::MAX.0 as usize];
        let used = base62::encode_bytes(number, &mut digits).ok()?;
        let digits = core::str::from_utf8(digits.get(..used)?).ok()?;
        let padding = usize::from(length.0).checked_sub(used)?;
        let mut text = String::with_capacity(usize::from(length.0));
        text.extend(core::iter::repeat_n('0', padding));
        text.push_str(digits);
        Some(Self(text.into()))
    }

    /// The length and number of a code that could be generated; `None` for all others.
    pub fn number(&self) -> Option<(Length, u64)> {
        let length = Length::new(u8::try_from(self.0.len()).ok()?).ok()?;
        let number = base62::decode(self.0.as_bytes()).ok()?;
        Some((length, u64::try_from(number).ok()?))
    }

    /// The lower-case form of a generated code, for domains that ignore case: its number in base 36, with more digits.
    /// `None` for a code that is not generated.
    pub fn in_lower_case(&self) -> Option<Self> {
        let (length, mut number) = self.number()?;
        let mut digits = [0; LOWER_CASE_LEN_MAX];
        let digits = digits.get_mut(..length.digits_in_lower_case())?;
        for digit in digits.iter_mut().rev() {
            let value = u8::try_from(number % 36).ok()?;
            *digit = if value < 10 {
                b'0' + value
            } else {
                b'a' + (value - 10)
            };
            number /= 36;
        }
        let text = core::str::from_utf8(digits).ok()?;
        (number == 0).then(|| Self(text.into()))
    }

    /// The generated code with the same number: the inverse of [`Code::in_lower_case`].
    pub fn from_lower_case(&self) -> Option<Self> {
        let has_digits = |length: &Length| length.digits_in_lower_case() == self.0.len();
        let length = Length::ALL.into_iter().find(has_digits)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
        let number = u64::from_str_radix(&self.0, 36).ok();
        Self::generated(length, number.filter(|_| self.0.bytes().all(is_digit))?)
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl LinkId {
    /// Maximum bytes of its text.
    pub const LEN_MAX: usize = DomainId::LEN_MAX + 1 + Code::LEN_MAX;

    /// The name of all links of a domain, in statistics. [`Code::new`] refuses its code, so no link has it.
    pub fn whole_domain(domain: DomainId) -> Self {
        let code = Code(WHOLE_DOMAIN.into());
        Self { domain, code }
    }

    /// Whether it stands for all links of its domain.
    pub fn is_whole_domain(&self) -> bool {
        self.code.as_str() == WHOLE_DOMAIN
    }

    /// Its domain and code as two path segments: slashes in the code are escaped.
    pub fn to_path(&self) -> String {
        let code = self.code.as_str().replace('/', "%2F");
        alloc::format!("{}/{code}", self.domain)
    }
}

impl FromStr for LinkId {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let (domain, code) = text.split_once('/').ok_or(CodeError::NoSlash)?;
        let domain = DomainId::new(domain).map_err(CodeError::Domain)?;
        let code = Code::new(code)?;
        Ok(Self { domain, code })
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.domain, self.code)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for DomainId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl TryFrom<String> for Code {
    type Error = CodeError;

    fn try_from(text: String) -> Result<Self, CodeError> {
        Self::new(text)
    }
}

impl TryFrom<String> for LinkId {
    type Error = CodeError;

    fn try_from(text: String) -> Result<Self, CodeError> {
        text.parse()
    }
}

impl TryFrom<u8> for Length {
    type Error = CodeError;

    fn try_from(digits: u8) -> Result<Self, CodeError> {
        Self::new(digits)
    }
}

impl From<DomainId> for String {
    fn from(id: DomainId) -> Self {
        id.0.into()
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.0.into()
    }
}

impl From<LinkId> for String {
    fn from(id: LinkId) -> Self {
        alloc::format!("{id}")
    }
}

impl From<Length> for u8 {
    fn from(length: Length) -> Self {
        length.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;
    use std::string::ToString;

    fn length() -> impl Strategy<Value = Length> {
        (5..=8_u8).prop_map(|digits| Length::new(digits).unwrap())
    }

    #[test]
    fn base62_orders_digits_capitals_small_letters_and_pads_zeros() {
        let code = |digits, number| {
            Code::generated(Length::new(digits).unwrap(), number).map(|c| c.to_string())
        };
        assert_eq!(code(5, 0).unwrap(), "00000");
        assert_eq!(code(5, 9).unwrap(), "00009");
        assert_eq!(code(5, 10).unwrap(), "0000A");
        assert_eq!(code(5, 36).unwrap(), "0000a");
        assert_eq!(code(5, 61).unwrap(), "0000z");
        assert_eq!(code(5, 62).unwrap(), "00010");
        assert_eq!(code(5, 916_132_831).unwrap(), "zzzzz");
        assert_eq!(code(5, 916_132_832), None);
        assert_eq!(code(8, 218_340_105_584_895).unwrap(), "zzzzzzzz");
        assert_eq!(code(8, 218_340_105_584_896), None);
    }

    #[test]
    fn code_capacities_match_the_design() {
        let capacities = Length::ALL.map(Length::capacity);
        assert_eq!(capacities[0], 916_132_832);
        assert_eq!(capacities[1], 56_800_235_584);
        assert_eq!(capacities[2], 3_521_614_606_208);
        assert_eq!(Length::new(4), Err(CodeError::Length));
        assert_eq!(Length::new(9), Err(CodeError::Length));
        assert_eq!(Length::ALL.map(Length::position), [0, 1, 2, 3]);
        assert_eq!(Length::ALL.map(u8::from), [5, 6, 7, 8]);
        assert_eq!(Length::MAX.to_string(), "8");
    }

    proptest! {
        #[test]
        fn number_round_trips_through_its_code_and_length(
            length in length(), number in any::<u64>()
        ) {
            let number = number % length.capacity();
            let code = Code::generated(length, number).unwrap();
            prop_assert_eq!(code.as_str().len(), usize::from(length.digits()));
            prop_assert_eq!(code.number(), Some((length, number)));
            prop_assert_eq!(Code::new(code.as_str()), Ok(code));
        }

        #[test]
        fn number_round_trips_through_its_lower_case_code(length in length(), number in any::<u64>()) {
            let code = Code::generated(length, number % length.capacity()).unwrap();
            let lower = code.in_lower_case().unwrap();
            prop_assert!(!lower.as_str().bytes().any(|byte| byte.is_ascii_uppercase()));
            prop_assert_eq!(Code::new(lower.as_str()), Ok(lower.clone()));
            prop_assert_eq!(lower.from_lower_case(), Some(code));
        }

        #[test]
        fn codes_of_one_length_sort_as_their_numbers(
            length in length(), a in any::<u64>(), b in any::<u64>()
        ) {
            let (a, b) = (a % length.capacity(), b % length.capacity());
            let code = |number| Code::generated(length, number).unwrap();
            prop_assert_eq!(code(a).cmp(&code(b)), a.cmp(&b));
        }

        #[test]
        fn generated_looking_code_encodes_its_number(text in "[0-9A-Za-z_-]{3,32}") {
            let code = Code::new(&text).unwrap();
            match code.number() {
                Some((length, number)) => {
                    prop_assert_eq!(Code::generated(length, number), Some(code));
                }
                None => {
                    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric());
                    prop_assert!(!plain || !(5..=8).contains(&text.len()));
                }
            }
        }

        #[test]
        fn link_id_round_trips_through_text(domain in "[a-z0-9-]{1,16}", code in "[0-9A-Za-z_-]{3,32}") {
            let text = alloc::format!("{domain}/{code}");
            let id: LinkId = text.parse().unwrap();
            prop_assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn code_that_would_break_a_key_or_path_is_rejected() {
        for bad in [
            "", "ab", "a}b", "a b", "ü12", "a.b", "..x", "a%b", "a//b", "/ab", "ab/", "///",
        ] {
            assert!(Code::new(bad).is_err(), "{bad}");
        }
        assert!(Code::new("x".repeat(32)).is_ok());
        assert_eq!(Code::new("abc").unwrap().to_string(), "abc");
        assert_eq!(Code::new("ab"), Err(CodeError::TooShort));
        assert!(Code::new("x".repeat(33)).is_err());
        for bad in [
            "s",
            "s/",
            "/abc",
            "S/abc",
            "s/a//bc",
            "seventeen-letters/abc",
        ] {
            assert!(bad.parse::<LinkId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn multi_segment_code_is_one_escaped_name() {
        let id: LinkId = "s/spring/24/x".parse().unwrap();
        assert_eq!((id.domain.as_str(), id.code.as_str()), ("s", "spring/24/x"));
        assert_eq!(id.to_path(), "s/spring%2F24%2Fx");
        assert_eq!(Code::new("a//b"), Err(CodeError::EmptySegment));
    }

    #[test]
    fn numbers_in_lower_case_have_more_digits() {
        let lower = |code: &str| {
            Code::new(code)
                .unwrap()
                .in_lower_case()
                .unwrap()
                .to_string()
        };
        assert_eq!(lower("00000"), "000000");
        assert_eq!(lower("0000z"), "00001p");
        assert_eq!(lower("zzzzz"), "f5fwm7");
        assert_eq!(lower("zzzzzzz").len(), 9);
        assert_eq!(lower("zzzzzzzz").len(), 10);
        for other in ["spring", "SPRING", "00000", "zzzzzz", "0000-0", "-00000"] {
            let code = Code::new(other).unwrap();
            assert_eq!(code.from_lower_case(), None, "{other}");
        }
        assert_eq!(Code::new("a-b").unwrap().in_lower_case(), None);
    }

    #[test]
    fn code_error_names_the_character_and_its_position() {
        let error = |code: &[u8]| Code::new(code).unwrap_err().to_string();
        let allowed = "use 0-9, A-Z, a-z, - and _";
        for (code, character, position) in [
            ("a}b", "'}'", 2),
            ("größe", "'ö'", 3),
            ("größe}", "'ö'", 3),
            ("a b", "' '", 2),
            ("促销", "'促'", 1),
            ("sale\u{202e}x", "'\\u{202e}'", 5),
        ] {
            let expected =
                format!("has the invalid character {character} at position {position}: {allowed}");
            assert_eq!(error(code.as_bytes()), expected);
        }
        assert!(error(b"ab\xff").starts_with("has the invalid character '\u{fffd}' at position 3"));
        assert_eq!(error(b""), "is shorter than 3 bytes");
        assert_eq!(error(&[b'x'; 33]), "is longer than 32 bytes");
    }

    #[test]
    fn deserialized_names_are_validated() {
        let id: LinkId = serde_json::from_str(r#""s/aZ3k9Qx""#).unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), r#""s/aZ3k9Qx""#);
        assert!(serde_json::from_str::<Code>(r#""a}c""#).is_err());
        assert!(serde_json::from_str::<Length>("9").is_err());
        assert_eq!(serde_json::from_str::<Length>("5").unwrap(), Length::MIN);
    }
}
