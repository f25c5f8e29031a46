//! The messages of a gRPC stream: a byte of flags, a length of four bytes, and the body.

/// The length of a message's prefix: flags and length.
const PREFIX_LEN: usize = 5;

/// Digits of a chunk's size. Leading zeros, which HTTP allows, give it a fixed length.
const SIZE_DIGITS: usize = 8;

/// Bytes of a chunk before a message's body.
const ROOM: usize = SIZE_DIGITS + 2 + PREFIX_LEN;

/// Initial capacity of a new [`Chunk`]'s body, in bytes: most replies are shorter.
const BODY_LEN_USUAL: usize = 256;

/// Maximum length of a [`Chunk`]'s body, in bytes.
pub(crate) const BODY_LEN_MAX: usize = u32::MAX as usize - PREFIX_LEN;

/// A refused message, whose remaining bytes are skipped.
#[derive(Debug)]
pub(crate) struct RejectedMessage {
    /// The reason.
    pub reason: &'static str,
    /// The number of its bytes that have not arrived.
    missing: usize,
}

impl RejectedMessage {
    /// A message that has arrived completely.
    pub fn whole(reason: &'static str) -> Self {
        Self { reason, missing: 0 }
    }

    /// Takes the message's bytes off the front of `data`.
    pub fn skip(&mut self, data: &mut &[u8]) {
        let skipped = self.missing.min(data.len());
        self.missing -= skipped;
        *data = data.get(skipped..).unwrap_or_default();
    }
}

/// Reads one message, however it is split.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The bytes of the prefix so far, as one number.
    prefix: u64,
    /// The number of these bytes.
    prefix_len: usize,
    body: Vec<u8>,
}

impl Reader {
    /// Takes the message's bytes off the front of `data`, and returns its body once that is complete.
    ///
    /// # Errors
    /// If flags are set, or the body is longer than `length_max`. Nothing of it is kept.
    pub fn take(
        &mut self,
        data: &mut &[u8],
        length_max: usize,
    ) -> Result<Option<Vec<u8>>, RejectedMessage> {
        while self.prefix_len < PREFIX_LEN {
            let Some((&byte, rest)) = data.split_first() else {
                return Ok(None);
            };
            self.prefix = self.prefix << 8 | u64::from(byte);
            self.prefix_len += 1;
            *data = rest;
        }
        let length = self.checked_length(length_max)?;
        let missing = length - self.body.len();
        let (body, rest) = data.split_at(missing.min(data.len()));
        self.body.extend_from_slice(body);
        *data = rest;
        let is_whole = self.body.len() == length;
        Ok(is_whole.then(|| std::mem::take(&mut self.body)))
    }

    /// The length in a complete prefix.
    fn checked_length(&self, length_max: usize) -> Result<usize, RejectedMessage> {
        // The lower four bytes, so it fits.
        let missing = (self.prefix & u64::from(u32::MAX)) as usize;
        let refused = |reason| Err(RejectedMessage { reason, missing });
        if self.prefix >> 32 != 0 {
            return refused("the message has flags");
        }
        if missing > length_max {
            return refused("the body is longer than request_bytes_max");
        }
        Ok(missing)
    }
}

/// A chunk with one message, written while its body arrives.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    /// The start of the body.
    start: usize,
}

impl Chunk {
    /// A chunk after `head`, with a message whose body is still empty.
    pub fn after(head: &[u8]) -> Self {
        let start = head.len() + ROOM;
        let mut bytes = Vec::with_capacity(start + BODY_LEN_USUAL);
        bytes.extend_from_slice(head);
        bytes.resize(start, 0);
        Self { bytes, start }
    }

    /// The current length of the body.
    pub fn body_len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Appends `bytes` to the body, up to [`BODY_LEN_MAX`] in total.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes to send: the head and the whole chunk.
    pub fn finish(mut self) -> Vec<u8> {
        // At most `BODY_LEN_MAX`, so it fits.
        let length = self.body_len() as u32;
        let size = format!("{:0SIZE_DIGITS$x}\r\n\0", self.body_len() + PREFIX_LEN);
        let front = size.bytes().chain(length.to_be_bytes());
        let room = self.bytes.iter_mut().skip(self.start - ROOM);
        for (slot, byte) in room.zip(front) {
            *slot = byte;
        }
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] = b"\0\0\0\0\x03abc";

    #[test]
    fn message_is_read_at_any_split_and_no_further() {
        for cut in 0..MESSAGE.len() {
            let (mut head, tail) = MESSAGE.split_at(cut);
            let mut reader = Reader::default();
            assert!(matches!(reader.take(&mut head, 3), Ok(None)));
            assert_eq!(head, b"");
            let tail = [tail, b"next"].concat();
            let mut tail = tail.as_slice();
            let body = reader.take(&mut tail, 3).unwrap();
            assert_eq!(body.as_deref(), Some(b"abc".as_slice()), "cut at {cut}");
            assert_eq!(tail, b"next");
        }
    }

    #[test]
    fn empty_message_is_complete_with_its_prefix() {
        let mut data = b"\0\0\0\0\0".as_slice();
        let body = Reader::default().take(&mut data, 3).unwrap();
        assert_eq!(body, Some(vec![]));
    }

    fn check_refused(message: &[u8], expected: &str) {
        let message = [message, b"next"].concat();
        let mut data = message.as_slice();
        let mut refused = Reader::default().take(&mut data, 2).unwrap_err();
        assert_eq!(refused.reason, expected);
        let (mut head, mut tail) = data.split_at(1);
        refused.skip(&mut head);
        refused.skip(&mut tail);
        assert_eq!((head, tail), (b"".as_slice(), b"next".as_slice()));
    }

    #[test]
    fn only_the_refused_message_is_skipped() {
        check_refused(MESSAGE, "the body is longer than request_bytes_max");
        check_refused(b"\x01\0\0\0\x02ab", "the message has flags");
    }

    #[test]
    fn chunk_starts_with_its_length() {
        let mut chunk = Chunk::after(b"head ");
        chunk.push(&[b'a'; 200]);
        chunk.push(&[b'b'; 100]);
        assert_eq!(chunk.body_len(), 300);
        let front = b"head 00000131\r\n\0\0\0\x01\x2c".as_slice();
        let expected = [front, &[b'a'; 200], &[b'b'; 100], b"\r\n"].concat();
        assert_eq!(chunk.finish(), expected);
    }
}
