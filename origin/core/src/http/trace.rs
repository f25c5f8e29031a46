//! Request ids for correlating logs: the trace id from `traceparent` (W3C Trace Context), and the gateway's id from
//! `x-request-id`.

use axum::http::HeaderMap;

const TRACEPARENT: &str = "traceparent";

/// Envoy's request id, sent with or without tracing. Envoy's access log contains it too.
const REQUEST_ID: &str = "x-request-id";

/// Maximum length of a logged id. Envoy's ids have 36 bytes.
const REQUEST_ID_LEN_MAX: usize = 64;

/// Position of the trace id in version 00: `00-<32 digits>-<16 digits>-<2 digits>`. Later versions may only append
/// fields.
const TRACE_ID: std::ops::Range<usize> = 3..35;
const LEN: usize = 55;

/// The trace id, 32 hexadecimal digits. `None` if the header is missing or invalid; clients may send any value.
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

/// The request id. `None` if the header is missing or invalid. Without a gateway, clients may send any value.
pub(super) fn request_id(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(REQUEST_ID).iter();
    let id = values.next()?.to_str().ok()?;
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_id = (1..=REQUEST_ID_LEN_MAX).contains(&id.len()) && id.bytes().all(is_sound);
    (is_id && values.next().is_none()).then_some(id)
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

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn read(values: &[&str]) -> Option<String> {
        trace_id(&headers(TRACEPARENT, values)).map(str::to_owned)
    }

    #[test]
    fn only_a_valid_id_is_accepted_as_request_id() {
        let id = "7b674932-635d-4ceb-b907-12674f8c7267";
        let read = |values: &[&str]| request_id(&headers(REQUEST_ID, values)).map(str::to_owned);
        assert_eq!(read(&[id]).as_deref(), Some(id));
        let long = "a".repeat(REQUEST_ID_LEN_MAX + 1);
        for other in ["", "a b", "a;b", "{\"a\":1}", &long] {
            assert_eq!(read(&[other]), None, "{other}");
        }
        assert_eq!(read(&[id, id]), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn only_a_valid_traceparent_sets_the_trace_id() {
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
