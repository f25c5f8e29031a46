//! Combines pulled events into a request body.

use axum::body::Bytes;
use serde_json::value::RawValue;
use weir_event::limits::{BODY_LEN_MAX, EVENT_LEN_MAX, EVENTS_MAX};

/// Longer texts are never valid events. They are cut, so that one cannot fill a body.
const TEXT_LEN_MAX: usize = 8 * EVENT_LEN_MAX;

/// A JSON list of events with at most the length of a request body.
#[derive(Debug, Default)]
pub struct Body {
    json: String,
    count: usize,
}

impl Body {
    /// Adds an event. Returns false, without a change, if it does not fit. Text that is not JSON is added as a string:
    /// validation refuses it and stores it as a dead letter.
    pub fn push(&mut self, event: &[u8]) -> bool {
        let event = as_json(event);
        // Brackets and commas.
        let len = self.json.len() + event.len() + 2;
        if self.count == EVENTS_MAX || len > BODY_LEN_MAX {
            return false;
        }
        self.json.push(if self.count == 0 { '[' } else { ',' });
        self.json.push_str(&event);
        self.count += 1;
        true
    }

    /// Whether another event of ordinary length may not fit.
    pub fn is_full(&self) -> bool {
        self.count == EVENTS_MAX || self.json.len() + TEXT_LEN_MAX > BODY_LEN_MAX
    }

    /// Whether it contains no event.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the list; `None` if it is empty.
    pub fn finish(mut self) -> Option<Bytes> {
        if self.count == 0 {
            return None;
        }
        self.json.push(']');
        Some(self.json.into())
    }
}

fn as_json(event: &[u8]) -> String {
    let is_short = event.len() <= TEXT_LEN_MAX;
    let read = serde_json::from_slice::<&RawValue>(event);
    match read {
        Ok(json) if is_short => json.get().to_owned(),
        // The start is enough to identify it. Escaping makes at most six bytes of one.
        _ => {
            let begin = event.get(..EVENT_LEN_MAX).unwrap_or(event);
            serde_json::Value::from(String::from_utf8_lossy(begin)).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_event::batch::Batch;

    fn body(events: &[&[u8]]) -> Option<Bytes> {
        let mut body = Body::default();
        assert!(events.iter().all(|event| body.push(event)));
        body.finish()
    }

    #[test]
    fn invalid_json_becomes_a_string_and_the_batch_stays_valid() {
        let created = body(&[br#"{"type": "a"}"#, b"{\"type\": ", b"\xff\"", b"", b"null"]);
        let created = created.unwrap();
        let read = Batch::read(&created).unwrap();
        let texts: Vec<&str> = read.events.iter().map(|event| event.json).collect();
        assert_eq!(
            texts,
            [
                r#"{"type": "a"}"#,
                r#""{\"type\": ""#,
                "\"\u{fffd}\\\"\"",
                r#""""#,
                "null"
            ]
        );
        assert!(read.events[0].read().is_ok());
        assert!(read.events[1..].iter().all(|event| event.read().is_err()));
        assert_eq!(body(&[]), None);
    }

    #[test]
    fn pull_body_never_exceeds_its_limits() {
        let mut full = Body::default();
        let long = format!(
            r#"{{"type":"a","attributes":{{"x":"{}"}}}}"#,
            "x".repeat(10_000)
        );
        let mut used = 0;
        while full.push(long.as_bytes()) {
            used += 1;
        }
        assert!(full.is_full() && used > 90, "{used}");
        let created = full.finish().unwrap();
        assert_eq!(Batch::read(&created).unwrap().events.len(), used);

        let mut many = Body::default();
        for _ in 0..EVENTS_MAX {
            assert!(!many.is_full() && many.push(b"{}"));
        }
        assert!(many.is_full() && !many.push(b"{}"));
        // Every byte needs escaping.
        for far_too_long in [vec![b' '; 4 << 20], vec![1; 4 << 20], vec![0xff; 4 << 20]] {
            let created = body(&[&far_too_long]).unwrap();
            assert!(created.len() < BODY_LEN_MAX / 2, "{}", created.len());
            assert_eq!(Batch::read(&created).unwrap().events.len(), 1);
        }
    }
}
