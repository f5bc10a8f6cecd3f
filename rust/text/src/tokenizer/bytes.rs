//! GPT-2's spelling of bytes as printable characters.

/// The byte that `character` spells in a byte-level vocabulary. Printable Latin-1
/// characters spell themselves; the other bytes follow in order from U+0100.
pub(crate) fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121) as u8 + 0x7f),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::byte_of;

    #[test]
    fn every_byte_has_one_spelling() {
        let mut spelled: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        spelled.sort_unstable();
        assert_eq!(spelled, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
    }
}
