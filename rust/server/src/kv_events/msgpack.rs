//! Writing the few kinds of MessagePack values that events are made of.

/// A growing message.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// The bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// nil.
    pub fn nil(&mut self) {
        self.0.push(0xc0);
    }

    /// A number.
    pub fn float(&mut self, value: f64) {
        self.0.push(0xcb);
        self.0.extend(value.to_be_bytes());
    }

    /// A number that is not negative.
    pub fn uint(&mut self, value: u64) {
        match value {
            0..0x80 => self.0.push(value as u8),
            0x80..0x100 => self.0.extend([0xcc, value as u8]),
            0x100..0x1_0000 => self.head(0xcd, &(value as u16).to_be_bytes()),
            0x1_0000..0x1_0000_0000 => self.head(0xce, &(value as u32).to_be_bytes()),
            _ => self.head(0xcf, &value.to_be_bytes()),
        }
    }

    /// A text of less than 2^32 bytes.
    pub fn str(&mut self, text: &str) {
        match text.len() {
            length @ 0..32 => self.0.push(0xa0 | length as u8),
            length => self.head(0xdb, &(length as u32).to_be_bytes()),
        }
        self.0.extend(text.as_bytes());
    }

    /// Less than 2^32 bytes.
    pub fn bin(&mut self, bytes: &[u8]) {
        self.head(0xc6, &(bytes.len() as u32).to_be_bytes());
        self.0.extend(bytes);
    }

    /// The head of an array of `len` values, less than 2^32.
    pub fn array(&mut self, len: usize) {
        match len {
            0..16 => self.0.push(0x90 | len as u8),
            _ => self.head(0xdd, &(len as u32).to_be_bytes()),
        }
    }

    /// The head of a map of `len` pairs of a text and a value, less than 2^32.
    pub fn map(&mut self, len: usize) {
        match len {
            0..16 => self.0.push(0x80 | len as u8),
            _ => self.head(0xdf, &(len as u32).to_be_bytes()),
        }
    }

    fn head(&mut self, kind: u8, rest: &[u8]) {
        self.0.push(kind);
        self.0.extend(rest);
    }
}
