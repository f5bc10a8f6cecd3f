//! Short quotations of what clients send, for messages and the log.

use std::borrow::Cow;

/// Longest quotation, characters.
const MAX_CHARS: usize = 200;

/// `text`, cut with an ellipsis where it is long.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let (fits, long) = ("é".repeat(200), "é".repeat(201));
        assert_eq!(excerpt(&fits), fits);
        assert_eq!(excerpt(&long), format!("{fits}..."));
    }
}
