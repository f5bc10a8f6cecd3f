//! When a sequence has said enough.

use super::sequence::Sequence;
use crate::event::FinishReason;

/// Why the sequence ends with its last token, if it does. Stop tokens before
/// `min_tokens` need no look: the device does not sample them. `context_len` is
/// the longest sequence that the engine can hold.
pub fn stops(sequence: &Sequence, context_len: usize) -> Option<FinishReason> {
    let last = *sequence.tokens.last()?;
    if sequence.stop.eos_token_ids.contains(&last) {
        return Some(FinishReason::Eos);
    }
    if sequence.stop.stop_token_ids.contains(&last) {
        return Some(FinishReason::StopToken(last));
    }
    (sequence.tokens.len() >= sequence.max_len(context_len)).then_some(FinishReason::Length)
}
