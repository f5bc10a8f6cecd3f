//! The payload of a batch, MessagePack: `[time, events, data_parallel_rank]`.
//!
//! Events are vLLM's: `BlockStored` (a run of blocks, each following the one
//! before), `BlockRemoved` and `AllBlocksCleared`.

use octavo_core::{BlockHash, KvEvent, Token};

use super::EventFormat;
use super::msgpack::Writer;

/// Where blocks are: vLLM's word for the device, whichever it is.
const DEVICE: &str = "GPU";
/// The only kind of block that is told of.
const KIND: &str = "full_attention";

/// What one event on the wire is about.
#[derive(Debug)]
enum Run<'a> {
    Stored { blocks: Vec<BlockHash>, parent: Option<BlockHash>, salt: u64, tokens: Vec<&'a [Token]> },
    Removed(Vec<BlockHash>),
    Cleared,
}

/// The payload for events that happened before `time_s`, Unix time in seconds.
pub fn batch(time_s: f64, events: &[KvEvent], block_size: u64, format: EventFormat) -> Vec<u8> {
    let runs = runs(events);
    let mut out = Writer::default();
    out.array(3);
    out.float(time_s);
    out.array(runs.len());
    for run in &runs {
        write(&mut out, run, block_size, format);
    }
    out.uint(0);
    out.finish()
}

/// Blocks that follow each other, and those removed together, in one.
fn runs(events: &[KvEvent]) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for event in events {
        match (event, runs.last_mut()) {
            (
                KvEvent::Stored { block, parent, tokens, .. },
                Some(Run::Stored { blocks, tokens: lists, .. }),
            ) if parent.is_some() && *parent == blocks.last().copied() => {
                blocks.push(*block);
                lists.push(tokens);
            }
            (KvEvent::Stored { block, parent, salt, tokens }, _) => runs.push(Run::Stored {
                blocks: vec![*block],
                parent: *parent,
                salt: *salt,
                tokens: vec![tokens],
            }),
            (KvEvent::Removed { block }, Some(Run::Removed(blocks))) => blocks.push(*block),
            (KvEvent::Removed { block }, _) => runs.push(Run::Removed(vec![*block])),
            (KvEvent::Cleared, _) => runs.push(Run::Cleared),
        }
    }
    runs
}

type Field<'a> = (&'static str, Box<dyn Fn(&mut Writer) + 'a>);

fn write(out: &mut Writer, run: &Run<'_>, block_size: u64, format: EventFormat) {
    let (kind, fields): (_, Vec<Field<'_>>) = match run {
        Run::Stored { blocks, parent, salt, tokens } => {
            let fields: Vec<Field<'_>> = vec![
                ("block_hashes", Box::new(|out| hashes(out, blocks))),
                ("parent_block_hash", Box::new(|out| parent_hash(out, *parent))),
                ("token_ids", Box::new(|out| token_ids(out, tokens))),
                ("block_size", Box::new(move |out| out.uint(block_size))),
                ("lora_id", Box::new(Writer::nil)),
                ("medium", Box::new(|out| out.str(DEVICE))),
                ("lora_name", Box::new(Writer::nil)),
                ("extra_keys", Box::new(|out| extra_keys(out, blocks.len(), parent.is_none(), *salt))),
                ("group_idx", Box::new(|out| out.uint(0))),
                ("kv_cache_spec_kind", Box::new(|out| out.str(KIND))),
            ];
            ("BlockStored", fields)
        }
        Run::Removed(blocks) => {
            let fields: Vec<Field<'_>> = vec![
                ("block_hashes", Box::new(|out| hashes(out, blocks))),
                ("medium", Box::new(|out| out.str(DEVICE))),
                ("group_idx", Box::new(|out| out.uint(0))),
            ];
            ("BlockRemoved", fields)
        }
        Run::Cleared => ("AllBlocksCleared", Vec::new()),
    };
    match format {
        EventFormat::Map => {
            out.map(1 + fields.len());
            out.str("type");
        }
        EventFormat::Array => out.array(1 + fields.len()),
    }
    out.str(kind);
    for (name, value) in fields {
        if format == EventFormat::Map {
            out.str(name);
        }
        value(out);
    }
}

fn hashes(out: &mut Writer, blocks: &[BlockHash]) {
    out.array(blocks.len());
    for block in blocks {
        out.bin(&block.0);
    }
}

fn parent_hash(out: &mut Writer, parent: Option<BlockHash>) {
    match parent {
        Some(parent) => out.bin(&parent.0),
        None => out.nil(),
    }
}

fn token_ids(out: &mut Writer, lists: &[&[Token]]) {
    out.array(lists.iter().map(|tokens| tokens.len()).sum());
    for &token in lists.iter().copied().flatten() {
        out.uint(token.into());
    }
}

/// What besides tokens is in a block's hash: the salt, at the first block of a
/// sequence. Who compares tokens alone must leave salted blocks out.
fn extra_keys(out: &mut Writer, blocks: usize, first: bool, salt: u64) {
    out.array(blocks);
    for place in 0..blocks {
        if first && place == 0 && salt != 0 {
            out.array(1);
            out.str(&format!("{salt:016x}"));
        } else {
            out.nil();
        }
    }
}
