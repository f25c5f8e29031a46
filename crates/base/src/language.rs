//! The language of messages to users.

/// A supported language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// The default.
    #[default]
    English,
    /// Chinese in simplified characters.
    Chinese,
    /// German.
    German,
}

/// The header with the client's preferred languages.
pub const ACCEPT_LANGUAGE: &str = "accept-language";

/// The number of ranges of a header that are read: browsers send a handful.
pub(crate) const RANGES_MAX: usize = 16;

/// The weight of a range without `q`, in thousandths.
pub(crate) const WEIGHT_MAX: u16 = 1_000;

impl Language {
    /// Every language.
    pub const ALL: [Self; 3] = [Self::English, Self::Chinese, Self::German];

    /// The language tag, as in `Content-Language`.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh",
            Self::German => "de",
        }
    }

    /// The supported language that a client prefers, by its `Accept-Language` (RFC 9110, section 12.5.4). Among equal
    /// weights, the first range wins. Invalid ranges are ignored.
    pub fn accepted(header: &[u8]) -> Self {
        let ranges = header.split(|&byte| byte == b',').take(RANGES_MAX);
        let mut best = (0, Self::default());
        for (weight, language) in ranges.filter_map(read_range) {
            if weight > best.0 {
                best = (weight, language);
            }
        }
        best.1
    }
}

/// The weight and language of a range; `None` if the language is not supported.
fn read_range(range: &[u8]) -> Option<(u16, Language)> {
    let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let primary = parts.next()?.split(|&byte| byte == b'-').next()?;
    let named = |language: &Language| primary.eq_ignore_ascii_case(language.tag().as_bytes());
    let language = match primary {
        b"*" => Language::default(),
        _ => Language::ALL.into_iter().find(named)?,
    };
    let weight = match parts.next() {
        None => WEIGHT_MAX,
        Some(weight) => read_weight(weight)?,
    };
    Some((weight, language))
}

/// `q=0.875`, in thousandths.
pub(crate) fn read_weight(text: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', whole @ (b'0' | b'1'), fraction @ ..] = text else {
        return None;
    };
    let digits = match fraction {
        [] => fraction,
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    let mut weight = u16::from(whole - b'0') * WEIGHT_MAX;
    let mut unit = WEIGHT_MAX;
    for digit in digits {
        unit /= 10;
        weight += u16::from(digit.is_ascii_digit().then(|| digit - b'0')?) * unit;
    }
    (weight <= WEIGHT_MAX).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(header: &str) -> &'static str {
        Language::accepted(header.as_bytes()).tag()
    }

    #[test]
    fn supported_language_with_highest_quality_is_chosen() {
        assert_eq!(tag("de"), "de");
        assert_eq!(tag("de-AT,de;q=0.9,en;q=0.8"), "de");
        assert_eq!(tag("fr-CH, fr;q=0.9, de;q=0.7, en;q=0.8, *;q=0.5"), "en");
        assert_eq!(tag("zh-CN,zh;q=0.9"), "zh");
        assert_eq!(tag("ZH-Hant-TW"), "zh");
        assert_eq!(tag("en;q=0.1 , zh;Q=0.123"), "zh");
        assert_eq!(tag("zh,de"), "zh", "of two that count the same, the first");
        assert_eq!(tag("de;q=0.5,*"), "en");
    }

    #[test]
    fn unsupported_languages_fall_back_to_english() {
        for header in ["", ",", "fr", "deutsch", "de;q=0", "de;q=0.000", "*"] {
            assert_eq!(tag(header), "en", "{header}");
        }
    }

    #[test]
    fn malformed_language_ranges_are_ignored() {
        for bad in [
            "de;q=",
            "de;q=2",
            "de;q=1.1",
            "de;q=0.1234",
            "de;q=0.x",
            "de;q=,5",
            "de;level=1",
            "\u{fc}",
            "-de",
            ";q=1",
        ] {
            assert_eq!(tag(bad), "en", "{bad}");
            assert_eq!(tag(&std::format!("{bad},zh;q=0.1")), "zh", "{bad}");
        }
        let many = "xx,".repeat(RANGES_MAX);
        assert_eq!(
            tag(&std::format!("{many}de")),
            "en",
            "no end of ranges is read"
        );
        assert_eq!(Language::accepted(b"\xff\xfe,de"), Language::German);
    }
}
