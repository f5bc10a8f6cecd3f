//! Server-sent events: bytes in any pieces to the payloads of `data:` fields.

/// Longest event that is buffered.
const LONGEST_EVENT_BYTES: usize = 16 << 20;

/// Splits a stream into events. Lines end with LF or CR LF; several `data:`
/// lines of one event are joined by LF, as the HTML standard says.
#[derive(Debug, Default)]
pub struct Events {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that are consumed.
    start: usize,
    data: Vec<u8>,
}

impl Events {
    /// Takes the next bytes. False if an event grows beyond the limit.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
        self.buffer.len() + self.data.len() <= LONGEST_EVENT_BYTES
    }

    /// Takes the payload of the next complete event, if there is one.
    pub fn next_event(&mut self) -> Option<Vec<u8>> {
        while let Some(length) = self.buffer[self.start..].iter().position(|&byte| byte == b'\n') {
            let line = &self.buffer[self.start..self.start + length];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            self.start += length + 1;
            if line.is_empty() {
                if !self.data.is_empty() {
                    return Some(std::mem::take(&mut self.data));
                }
            } else if let Some(value) = line.strip_prefix(b"data:") {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut parser = Events::default();
        let mut found = Vec::new();
        for piece in pieces {
            assert!(parser.push(piece));
            while let Some(event) = parser.next_event() {
                found.push(String::from_utf8(event).unwrap());
            }
        }
        found
    }

    #[test]
    fn the_cut_of_the_pieces_does_not_matter() {
        let stream = b": comment\r\ndata: {\"a\": 1}\r\n\r\nevent: x\ndata:two\ndata: lines\n\ndata: [DONE]\n\ndata: cut";
        let whole = events(&[stream]);
        assert_eq!(whole, ["{\"a\": 1}", "two\nlines", "[DONE]"]);
        for cut in 0..stream.len() {
            assert_eq!(events(&[&stream[..cut], &stream[cut..]]), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(events(&bytes), whole);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = Events::default();
        assert!(parser.push(b"data: "));
        assert!(!parser.push(&vec![b'x'; LONGEST_EVENT_BYTES]));
    }
}
