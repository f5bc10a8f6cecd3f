//! Causal attention over paged KV memory, for decode and prefill alike.
//!
//! Online softmax (Milakov and Gimelshein, "Online normalizer calculation for softmax") over runs of [`KEYS`] keys
//! that begin at multiples of `KEYS`, gathered in sections of [`SECTION`] keys that begin at multiples of `SECTION`;
//! section states are merged in the order of the sequence. Every query goes through the same steps whatever else is
//! in the call, so its bits depend neither on the batch nor on how the prompt was cut. Sections are also what a long
//! sequence is split into when there are fewer pieces of work than threads.

mod kernel;
mod state;

use crate::buffer::Buffer;
use crate::pool::AssumeSync;
use crate::simd::{LANES, dispatch};
use crate::{CacheType, Cpu, MatMut, MatRef};
use kernel::Piece;
use state::{Merge, StateLayout};
use std::cell::RefCell;

/// Keys of one softmax step.
pub const KEYS: usize = 64;
/// Keys after which the softmax begins anew, to be merged.
pub const SECTION: usize = 256;
/// Query vectors (tokens times heads that share a KV head) that go over the keys together.
const QUERIES: usize = 64;

/// Queries, cache and masks of one call. Sizes are in elements.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Queries `[tokens, heads * head_dim]`.
    pub q: MatRef,
    /// A layer's cache `[num_blocks, 2, kv_heads, block_size, row]`, contiguous.
    pub cache: *const u8,
    /// What its rows hold.
    pub cache_type: CacheType,
    /// Blocks in the cache.
    pub num_blocks: usize,
    /// Tokens of a block.
    pub block_size: usize,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Row `r` computes tokens `query_start[r]..query_start[r + 1]`.
    pub query_start: &'a [i32],
    /// Tokens of each row's sequence, those of this call included.
    pub seq_lens: &'a [i32],
    /// Block tables `[rows, table_stride]`.
    pub block_tables: *const i32,
    /// Entries from one row's table to the next.
    pub table_stride: usize,
    /// What scores are multiplied by.
    pub scale: f32,
    /// How many tokens a token sees, itself included.
    pub window: Option<usize>,
    /// Scores become `softcap * tanh(score / softcap)`.
    pub softcap: Option<f32>,
}

// SAFETY: a view; `attend` says what must hold.
unsafe impl Sync for Attention<'_> {}

/// A piece of work: some tokens of a row, for one KV head, over some sections.
#[derive(Clone, Copy, Debug)]
struct Item {
    row: usize,
    kv_head: usize,
    /// Tokens of the call.
    first_token: usize,
    tokens: usize,
    /// Position of the first token in its sequence.
    position: usize,
    sections: (usize, usize),
}

thread_local! {
    static SCRATCH: RefCell<Buffer> = RefCell::new(Buffer::zeroed(1 << 16));
    static STATES: RefCell<Buffer> = RefCell::new(Buffer::zeroed(1 << 16));
}

/// Writes `out` `[tokens, heads * head_dim]`.
///
/// # Errors
/// The rows contradict each other, or a block table names a block that the cache does not have.
///
/// # Safety
/// The pointers hold what the fields say; the tables have `ceil(seq_len / block_size)` entries for each row. `out`
/// overlaps none of the inputs.
pub unsafe fn attend(cpu: &Cpu, call: &Attention<'_>, out: MatMut) -> Result<(), String> {
    // SAFETY: the caller's.
    unsafe { check(call, out)? };
    let whole = items(call);
    let split = if whole.len() < 4 * cpu.pool.threads() { split_items(&whole) } else { Vec::new() };
    if split.len() > whole.len() {
        attend_split(cpu, call, out, &whole, &split);
        return Ok(());
    }
    let order = order(call, &whole, cpu.pool.threads());
    cpu.pool.run(order.len(), |chunk, _| {
        let item = whole[order[chunk]];
        let layout = StateLayout::new(call, &item);
        SCRATCH.with_borrow_mut(|scratch| {
            let states =
                scratch.reserve(2 * layout.bytes() + kernel::scratch_bytes(call, &item)).cast::<f32>();
            for section in item.sections.0..item.sections.1 {
                let place = if section == item.sections.0 { 0 } else { layout.floats() };
                // SAFETY: `cpu.isa` is available; the scratch holds two states and the kernel's own part.
                unsafe {
                    let work = states.add(2 * layout.floats());
                    let state = states.add(place);
                    dispatch(cpu.isa, Piece { call, item, section, layout, pack: place == 0, state, work });
                    if place > 0 {
                        dispatch(cpu.isa, Merge { layout, into: states, from: state });
                    }
                }
            }
            // SAFETY: as above; the item's outputs are its own.
            unsafe { dispatch(cpu.isa, state::Finish { call, item, layout, state: states, out }) };
        });
    });
    Ok(())
}

/// Few pieces: sections go to threads by themselves and are merged afterwards, in the same order.
fn attend_split(cpu: &Cpu, call: &Attention<'_>, out: MatMut, whole: &[Item], split: &[(usize, Item)]) {
    STATES.with_borrow_mut(|states| {
        let mut starts = Vec::with_capacity(split.len());
        let mut floats = 0;
        for (_, item) in split {
            starts.push(floats);
            floats += StateLayout::new(call, item).floats();
        }
        let states = AssumeSync(states.reserve(floats * size_of::<f32>()).cast::<f32>());
        cpu.pool.run(split.len(), |chunk, _| {
            let item = split[chunk].1;
            let layout = StateLayout::new(call, &item);
            SCRATCH.with_borrow_mut(|scratch| {
                let work = scratch.reserve(kernel::scratch_bytes(call, &item)).cast::<f32>();
                // SAFETY: `cpu.isa` is available; each chunk has its own state.
                unsafe {
                    let state = states.get().add(starts[chunk]);
                    let section = item.sections.0;
                    dispatch(cpu.isa, Piece { call, item, section, layout, pack: true, state, work });
                }
            });
        });
        cpu.pool.run(whole.len(), |chunk, _| {
            let item = whole[chunk];
            let layout = StateLayout::new(call, &item);
            let mut parts =
                starts.iter().zip(split).filter(|(_, (of, _))| *of == chunk).map(|(start, _)| *start);
            let Some(first) = parts.next() else { return };
            // SAFETY: as above; the states of one item are used by one chunk.
            unsafe {
                let into = states.get().add(first);
                for part in parts {
                    dispatch(cpu.isa, Merge { layout, into, from: states.get().add(part) });
                }
                dispatch(cpu.isa, state::Finish { call, item, layout, state: into, out });
            }
        });
    });
}

/// # Safety
/// As [`attend`].
unsafe fn check(call: &Attention<'_>, out: MatMut) -> Result<(), String> {
    let rows = call.seq_lens.len();
    let (starts, lens) = (call.query_start, call.seq_lens);
    if starts.len() != rows + 1 {
        return Err(format!("attention: {} query starts for {rows} rows", starts.len()));
    }
    if call.kv_heads == 0
        || !call.heads.is_multiple_of(call.kv_heads)
        || call.head_dim == 0
        || call.block_size == 0
    {
        return Err(format!(
            "attention: {} heads of {} values over {} KV heads in blocks of {}",
            call.heads, call.head_dim, call.kv_heads, call.block_size
        ));
    }
    if starts[0] < 0 || call.q.rows != out.rows || starts[rows] as usize > call.q.rows {
        return Err(format!(
            "attention: queries {}..{} of {} tokens, output of {}",
            starts[0], starts[rows], call.q.rows, out.rows
        ));
    }
    if call.window == Some(0) {
        return Err("attention: a window of 0 tokens sees nothing".into());
    }
    for row in 0..rows {
        let tokens = starts[row + 1] - starts[row];
        if tokens < 0 || tokens > lens[row] {
            return Err(format!(
                "attention: row {row} has {tokens} new tokens in a sequence of {}",
                lens[row]
            ));
        }
        if tokens == 0 {
            continue;
        }
        let first = first_visible(call, (lens[row] - tokens) as usize) / call.block_size;
        for index in first..(lens[row] as usize).div_ceil(call.block_size) {
            // SAFETY: the table has an entry for each block of the sequence.
            let block = unsafe { *call.block_tables.add(row * call.table_stride + index) };
            if block < 0 || block as usize >= call.num_blocks {
                return Err(format!("attention: row {row} names block {block} of {}", call.num_blocks));
            }
        }
    }
    Ok(())
}

/// The first position that the query at `position` sees.
fn first_visible(call: &Attention<'_>, position: usize) -> usize {
    call.window.map_or(0, |window| (position + 1).saturating_sub(window))
}

fn items(call: &Attention<'_>) -> Vec<Item> {
    let tile = (QUERIES * call.kv_heads / call.heads).max(1);
    let mut items = Vec::new();
    for (row, (start, &len)) in call.query_start.windows(2).zip(call.seq_lens).enumerate() {
        let (begin, end) = (start[0] as usize, start[1] as usize);
        for first_token in (begin..end).step_by(tile) {
            let tokens = tile.min(end - first_token);
            let position = len as usize - (end - first_token);
            let sections = (first_visible(call, position) / SECTION, (position + tokens).div_ceil(SECTION));
            items.extend((0..call.kv_heads).map(|kv_head| Item {
                row,
                kv_head,
                first_token,
                tokens,
                position,
                sections,
            }));
        }
    }
    items
}

fn split_items(whole: &[Item]) -> Vec<(usize, Item)> {
    whole
        .iter()
        .enumerate()
        .flat_map(|(of, item)| {
            let sections = item.sections.0..item.sections.1;
            sections.map(move |section| (of, Item { sections: (section, section + 1), ..*item }))
        })
        .collect()
}

/// The order in which threads take the items: longest first, dealt out so that each thread's share begins with long
/// ones.
fn order(call: &Attention<'_>, items: &[Item], threads: usize) -> Vec<usize> {
    let cost = |item: &Item| {
        let keys = item.position + item.tokens - first_visible(call, item.position);
        keys * (item.tokens * call.heads / call.kv_heads).next_multiple_of(4)
    };
    let mut sorted: Vec<usize> = (0..items.len()).collect();
    if items.iter().any(|item| cost(item) != cost(&items[0])) {
        sorted.sort_by_key(|&i| std::cmp::Reverse(cost(&items[i])));
        return (0..threads).flat_map(|t| sorted.iter().copied().skip(t).step_by(threads)).collect();
    }
    sorted
}

const _: () = assert!(KEYS.is_multiple_of(2 * LANES) && SECTION.is_multiple_of(KEYS));

#[cfg(test)]
mod tests;
