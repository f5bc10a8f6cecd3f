//! The columns that carry a step between the core and the workers.
//!
//! `docs/architecture.md`, "The step frame", says what each column means. This
//! file is the only place that computes offsets: Python asks for them, and both
//! sides see the same flat memory, aligned to 64 bytes. Numbers are little-endian
//! in the machine's own order; frames never leave the machine.

use bytemuck::Pod;

use crate::error::{Error, Result};
use crate::kv::Keep;
use crate::limits::{EngineLimits, GroupLimits};

/// First word of every frame and result ("OCTV").
pub const MAGIC: i32 = i32::from_be_bytes(*b"OCTV");
/// Second word; changes whenever a column does.
pub const VERSION: i32 = 4;
/// Every column and both buffers start at a multiple of this many bytes.
pub const ALIGNMENT: usize = 64;
/// Token id in `tokens` that stands for the token last sampled for the slot.
pub const LAST_SAMPLED: i32 = -1;

/// Indexes into the `header` columns.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// Step number, wrapping.
    pub const STEP: usize = 2;
    /// Rows in this step.
    pub const ROWS: usize = 3;
    /// Tokens in this step (frame only, as the rest up to `LOADS`).
    pub const TOKENS: usize = 4;
    /// Slots that begin.
    pub const NEW: usize = 5;
    /// Slots that ended.
    pub const FREED: usize = 6;
    /// Block table entries.
    pub const DELTAS: usize = 7;
    /// Words of `heap` in use.
    pub const HEAP: usize = 8;
    /// Blocks to copy to the host.
    pub const SAVES: usize = 9;
    /// Blocks to copy from the host.
    pub const LOADS: usize = 10;
    /// Microseconds of this step's copies to the host (result only).
    pub const SAVE_US: usize = 4;
    /// Microseconds of this step's copies from the host (result only).
    pub const LOAD_US: usize = 5;
}

/// Indexes into one slot's twelve words of `new_int`.
pub mod new_int {
    /// Words a slot.
    pub const WIDTH: usize = 12;
    /// Prompt length in tokens.
    pub const PROMPT_LEN: usize = 0;
    /// 0 is off.
    pub const TOP_K: usize = 1;
    /// Alternatives a sampled token; -1 for no log-probabilities.
    pub const LOGPROBS: usize = 2;
    /// Alternatives a prompt token; -1 for none.
    pub const PROMPT_LOGPROBS: usize = 3;
    /// Output tokens before which the suppressed ids may not be sampled.
    pub const MIN_TOKENS: usize = 4;
    /// Where the tokens so far start in `heap`.
    pub const HISTORY_START: usize = 5;
    /// How many they are; 0 when no penalty needs them.
    pub const HISTORY_LEN: usize = 6;
    /// Where the suppressed ids start in `heap`.
    pub const SUPPRESS_START: usize = 7;
    /// How many they are.
    pub const SUPPRESS_LEN: usize = 8;
    /// Where the biased ids start in `heap`; as many f32 bit patterns follow.
    pub const BIAS_START: usize = 9;
    /// How many ids they are.
    pub const BIAS_LEN: usize = 10;
}

/// Indexes into one slot's six numbers of `new_float`.
pub mod new_float {
    /// Numbers a slot.
    pub const WIDTH: usize = 6;
    /// 0 is greedy.
    pub const TEMPERATURE: usize = 0;
    /// 1 is off.
    pub const TOP_P: usize = 1;
    /// 0 is off.
    pub const MIN_P: usize = 2;
    /// 0 is off.
    pub const PRESENCE: usize = 3;
    /// 0 is off.
    pub const FREQUENCY: usize = 4;
    /// 1 is off.
    pub const REPETITION: usize = 5;
}

/// Bits of `row_flags`.
pub mod row_flag {
    /// Sample after the row's last token.
    pub const SAMPLE: i32 = 1;
    /// Report log-probabilities of prompt tokens.
    pub const PROMPT_LOGPROBS: i32 = 2;
}

/// Values of `status`.
pub mod row_status {
    /// The row was computed.
    pub const GOOD: i32 = 0;
    /// The row's logits are not finite.
    pub const NOT_FINITE: i32 = 1;
}

/// Element type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// 32-bit signed integer.
    I32,
    /// 32-bit float.
    F32,
    /// 64-bit signed integer.
    I64,
}

impl DType {
    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::I32 | Self::F32 => 4,
            Self::I64 => 8,
        }
    }
}

/// A Rust type that a column can hold.
pub trait Element: Pod {
    /// Its name in the layout.
    const DTYPE: DType;
}

impl Element for i32 {
    const DTYPE: DType = DType::I32;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for i64 {
    const DTYPE: DType = DType::I64;
}

/// One column: where it lies in its buffer and what shape it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The same on both sides.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// From the start of the buffer, a multiple of [`ALIGNMENT`].
    pub offset_bytes: usize,
    /// Row-major. A dimension may be 0.
    pub shape: Vec<usize>,
}

impl Column {
    /// Elements in the column.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True when a dimension is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The sizes that shapes are made of; letters as in the architecture page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// `S`: slots, and rows of a step.
    pub slots: usize,
    /// `T`: tokens of a step.
    pub tokens: usize,
    /// `B`: blocks of the longest sequence.
    pub table_blocks: usize,
    /// `K`: most alternatives in log-probabilities.
    pub top: usize,
    /// Block table entries of the spine a step.
    pub spine_deltas: usize,
    /// `D`: block table entries of all layer groups a step.
    pub deltas: usize,
    /// `H`: words of the heap.
    pub heap: usize,
    /// `C`: copies to the host a step, and as many from it; 0 without a host tier.
    pub copies: usize,
}

impl Dims {
    /// Sizes of the frames of an engine with these limits.
    pub fn new(limits: &EngineLimits) -> Self {
        let slots = limits.max_num_seqs as usize;
        let tokens = limits.max_num_batched_tokens as usize;
        let table_blocks = limits.max_model_len.div_ceil(limits.block_size) as usize;
        let spine_deltas = 2 * table_blocks + 2 * slots + tokens / limits.block_size as usize;
        let of_group = |group: &GroupLimits| match group.keep {
            // It knows of a block when the spine does.
            Keep::Last(_) => spine_deltas,
            Keep::State { .. } | Keep::Fixed(_) => slots * group.keep.table_blocks(table_blocks),
        };
        let deltas = spine_deltas + limits.groups.iter().map(of_group).sum::<usize>();
        Self {
            slots,
            tokens,
            table_blocks,
            top: limits.max_logprobs as usize,
            spine_deltas,
            deltas,
            heap: 2 * limits.max_model_len as usize + 16_384,
            copies: if limits.host_blocks > 0 { deltas } else { 0 },
        }
    }
}

/// Where every column of a frame and of its result lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// Columns from core to worker.
    pub frame: Vec<Column>,
    /// Bytes of a frame, a multiple of [`ALIGNMENT`].
    pub frame_bytes: usize,
    /// Columns from worker to core.
    pub result: Vec<Column>,
    /// Bytes of a result, a multiple of [`ALIGNMENT`].
    pub result_bytes: usize,
    /// The sizes behind the shapes.
    pub dims: Dims,
}

impl FrameLayout {
    /// The layout for these limits. Limits must have passed [`EngineLimits::check`].
    pub fn new(limits: &EngineLimits) -> Self {
        let dims = Dims::new(limits);
        let (frame, frame_bytes) = place(Frame::columns(&dims));
        let (result, result_bytes) = place(StepResult::columns(&dims));
        Self { frame, frame_bytes, result, result_bytes, dims }
    }
}

/// Gives each column its offset, in order; returns the total as well.
fn place(mut columns: Vec<Column>) -> (Vec<Column>, usize) {
    let mut end = 0;
    for column in &mut columns {
        column.offset_bytes = end;
        end += (column.len() * column.dtype.size_bytes()).next_multiple_of(ALIGNMENT);
    }
    (columns, end)
}

/// Declares a buffer's columns once; makes a struct of shared slices, a struct
/// of mutable slices and the list of columns from them.
macro_rules! columns {
    (
        $(#[$doc:meta])* $read:ident, $(#[$doc_mut:meta])* $write:ident, $part:ident, $bytes:ident, $what:literal;
        $( $(#[$column_doc:meta])* $name:ident: $ty:ty, $shape:expr; )*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $read<'a> { $( $(#[$column_doc])* pub $name: &'a [$ty], )* }

        $(#[$doc_mut])*
        #[derive(Debug)]
        pub struct $write<'a> { $( $(#[$column_doc])* pub $name: &'a mut [$ty], )* }

        impl<'a> $read<'a> {
            fn columns(dims: &Dims) -> Vec<Column> {
                vec![$( Column {
                    name: stringify!($name),
                    dtype: <$ty as Element>::DTYPE,
                    offset_bytes: 0,
                    shape: shape(dims, $shape),
                }, )*]
            }

            /// The columns of `bytes`, whose magic and version are checked.
            ///
            /// # Errors
            /// A short or misaligned buffer, or a wrong magic or version, is internal.
            pub fn new(layout: &FrameLayout, bytes: &'a [u8]) -> Result<Self> {
                check_buffer($what, bytes, layout.$bytes)?;
                let mut columns = layout.$part.iter();
                $( let $name = cast(bytes, columns.next())?; )*
                let columns = Self { $( $name, )* };
                check_header($what, columns.header)?;
                Ok(columns)
            }
        }

        impl<'a> $write<'a> {
            /// The columns of `bytes`, which may hold anything.
            ///
            /// # Errors
            /// A short or misaligned buffer is internal.
            pub fn new(layout: &FrameLayout, bytes: &'a mut [u8]) -> Result<Self> {
                check_buffer($what, bytes, layout.$bytes)?;
                let mut columns = layout.$part.iter();
                let rest = bytes;
                $( let ($name, rest) = split(rest, columns.next())?; )*
                let _ = rest;
                Ok(Self { $( $name, )* })
            }
        }
    };
}

columns! {
    /// A step's frame as the worker reads it.
    Frame,
    /// A step's frame as the core writes it.
    FrameMut, frame, frame_bytes, "frame";
    /// Counts; see [`header`].
    header: i32, |_| [16, 0];
    /// `[2S]` slots that ended since the last frame; applied first.
    freed_slot: i32, |d| [2 * d.slots, 0];
    /// `[S]` slots that begin; applied second.
    new_slot: i32, |d| [d.slots, 0];
    /// `[S, 12]` of each new slot; see [`new_int`].
    new_int: i32, |d| [d.slots, new_int::WIDTH];
    /// `[S, 6]` of each new slot; see [`new_float`].
    new_float: f32, |d| [d.slots, new_float::WIDTH];
    /// `[S]` bits of each new slot's 64-bit seed.
    new_seed: i64, |d| [d.slots, 0];
    /// `[H]` lists that `new_int` points into.
    heap: i32, |d| [d.heap, 0];
    /// `[D]` with the three below: `table[group][slot][index] = block`; applied third.
    delta_group: i32, |d| [d.deltas, 0];
    /// `[D]`.
    delta_slot: i32, |d| [d.deltas, 0];
    /// `[D]`.
    delta_index: i32, |d| [d.deltas, 0];
    /// `[D]`.
    delta_block: i32, |d| [d.deltas, 0];
    /// `[C]` with the one below: `host[slot] = device[block]`; applied fourth.
    save_block: i32, |d| [d.copies, 0];
    /// `[C]`.
    save_slot: i32, |d| [d.copies, 0];
    /// `[C]` with the one below: `device[block] = host[slot]`; applied fifth.
    load_block: i32, |d| [d.copies, 0];
    /// `[C]`.
    load_slot: i32, |d| [d.copies, 0];
    /// `[S]` whose tokens a row computes; rows of one token come first.
    row_slot: i32, |d| [d.slots, 0];
    /// `[S + 1]` row r computes tokens `row_query_start[r]..row_query_start[r + 1]`.
    row_query_start: i32, |d| [d.slots + 1, 0];
    /// `[S]` tokens already in KV: the first query token's position.
    row_computed: i32, |d| [d.slots, 0];
    /// `[S]` bits of [`row_flag`].
    row_flags: i32, |d| [d.slots, 0];
    /// `[S]` with prompt log-probabilities: the prompt token after the row, or -1.
    row_next_token: i32, |d| [d.slots, 0];
    /// `[T]` input ids, or [`LAST_SAMPLED`].
    tokens: i32, |d| [d.tokens, 0];
}

columns! {
    /// A step's result as the core reads it.
    StepResult,
    /// A step's result as the worker writes it.
    StepResultMut, result, result_bytes, "result";
    /// Magic, version, step, rows, times of copies; see [`header`].
    header: i32, |_| [16, 0];
    /// `[S]` sampled id, or -1 where the row does not sample.
    token: i32, |d| [d.slots, 0];
    /// `[S]` see [`row_status`].
    status: i32, |d| [d.slots, 0];
    /// `[S]` of the sampled token, where asked.
    logprob: f32, |d| [d.slots, 0];
    /// `[S]` of the sampled token, where asked; 1 is the most likely.
    rank: i32, |d| [d.slots, 0];
    /// `[S, K]` best first, where asked.
    top_id: i32, |d| [d.slots, WIDTH_TOP];
    /// `[S, K]` best first, where asked.
    top_logprob: f32, |d| [d.slots, WIDTH_TOP];
    /// `[T]` at a query token: of the prompt token that follows it.
    prompt_logprob: f32, |d| [d.tokens, 0];
    /// `[T]`.
    prompt_rank: i32, |d| [d.tokens, 0];
    /// `[T, K]` best first.
    prompt_top_id: i32, |d| [d.tokens, WIDTH_TOP];
    /// `[T, K]` best first.
    prompt_top_logprob: f32, |d| [d.tokens, WIDTH_TOP];
}

/// Stands for `K`, which may be 0, in the declarations above.
const WIDTH_TOP: usize = usize::MAX;

/// A declared `[rows, width]` as a shape; width 0 makes a vector.
fn shape(dims: &Dims, declared: fn(&Dims) -> [usize; 2]) -> Vec<usize> {
    match declared(dims) {
        [rows, 0] => vec![rows],
        [rows, WIDTH_TOP] => vec![rows, dims.top],
        [rows, width] => vec![rows, width],
    }
}

fn check_buffer(what: &str, bytes: &[u8], expected: usize) -> Result<()> {
    if bytes.len() < expected {
        let found = bytes.len();
        return Err(Error::internal(format!("the {what} buffer has {found} bytes and needs {expected}")));
    }
    if !(bytes.as_ptr() as usize).is_multiple_of(ALIGNMENT) {
        return Err(Error::internal(format!("the {what} buffer is not aligned to {ALIGNMENT} bytes")));
    }
    Ok(())
}

fn check_header(what: &str, words: &[i32]) -> Result<()> {
    if words[header::MAGIC] != MAGIC {
        return Err(Error::internal(format!("the {what} buffer holds no {what}: wrong magic")));
    }
    if words[header::VERSION] != VERSION {
        let found = words[header::VERSION];
        return Err(Error::internal(format!("the {what} has layout version {found}, not {VERSION}")));
    }
    Ok(())
}

fn cast<'a, E: Element>(bytes: &'a [u8], column: Option<&Column>) -> Result<&'a [E]> {
    let (start, len) = span::<E>(column)?;
    bytes.get(start..start + len).and_then(|part| bytemuck::try_cast_slice(part).ok()).ok_or_else(mismatch)
}

/// Splits the next column, with its padding, off `bytes`.
fn split<'a, E: Element>(
    bytes: &'a mut [u8],
    column: Option<&Column>,
) -> Result<(&'a mut [E], &'a mut [u8])> {
    let (_, len) = span::<E>(column)?;
    let (part, rest) = bytes.split_at_mut_checked(len.next_multiple_of(ALIGNMENT)).ok_or_else(mismatch)?;
    let part = bytemuck::try_cast_slice_mut(&mut part[..len]).map_err(|_| mismatch())?;
    Ok((part, rest))
}

/// Offset and length in bytes of a column that must hold `E`.
fn span<E: Element>(column: Option<&Column>) -> Result<(usize, usize)> {
    let column = column.filter(|c| c.dtype == E::DTYPE).ok_or_else(mismatch)?;
    Ok((column.offset_bytes, column.len() * size_of::<E>()))
}

fn mismatch() -> Error {
    Error::internal("the frame layout is not the one that this build computes")
}

/// A zeroed buffer aligned for frames, for executors that run in this process.
#[derive(Clone, Debug)]
pub struct Buffer {
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

impl Buffer {
    /// A buffer of `bytes`, which must be a multiple of [`ALIGNMENT`] as both
    /// totals of a layout are.
    pub fn new(bytes: usize) -> Self {
        Self { lines: vec![Line([0; ALIGNMENT]); bytes.div_ceil(ALIGNMENT)] }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }

    /// Its bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Policy;

    fn limits() -> EngineLimits {
        EngineLimits {
            block_size: 16,
            num_blocks: 64,
            groups: Vec::new(),
            max_model_len: 100,
            max_num_seqs: 5,
            max_num_batched_tokens: 33,
            long_prefill_token_threshold: 0,
            max_num_queued_reqs: 10,
            max_logprobs: 3,
            vocab_size: 1000,
            watermark: 0.0,
            enable_prefix_caching: true,
            max_pinned_share: 0.5,
            kv_events: false,
            host_blocks: 0,
            host_load_tokens: 0.0,
            disk_tier: false,
            tenant_weights: Vec::new(),
            policy: Policy::Fcfs,
            pipeline_depth: 1,
        }
    }

    #[test]
    fn columns_are_aligned_disjoint_and_cover_the_buffer() {
        let layout = FrameLayout::new(&limits());
        for (columns, total) in [(&layout.frame, layout.frame_bytes), (&layout.result, layout.result_bytes)] {
            let mut end = 0;
            for column in columns {
                assert_eq!(column.offset_bytes % ALIGNMENT, 0, "{}", column.name);
                assert_eq!(column.offset_bytes, end, "{}", column.name);
                end += (column.len() * column.dtype.size_bytes()).next_multiple_of(ALIGNMENT);
            }
            assert_eq!(end, total);
        }
        assert_eq!(layout.dims.table_blocks, 7);
        assert_eq!(layout.dims.deltas, 2 * 7 + 2 * 5 + 2);
        assert_eq!(layout.frame[3].shape, [5, 12]);
        assert_eq!(layout.result[9].shape, [33, 3]);
    }

    #[test]
    fn what_is_written_is_read() {
        let layout = FrameLayout::new(&limits());
        let mut buffer = Buffer::new(layout.frame_bytes);
        let frame = FrameMut::new(&layout, buffer.bytes_mut()).unwrap();
        frame.header[header::MAGIC] = MAGIC;
        frame.header[header::VERSION] = VERSION;
        frame.new_seed[4] = -7;
        frame.tokens[32] = LAST_SAMPLED;
        let frame = Frame::new(&layout, buffer.bytes()).unwrap();
        assert_eq!(frame.new_seed[4], -7);
        assert_eq!(frame.tokens[32], LAST_SAMPLED);
        assert_eq!(frame.row_query_start.len(), 6);
    }

    #[test]
    fn bad_buffers_are_errors() {
        let layout = FrameLayout::new(&limits());
        let mut buffer = Buffer::new(layout.frame_bytes + ALIGNMENT);
        assert!(Frame::new(&layout, buffer.bytes()).unwrap_err().message().contains("magic"));
        assert!(Frame::new(&layout, &buffer.bytes()[..64]).unwrap_err().message().contains("bytes"));
        assert!(FrameMut::new(&layout, &mut buffer.bytes_mut()[4..]).is_err());
        let frame = FrameMut::new(&layout, buffer.bytes_mut()).unwrap();
        frame.header[header::MAGIC] = MAGIC;
        frame.header[header::VERSION] = VERSION + 1;
        assert!(Frame::new(&layout, buffer.bytes()).unwrap_err().message().contains("version"));
    }

    #[test]
    fn no_alternatives_make_empty_columns() {
        let layout = FrameLayout::new(&EngineLimits { max_logprobs: 0, ..limits() });
        let mut buffer = Buffer::new(layout.result_bytes);
        let result = StepResultMut::new(&layout, buffer.bytes_mut()).unwrap();
        assert!(result.top_id.is_empty());
    }
}
