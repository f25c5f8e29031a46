//! Punycode (RFC 3492): the ASCII form of non-ASCII letters in host names.

use alloc::string::String;
use alloc::vec::Vec;

const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const INITIAL_BIAS: u32 = 72;
const INITIAL_N: u32 = 128;

/// Encodes `text` in ASCII; `None` on overflow, which takes a very long text.
pub fn encode(text: &str) -> Option<String> {
    let mut out: String = text.chars().filter(char::is_ascii).collect();
    let basic = u32::try_from(out.len()).ok()?;
    let count = u32::try_from(text.chars().count()).ok()?;
    if basic > 0 {
        out.push('-');
    }
    let (mut n, mut delta, mut bias, mut handled) = (INITIAL_N, 0_u32, INITIAL_BIAS, basic);
    while handled < count {
        let next = text.chars().map(u32::from).filter(|c| *c >= n).min()?;
        let skipped = (next - n).checked_mul(handled + 1)?;
        delta = delta.checked_add(skipped)?;
        n = next;
        for c in text.chars().map(u32::from) {
            if c < n {
                delta = delta.checked_add(1)?;
            } else if c == n {
                push_number(&mut out, delta, bias);
                bias = adapted(delta, handled + 1, handled == basic);
                (delta, handled) = (0, handled + 1);
            }
        }
        (delta, n) = (delta.checked_add(1)?, n + 1);
    }
    Some(out)
}

/// Decodes `ascii`, the inverse of [`encode`]; `None` if it is invalid.
pub fn decode(ascii: &str) -> Option<String> {
    let (basic, digits) = ascii.rsplit_once('-').unwrap_or(("", ascii));
    let mut out: Vec<char> = basic.chars().collect();
    let mut digits = digits.bytes().peekable();
    let (mut n, mut at, mut bias) = (INITIAL_N, 0_u32, INITIAL_BIAS);
    while digits.peek().is_some() {
        let (before, mut weight, mut k) = (at, 1_u32, BASE);
        loop {
            let digit = value(digits.next()?)?;
            at = at.checked_add(digit.checked_mul(weight)?)?;
            let threshold = threshold(k, bias);
            if digit < threshold {
                break;
            }
            weight = weight.checked_mul(BASE - threshold)?;
            k = k.checked_add(BASE)?;
        }
        let count = u32::try_from(out.len()).ok()?.checked_add(1)?;
        bias = adapted(at - before, count, before == 0);
        n = n.checked_add(at / count)?;
        at %= count;
        out.insert(usize::try_from(at).ok()?, char::from_u32(n)?);
        at += 1;
    }
    Some(out.into_iter().collect())
}

fn push_number(out: &mut String, number: u32, bias: u32) {
    let (mut rest, mut k) = (number, BASE);
    loop {
        let threshold = threshold(k, bias);
        if rest < threshold {
            return out.push(digit(rest));
        }
        let span = BASE - threshold;
        out.push(digit(threshold + (rest - threshold) % span));
        (rest, k) = ((rest - threshold) / span, k.saturating_add(BASE));
    }
}

fn threshold(k: u32, bias: u32) -> u32 {
    k.saturating_sub(bias).clamp(T_MIN, T_MAX)
}

fn adapted(delta: u32, count: u32, is_first: bool) -> u32 {
    let damped = delta / if is_first { DAMP } else { 2 };
    let (mut delta, mut k) = (damped + damped / count, 0);
    while delta > (BASE - T_MIN) * T_MAX / 2 {
        (delta, k) = (delta / (BASE - T_MIN), k + BASE);
    }
    k + (BASE - T_MIN + 1) * delta / (delta + SKEW)
}

/// `a` to `z`, then `0` to `9`.
fn digit(value: u32) -> char {
    let letter = u8::try_from(value).unwrap_or_default();
    char::from(match letter {
        ..26 => b'a'.saturating_add(letter),
        _ => b'0'.saturating_add(letter.saturating_sub(26)),
    })
}

fn value(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'a'..=b'z' => digit - b'a',
        b'A'..=b'Z' => digit - b'A',
        b'0'..=b'9' => digit - b'0' + 26,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_encoded_as_in_host_names() {
        for (text, ascii) in [
            ("bücher", "bcher-kva"),
            ("größe", "gre-6ka8i"),
            ("促销", "0tqx10o"),
            ("münchen", "mnchen-3ya"),
            ("пример", "e1afmkfd"),
            // RFC 3492, section 7.1 (A), (C), (J) and (L).
            ("ليهمابتكلموشعربي؟", "egbpdaj6bu4bxfgehfvwxn"),
            ("他們爲什麽不說中文", "ihqwctvzc91f659drss3x8bo0yb"),
            (
                "PorquénopuedensimplementehablarenEspañol",
                "PorqunopuedensimplementehablarenEspaol-fmd56a",
            ),
            ("3年B組金八先生", "3B-ww4c5e180e575a65lsy2b"),
        ] {
            assert_eq!(encode(text).as_deref(), Some(ascii));
            assert_eq!(decode(ascii).as_deref(), Some(text));
        }
    }

    #[test]
    fn invalid_punycode_is_not_decoded() {
        for bad in ["gre-6ka8", "é", "99999999", "a-!", "ab c"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn punycode_text_round_trips(text in "[a-z-]{0,8}[\\PC]{1,12}") {
            let ascii = encode(&text).unwrap();
            prop_assert!(ascii.is_ascii());
            if !text.is_ascii() {
                prop_assert_eq!(decode(&ascii), Some(text));
            }
        }

        #[test]
        fn arbitrary_text_never_panics_the_punycode_decoder(text in "\\PC{0,64}") {
            let _ = decode(&text);
        }
    }
}
