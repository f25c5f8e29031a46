//! Decodes compressed bodies.

use std::io::{Error, Read};

use axum::body::Bytes;
use flate2::bufread::MultiGzDecoder;
use weir_event::batch::CONTENT_ENCODINGS;
use weir_event::limits::BODY_LEN_MAX;

use super::too_large;
use weir_origin_core::http::Problem;

/// Maximum window of a zstd frame, as a power of two: 8 MiB, the limit of RFC 9659.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    const ALL: [Self; CONTENT_ENCODINGS.len()] = [Self::Identity, Self::Gzip, Self::Zstd];

    /// Looks up an encoding by its name in `content-encoding`.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        let mut names = CONTENT_ENCODINGS.iter().zip(Self::ALL);
        let found = names.find(|(existing, _)| name.eq_ignore_ascii_case(existing.as_bytes()));
        found.map(|(_, encoding)| encoding)
    }

    fn read(self, body: &[u8]) -> Result<Vec<u8>, Error> {
        let from: Box<dyn Read + '_> = match self {
            Self::Identity => Box::new(body),
            Self::Gzip => Box::new(MultiGzDecoder::new(body)),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
        };
        // One byte above the limit shows that the body is too long.
        let mut decoded = Vec::new();
        from.take(BODY_LEN_MAX as u64 + 1)
            .read_to_end(&mut decoded)?;
        Ok(decoded)
    }
}

/// Decodes a body. Refuses one with more than [`BODY_LEN_MAX`] decoded bytes.
pub(super) async fn decode(encoding: Encoding, body: Bytes) -> Result<Bytes, Problem> {
    if encoding == Encoding::Identity {
        return Ok(body);
    }
    let decoded = tokio::task::spawn_blocking(move || encoding.read(&body)).await;
    let broken = || {
        let detail = format!("the body is not valid {encoding:?}, which content-encoding requires");
        Problem::invalid_body(detail.to_lowercase())
    };
    match decoded {
        Ok(Ok(decoded)) if decoded.len() > BODY_LEN_MAX => Err(too_large(format!(
            "the decoded body is longer than {BODY_LEN_MAX} bytes"
        ))),
        Ok(Ok(decoded)) => Ok(decoded.into()),
        _ => Err(broken()),
    }
}
