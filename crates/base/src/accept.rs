//! Content negotiation: the media type that a client prefers, by its `Accept` header.

use crate::language::{RANGES_MAX, WEIGHT_MAX, read_weight};

/// The header that lists the media types a client accepts.
pub const ACCEPT: &str = "accept";

/// Whether this `Accept` header (RFC 9110, section 12.5.1) names the media type `requested` and gives none of `others` a higher
/// weight. `*/*` names no type: programs that accept every type send it.
///
/// ```
/// use weir_base::accept::prefers;
///
/// let browser = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
/// assert!(prefers(browser, "text/html", &["application/json"]));
/// assert!(!prefers(b"*/*", "text/html", &["application/json"]));
/// ```
pub fn prefers(header: &[u8], requested: &str, others: &[&str]) -> bool {
    let weight = weight_of(header, requested);
    weight > 0
        && others
            .iter()
            .all(|other| weight_of(header, other) <= weight)
}

/// The weight of a media type in the header, in thousandths; 0 if the header does not name it. Invalid ranges are ignored.
fn weight_of(header: &[u8], media_type: &str) -> u16 {
    let ranges = header.split(|&byte| byte == b',').take(RANGES_MAX);
    let weights = ranges.filter_map(|range| read_range(range, media_type));
    weights.max().unwrap_or(0)
}

/// The weight of a range, if it names this media type. Parameters of the media type are ignored.
fn read_range(range: &[u8], media_type: &str) -> Option<u16> {
    let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    if !parts.next()?.eq_ignore_ascii_case(media_type.as_bytes()) {
        return None;
    }
    match parts.find(|part| matches!(part, [b'q' | b'Q', b'=', ..])) {
        None => Some(WEIGHT_MAX),
        Some(weight) => read_weight(weight),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTML: &str = "text/html";
    const JSON: &str = "application/json";

    #[test]
    fn explicit_type_with_highest_quality_is_preferred() {
        for header in [
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "TEXT/HTML",
            "application/json;q=0.5, text/html;level=1;q=0.6",
            "application/json, text/html",
            " text/html ; Q=0.1 , application/json;q=x",
        ] {
            assert!(prefers(header.as_bytes(), HTML, &[JSON]), "{header}");
        }
    }

    #[test]
    fn implicit_or_lower_quality_type_is_not_preferred() {
        for header in [
            "",
            "*/*",
            "text/*",
            "application/json",
            "text/html;q=0",
            "text/html;q=2",
            "text/html;q=0.9,application/json",
            "text/htmlx",
            "\u{fc}",
        ] {
            assert!(!prefers(header.as_bytes(), HTML, &[JSON]), "{header}");
        }
        let many = "x/y,".repeat(RANGES_MAX);
        let late = std::format!("{many}text/html");
        assert!(!prefers(late.as_bytes(), HTML, &[JSON]));
    }
}
