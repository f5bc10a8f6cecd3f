//! When a sequence has said enough.

use super::sequence::Sequence;
use crate::event::FinishReason;

/// Why the sequence ends with its last token, if it does. `context_len` is the
/// longest sequence that the engine can hold.
pub fn stops(sequence: &Sequence, context_len: usize) -> Option<FinishReason> {
    let rules = &sequence.stop;
    let output_len = sequence.tokens.len() - sequence.prompt_len;
    let last = *sequence.tokens.last()?;
    if output_len > rules.min_tokens as usize {
        if rules.eos_token_ids.contains(&last) {
            return Some(FinishReason::Eos);
        }
        if rules.stop_token_ids.contains(&last) {
            return Some(FinishReason::StopToken(last));
        }
    }
    (sequence.tokens.len() >= sequence.max_len(context_len)).then_some(FinishReason::Length)
}
