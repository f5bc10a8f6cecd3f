//! A device without a model, for tests and simulations.
//!
//! It keeps a "KV cache" of one 64-bit word a token, a hash over the sequence up
//! to that token, and draws the next token from all words of the sequence, read
//! through the block table. A wrong table, a block that is reused too early or a
//! token that is computed twice therefore gives other tokens than
//! [`FakeWorker::expected`]; breaches of the frame protocol are errors.
//! Layer groups beside the spine hold the same words and are compared with it.

mod groups;

use std::ops::Range;
use std::sync::Arc;

use groups::FakeGroup;

use crate::error::{Error, Result};
use crate::frame::{
    Frame, FrameLayout, LAST_SAMPLED, MAGIC, StepResultMut, VERSION, header, new_float, new_int, row_flag,
    row_status,
};
use crate::ids::Token;
use crate::limits::EngineLimits;
use crate::request::EngineRequest;

/// What the device keeps of a token.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    word: u64,
    /// The step that wrote it, and the slot.
    step: i32,
    slot: i32,
}

#[derive(Clone, Debug, Default)]
struct FakeSlot {
    /// Of each layer group.
    tables: Vec<Vec<i32>>,
    prompt_len: usize,
    logprobs: i32,
    prompt_logprobs: i32,
    min_tokens: usize,
    suppress: Vec<i32>,
    /// Of everything about sampling that must arrive intact.
    sampling: u64,
    /// Hash over the tokens so far where a penalty needs them.
    history: Option<u64>,
    last: i32,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct FakeWorker {
    layout: Arc<FrameLayout>,
    block_size: usize,
    vocab_size: u64,
    cells: Vec<Cell>,
    /// Layer groups beside the spine.
    groups: Vec<FakeGroup>,
    /// Words of the host tier.
    host: Vec<u64>,
    slots: Vec<Option<FakeSlot>>,
    poison: Option<Token>,
    shallow: bool,
}

impl FakeWorker {
    /// A device with an empty KV cache.
    pub fn new(limits: &EngineLimits) -> Self {
        Self {
            layout: Arc::new(FrameLayout::new(limits)),
            block_size: limits.block_size as usize,
            vocab_size: u64::from(limits.vocab_size),
            cells: vec![Cell::default(); limits.num_blocks as usize * limits.block_size as usize],
            groups: limits.groups.iter().map(|group| FakeGroup::new(*group, limits.block_size)).collect(),
            host: vec![0; limits.host_blocks as usize * limits.block_size as usize],
            slots: vec![None; limits.max_num_seqs as usize],
            poison: None,
            shallow: false,
        }
    }

    /// Loses all that it holds but host memory, as a worker started in its place.
    pub fn die(&mut self) {
        self.cells.fill(Cell::default());
        self.slots.fill(None);
    }

    /// A slot of the host tier, which disk transfers read and write.
    pub fn host_slot(&mut self, slot: u32) -> &mut [u64] {
        &mut self.host[slot as usize * self.block_size..][..self.block_size]
    }

    /// Rows that compute this token come back as not finite.
    #[must_use]
    pub fn with_poison(self, token: Token) -> Self {
        Self { poison: Some(token), ..self }
    }

    /// Draws from the last word only: constant work a token, for long
    /// simulations. Tokens are others than without.
    #[must_use]
    pub fn with_shallow_reads(self) -> Self {
        Self { shallow: true, ..self }
    }

    /// Computes a frame. Frames must come in the order planned.
    ///
    /// # Errors
    /// Internal, if the frame breaks the protocol.
    pub fn run(&mut self, frame: &[u8], result: &mut [u8]) -> Result<()> {
        let layout = Arc::clone(&self.layout);
        let frame = Frame::new(&layout, frame)?;
        let mut result = StepResultMut::new(&layout, result)?;
        self.update_slots(&frame)?;
        self.copy_blocks(&frame);
        let rows = frame.header[header::ROWS] as usize;
        let mut wide = false;
        for row in 0..rows {
            let len = frame.row_query_start[row + 1] - frame.row_query_start[row];
            rule(len >= 1, "a row has a token")?;
            rule(len > 1 || !wide, "rows of one token come first")?;
            wide |= len > 1;
            self.run_row(&frame, row, &mut result)?;
        }
        rule(frame.row_query_start[rows] == frame.header[header::TOKENS], "rows cover the tokens")?;
        result.header.fill(0);
        result.header[header::MAGIC] = MAGIC;
        result.header[header::VERSION] = VERSION;
        result.header[header::STEP] = frame.header[header::STEP];
        result.header[header::ROWS] = frame.header[header::ROWS];
        // A microsecond each.
        result.header[header::SAVE_US] = frame.header[header::SAVES];
        result.header[header::LOAD_US] = frame.header[header::LOADS];
        Ok(())
    }

    fn update_slots(&mut self, frame: &Frame<'_>) -> Result<()> {
        for &slot in &frame.freed_slot[..frame.header[header::FREED] as usize] {
            let ended = self.slots[slot as usize].take();
            rule(ended.is_some(), "a freed slot was in use")?;
        }
        for place in 0..frame.header[header::NEW] as usize {
            let slot = &mut self.slots[frame.new_slot[place] as usize];
            rule(slot.is_none(), "a new slot was free")?;
            *slot = Some(read_new(frame, place, 1 + self.groups.len()));
        }
        for place in 0..frame.header[header::DELTAS] as usize {
            let index = frame.delta_index[place] as usize;
            let Some(slot) = &mut self.slots[frame.delta_slot[place] as usize] else {
                return rule(false, "a block table belongs to a slot in use");
            };
            let Some(table) = slot.tables.get_mut(frame.delta_group[place] as usize) else {
                return rule(false, "a block table belongs to a layer group");
            };
            if table.len() <= index {
                table.resize(index + 1, -1);
            }
            table[index] = frame.delta_block[place];
        }
        Ok(())
    }

    fn copy_blocks(&mut self, frame: &Frame<'_>) {
        let size = self.block_size;
        let saves = frame.save_block.iter().zip(frame.save_slot).take(frame.header[header::SAVES] as usize);
        for (&block, &slot) in saves {
            let cells = &self.cells[block as usize * size..][..size];
            let host = &mut self.host[slot as usize * size..][..size];
            host.iter_mut().zip(cells).for_each(|(host, cell)| *host = cell.word);
        }
        let loads = frame.load_block.iter().zip(frame.load_slot).take(frame.header[header::LOADS] as usize);
        for (&block, &slot) in loads {
            let cells = &mut self.cells[block as usize * size..][..size];
            let host = &self.host[slot as usize * size..][..size];
            // Step 0: any row of this step may read it.
            cells.iter_mut().zip(host).for_each(|(cell, &word)| *cell = Cell { word, step: 0, slot: -1 });
        }
    }

    fn run_row(&mut self, frame: &Frame<'_>, row: usize, result: &mut StepResultMut<'_>) -> Result<()> {
        let step = frame.header[header::STEP];
        let number = frame.row_slot[row];
        let Some(mut slot) = self.slots.get_mut(number as usize).and_then(Option::take) else {
            return rule(false, "a row belongs to a slot in use");
        };
        let start = frame.row_computed[row] as usize;
        let query = frame.row_query_start[row] as usize..frame.row_query_start[row + 1] as usize;
        let mut poisoned = false;
        let mut word = match start {
            0 => FIRST,
            _ => self.read(&slot, start - 1, step, number)?,
        };
        for (position, at) in (start..).zip(query.clone()) {
            let token = if frame.tokens[at] == LAST_SAMPLED { slot.last } else { frame.tokens[at] };
            rule(token >= 0, "the last token is asked only of a slot that sampled")?;
            poisoned |= self.poison == Some(token as Token);
            word = next_word(word, token as Token);
            let cell = self.cell(&slot, position)?;
            rule(self.cells[cell].step != step, "no two rows write one block")?;
            self.cells[cell] = Cell { word, step, slot: number };
            if frame.row_flags[row] & row_flag::PROMPT_LOGPROBS != 0 && position + 1 < slot.prompt_len {
                let last = at + 1 == query.end;
                let next = if last { frame.row_next_token[row] } else { frame.tokens[at + 1] };
                rule(next >= 0, "the next prompt token is known")?;
                self.write_prompt_logprobs(&slot, at, word, next, result);
            }
        }
        self.run_groups(&slot, start..start + query.len(), step, number)?;
        result.status[row] = if poisoned { row_status::NOT_FINITE } else { row_status::GOOD };
        result.token[row] = -1;
        if frame.row_flags[row] & row_flag::SAMPLE != 0 {
            let len = start + query.len();
            let seen = self.attend(&slot, len, step, number)?;
            let token = self.sample(&slot, seen, len);
            if let Some(history) = &mut slot.history {
                *history = next_word(*history, token as Token);
            }
            slot.last = token;
            result.token[row] = token;
            self.write_logprobs(&slot, row, seen, token, result);
        }
        self.slots[number as usize] = Some(slot);
        Ok(())
    }

    /// Computes and checks what the other groups have to do with the tokens `computed`.
    fn run_groups(&mut self, slot: &FakeSlot, computed: Range<usize>, step: i32, number: i32) -> Result<()> {
        let mut groups = std::mem::take(&mut self.groups);
        let word = |position| if self.shallow { Ok(0) } else { self.read(slot, position, step, number) };
        for (group, table) in groups.iter_mut().zip(&slot.tables[1..]) {
            group.run(table, computed.clone(), (step, number), word)?;
        }
        self.groups = groups;
        Ok(())
    }

    /// All words of the sequence as one.
    fn attend(&self, slot: &FakeSlot, len: usize, step: i32, number: i32) -> Result<u64> {
        let from = if self.shallow { len - 1 } else { 0 };
        (from..len).try_fold(FIRST, |sum, position| Ok(mix(sum, self.read(slot, position, step, number)?)))
    }

    fn read(&self, slot: &FakeSlot, position: usize, step: i32, number: i32) -> Result<u64> {
        let cell = self.cells[self.cell(slot, position)?];
        rule(cell.step != step || cell.slot == number, "no row reads what another writes in this step")?;
        Ok(cell.word)
    }

    fn cell(&self, slot: &FakeSlot, position: usize) -> Result<usize> {
        place(&slot.tables[0], position, self.block_size, self.cells.len())
    }

    fn sample(&self, slot: &FakeSlot, seen: u64, position: usize) -> i32 {
        let suppress: &[i32] =
            if position - slot.prompt_len < slot.min_tokens { &slot.suppress } else { &[] };
        let state = mix(mix(seen, slot.sampling), slot.history.unwrap_or(0));
        let state = mix(state, position as u64);
        (0..u64::from(u16::MAX))
            .map(|attempt| (mix(state, attempt) % self.vocab_size) as i32)
            .find(|token| !suppress.contains(token))
            .unwrap_or(0)
    }

    fn write_logprobs(
        &self,
        slot: &FakeSlot,
        row: usize,
        seen: u64,
        token: i32,
        result: &mut StepResultMut<'_>,
    ) {
        if slot.logprobs < 0 {
            return;
        }
        let width = self.layout.dims.top;
        result.logprob[row] = logprob(seen, token);
        result.rank[row] = 1;
        for place in 0..slot.logprobs as usize {
            let id = ((token as u64 + place as u64) % self.vocab_size) as i32;
            result.top_id[row * width + place] = id;
            result.top_logprob[row * width + place] = logprob(seen, id);
        }
    }

    fn write_prompt_logprobs(
        &self,
        slot: &FakeSlot,
        at: usize,
        word: u64,
        next: i32,
        result: &mut StepResultMut<'_>,
    ) {
        let width = self.layout.dims.top;
        result.prompt_logprob[at] = logprob(word, next);
        result.prompt_rank[at] = 1;
        for place in 0..slot.prompt_logprobs.max(0) as usize {
            let id = ((next as u64 + place as u64) % self.vocab_size) as i32;
            result.prompt_top_id[at * width + place] = id;
            result.prompt_top_logprob[at * width + place] = logprob(word, id);
        }
    }

    /// The output of a request with nothing else on the device. Knows neither
    /// poison nor aborts.
    pub fn expected(&self, request: &EngineRequest, context_len: usize) -> Vec<Token> {
        let rules = &request.stop;
        let stops: Vec<i32> =
            rules.eos_token_ids.iter().chain(&rules.stop_token_ids).map(|&t| t as i32).collect();
        let needs_history = request.sampling.needs_history();
        let slot = FakeSlot {
            prompt_len: request.prompt.len(),
            min_tokens: rules.min_tokens as usize,
            suppress: if rules.min_tokens > 0 { stops.clone() } else { Vec::new() },
            sampling: sampling_of_request(request),
            history: needs_history.then(|| request.prompt.iter().fold(FIRST, |h, &t| next_word(h, t))),
            ..FakeSlot::default()
        };
        let mut slot = slot;
        let mut words = Vec::new();
        for &token in request.prompt.iter() {
            words.push(next_word(words.last().copied().unwrap_or(FIRST), token));
        }
        let mut output = Vec::new();
        loop {
            let from = if self.shallow { words.len() - 1 } else { 0 };
            let seen = words[from..].iter().fold(FIRST, |sum, &word| mix(sum, word));
            let token = self.sample(&slot, seen, words.len());
            slot.history = slot.history.map(|history| next_word(history, token as Token));
            output.push(token as Token);
            words.push(next_word(words.last().copied().unwrap_or(FIRST), token as Token));
            let may_stop = output.len() > rules.min_tokens as usize;
            if (may_stop && stops.contains(&token))
                || output.len() >= rules.max_tokens as usize
                || words.len() >= context_len
            {
                return output;
            }
        }
    }
}

const FIRST: u64 = 0x0c7a_70c7_0c7a_70c7;

fn mix(a: u64, b: u64) -> u64 {
    let product =
        u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b.rotate_left(32) ^ 0xd1b5_4a32_d192_ed03);
    (product as u64) ^ (product >> 64) as u64
}

fn next_word(word: u64, token: Token) -> u64 {
    mix(word, u64::from(token) + 1)
}

fn logprob(word: u64, token: i32) -> f32 {
    -((mix(word, token as u64) % 1000) as f32) / 100.0
}

/// Where the cell of a position lies among `cells`, by a block table.
fn place(table: &[i32], position: usize, block_size: usize, cells: usize) -> Result<usize> {
    let block = table.get(position / block_size).copied().unwrap_or(-1);
    rule(block >= 0, "every token has a block")?;
    let cell = block as usize * block_size + position % block_size;
    rule(cell < cells, "every block is on the device")?;
    Ok(cell)
}

fn rule(holds: bool, name: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::internal(format!("frame protocol broken: {name}"))) }
}

fn read_new(frame: &Frame<'_>, place: usize, groups: usize) -> FakeSlot {
    let ints = &frame.new_int[place * new_int::WIDTH..][..new_int::WIDTH];
    let floats = &frame.new_float[place * new_float::WIDTH..][..new_float::WIDTH];
    let list = |start: usize, len: usize| {
        let start = ints[start] as usize;
        &frame.heap[start..start + len]
    };
    let bias_len = ints[new_int::BIAS_LEN] as usize;
    let bias = list(new_int::BIAS_START, 2 * bias_len);
    let history = list(new_int::HISTORY_START, ints[new_int::HISTORY_LEN] as usize);
    FakeSlot {
        tables: vec![Vec::new(); groups],
        prompt_len: ints[new_int::PROMPT_LEN] as usize,
        logprobs: ints[new_int::LOGPROBS],
        prompt_logprobs: ints[new_int::PROMPT_LOGPROBS],
        min_tokens: ints[new_int::MIN_TOKENS] as usize,
        suppress: list(new_int::SUPPRESS_START, ints[new_int::SUPPRESS_LEN] as usize).to_vec(),
        sampling: sampling_hash(floats, ints[new_int::TOP_K], frame.new_seed[place], bias.iter().copied()),
        history: (!history.is_empty()).then(|| history.iter().fold(FIRST, |h, &t| next_word(h, t as Token))),
        last: -1,
    }
}

fn sampling_of_request(request: &EngineRequest) -> u64 {
    let s = &request.sampling;
    let floats =
        [s.temperature, s.top_p, s.min_p, s.presence_penalty, s.frequency_penalty, s.repetition_penalty];
    let ids = s.logit_bias.iter().map(|&(token, _)| token as i32);
    let values = s.logit_bias.iter().map(|&(_, value)| value.to_bits() as i32);
    sampling_hash(&floats, s.top_k as i32, s.seed as i64, ids.chain(values))
}

fn sampling_hash(floats: &[f32], top_k: i32, seed: i64, bias: impl Iterator<Item = i32>) -> u64 {
    let words = floats.iter().map(|value| u64::from(value.to_bits()));
    let words = words.chain([top_k as u64, seed as u64]).chain(bias.map(|word| word as u64));
    words.fold(FIRST, mix)
}
