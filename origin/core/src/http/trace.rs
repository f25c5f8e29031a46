//! The trace that a request is part of, as its `traceparent` says (W3C Trace Context).

use axum::http::HeaderMap;

/// The name of the header.
const TRACEPARENT: &str = "traceparent";

/// Where the parts of version 00 end: `00-<32 digits>-<16 digits>-<2 digits>`. Later versions may only add to it.
const TRACE_ID: std::ops::Range<usize> = 3..35;
const LEN: usize = 55;

/// The trace's id, in 32 hexadecimal digits. `None` without the header, or if it is not a sound one: a client may send anything.
pub(super) fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let value = values.next()?.to_str().ok()?;
    let is_only = values.next().is_none();
    let (version, rest) = value.split_at_checked(2)?;
    let is_whole = match version {
        "00" => value.len() == LEN,
        "ff" => false,
        _ => value.len() == LEN || value.get(LEN..).is_some_and(|more| more.starts_with('-')),
    };
    let mut parts = rest.splitn(5, '-').skip(1);
    let (id, parent, flags) = (parts.next()?, parts.next()?, parts.next()?);
    let is_sound = is_hex(version, 2) && is_hex(id, 32) && is_hex(parent, 16) && is_hex(flags, 2);
    let is_nothing = |text: &str| text.bytes().all(|byte| byte == b'0');
    let is_sound = is_sound && !is_nothing(id) && !is_nothing(parent);
    value
        .get(TRACE_ID)
        .filter(|_| is_only && is_whole && is_sound)
}

fn is_hex(text: &str, len: usize) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == len && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn read(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_str(value).unwrap());
        }
        trace_id(&headers).map(str::to_owned)
    }

    #[test]
    fn only_a_sound_header_names_a_trace() {
        let sound = format!("00-{ID}-00f067aa0ba902b7-01");
        assert_eq!(read(&[&sound]).as_deref(), Some(ID));
        let later = format!("cc-{ID}-00f067aa0ba902b7-01-what-comes");
        assert_eq!(read(&[&later]).as_deref(), Some(ID));
        for unsound in [
            String::new(),
            ID.to_owned(),
            "00-".to_owned() + ID,
            format!("ff-{ID}-00f067aa0ba902b7-01"),
            format!("00-{ID}-00f067aa0ba902b7-01-more"),
            format!("cc-{ID}-00f067aa0ba902b7-01more"),
            format!("00-{}-00f067aa0ba902b7-01", ID.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{ID}-0000000000000000-01"),
            format!("00-{ID}-00f067aa0ba902b7-0g"),
        ] {
            assert_eq!(read(&[&unsound]), None, "{unsound}");
        }
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[&sound, &sound]), None);
    }
}
