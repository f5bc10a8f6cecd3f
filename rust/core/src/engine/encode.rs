//! Writing a planned step into a frame's columns.

use crate::frame::{FrameMut, LAST_SAMPLED, MAGIC, VERSION, header, new_float, new_int, row_flag};
use crate::ids::Token;
use crate::sched::{Row, Scheduler, Sequence, Step};

/// Fills every column that the step uses.
pub fn write(scheduler: &Scheduler, step: &Step, frame: &mut FrameMut<'_>) {
    for (to, slot) in frame.freed_slot.iter_mut().zip(&step.freed) {
        *to = slot.0 as i32;
    }
    let mut heap = Heap { used: 0 };
    for (place, &index) in step.begun.iter().enumerate() {
        write_new(scheduler.sequence(index), place, &mut heap, frame);
    }
    for (place, delta) in step.deltas.iter().enumerate() {
        frame.delta_group[place] = delta.group as i32;
        frame.delta_slot[place] = delta.slot.0 as i32;
        frame.delta_index[place] = delta.index as i32;
        frame.delta_block[place] = delta.block.0 as i32;
    }
    for (place, copy) in step.copies.saves.iter().enumerate() {
        frame.save_block[place] = copy.block as i32;
        frame.save_slot[place] = copy.slot as i32;
    }
    for (place, copy) in step.copies.loads.iter().enumerate() {
        frame.load_block[place] = copy.block as i32;
        frame.load_slot[place] = copy.slot as i32;
    }
    let mut at = 0;
    frame.row_query_start[0] = 0;
    for (place, row) in step.rows.iter().enumerate() {
        write_row(scheduler.sequence(row.sequence), row, place, at, frame);
        at += row.len;
        frame.row_query_start[place + 1] = at as i32;
    }
    let words = &mut frame.header;
    words.fill(0);
    words[header::MAGIC] = MAGIC;
    words[header::VERSION] = VERSION;
    words[header::STEP] = step.number as i32;
    words[header::ROWS] = step.rows.len() as i32;
    words[header::TOKENS] = at as i32;
    words[header::NEW] = step.begun.len() as i32;
    words[header::FREED] = step.freed.len() as i32;
    words[header::DELTAS] = step.deltas.len() as i32;
    words[header::HEAP] = heap.used as i32;
    words[header::SAVES] = step.copies.saves.len() as i32;
    words[header::LOADS] = step.copies.loads.len() as i32;
}

fn write_row(sequence: &Sequence, row: &Row, place: usize, at: usize, frame: &mut FrameMut<'_>) {
    let end = row.start + row.len;
    frame.row_slot[place] = sequence.slot.map_or(-1, |slot| slot.0 as i32);
    frame.row_computed[place] = row.start as i32;
    let sample = if row.samples { row_flag::SAMPLE } else { 0 };
    let prompt = if row.prompt_logprobs { row_flag::PROMPT_LOGPROBS } else { 0 };
    frame.row_flags[place] = sample | prompt;
    let next = (end < sequence.prompt_len).then(|| sequence.tokens[end] as i32);
    frame.row_next_token[place] = next.unwrap_or(-1);
    write_tokens(sequence.tokens.get(row.start..).unwrap_or_default(), &mut frame.tokens[at..at + row.len]);
}

/// What the core does not know yet is on the device.
fn write_tokens(known: &[Token], to: &mut [i32]) {
    if let [to] = to {
        // Most rows: no call is made to copy a word.
        *to = known.first().map_or(LAST_SAMPLED, |&token| token as i32);
        return;
    }
    let (from_core, from_device) = to.split_at_mut(known.len().min(to.len()));
    from_core.copy_from_slice(bytemuck::cast_slice(&known[..from_core.len()]));
    from_device.fill(LAST_SAMPLED);
}

fn write_new(sequence: &Sequence, place: usize, heap: &mut Heap, frame: &mut FrameMut<'_>) {
    let sampling = &sequence.sampling;
    frame.new_slot[place] = sequence.slot.map_or(-1, |slot| slot.0 as i32);
    frame.new_seed[place] = sampling.seed as i64;

    let floats = &mut frame.new_float[place * new_float::WIDTH..][..new_float::WIDTH];
    floats[new_float::TEMPERATURE] = sampling.temperature;
    floats[new_float::TOP_P] = sampling.top_p;
    floats[new_float::MIN_P] = sampling.min_p;
    floats[new_float::PRESENCE] = sampling.presence_penalty;
    floats[new_float::FREQUENCY] = sampling.frequency_penalty;
    floats[new_float::REPETITION] = sampling.repetition_penalty;

    let count_or_none = |count: Option<u32>| count.map_or(-1, |count| count as i32);
    let ints = &mut frame.new_int[place * new_int::WIDTH..][..new_int::WIDTH];
    ints.fill(0);
    ints[new_int::PROMPT_LEN] = sequence.prompt_len as i32;
    ints[new_int::TOP_K] = sampling.top_k.min(i32::MAX as u32) as i32;
    ints[new_int::LOGPROBS] = count_or_none(sampling.logprobs);
    ints[new_int::PROMPT_LOGPROBS] = count_or_none(sampling.prompt_logprobs);
    ints[new_int::MIN_TOKENS] = sequence.stop.min_tokens.min(i32::MAX as u32) as i32;
    if sampling.needs_history() {
        ints[new_int::HISTORY_START] = heap.used as i32;
        ints[new_int::HISTORY_LEN] = heap.push(frame.heap, sequence.tokens.iter().map(|&t| t as i32));
    }
    if sequence.stop.min_tokens > 0 {
        let ids = sequence.stop.eos_token_ids.iter().chain(&sequence.stop.stop_token_ids);
        ints[new_int::SUPPRESS_START] = heap.used as i32;
        ints[new_int::SUPPRESS_LEN] = heap.push(frame.heap, ids.map(|&t| t as i32));
    }
    if !sampling.logit_bias.is_empty() {
        let bias = &sampling.logit_bias;
        ints[new_int::BIAS_START] = heap.used as i32;
        ints[new_int::BIAS_LEN] = heap.push(frame.heap, bias.iter().map(|&(token, _)| token as i32));
        heap.push(frame.heap, bias.iter().map(|&(_, value)| value.to_bits() as i32));
    }
}

/// How much of the heap column is in use.
struct Heap {
    used: usize,
}

impl Heap {
    /// Appends words, for which the scheduler's budget has room; returns how many.
    fn push(&mut self, column: &mut [i32], words: impl Iterator<Item = i32>) -> i32 {
        let start = self.used;
        for word in words {
            column[self.used] = word;
            self.used += 1;
        }
        (self.used - start) as i32
    }
}
