//! The scheduler's state and the life of a sequence in it.

use std::collections::HashMap;

use slab::Slab;

use super::budget::Budget;
use super::deadline::Clock;
use super::queue::{Candidate, Queue, queue};
use super::running::Running;
use super::sequence::Sequence;
use super::step::{Delta, Row, Step};
use crate::error::{Error, Result};
use crate::event::{CachedTokens, FinishReason};
use crate::frame::Dims;
use crate::ids::{RequestId, Slot};
use crate::kv::tiers::{Lost, Tiers};
use crate::kv::{BlockHash, GroupConfig, KvConfig, KvEvents, KvManager, Lease, TierConfig};
use crate::limits::{EngineLimits, GroupLimits};
use crate::request::EngineRequest;
use crate::stats::Stats;

/// How long a request waits for content from disk before it is computed instead,
/// should the disk hang; nanoseconds.
const FETCH_PATIENCE_NS: u64 = 5_000_000_000;

/// Sequences, the order in which they are served, and the memory they hold.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) dims: Dims,
    pub(super) block_size: usize,
    pub(super) threshold: usize,
    pub(super) context_len: usize,
    max_waiting: usize,
    pub(super) sequences: Slab<Sequence>,
    by_id: HashMap<RequestId, usize>,
    pub(super) clock: Clock,
    pub(super) waiting: Box<dyn Queue>,
    pub(super) running: Running,
    pub(super) kv: KvManager,
    pub(super) free_slots: Vec<Slot>,
    /// Slots that ended and that no step has told the workers of.
    pub(super) freed: Vec<Slot>,
    /// Running sequences that need several tokens, of the step being planned.
    pub(super) chunked: Vec<Candidate>,
    /// Waiting sequences that were passed over in the step being planned.
    pub(super) deferred: Vec<Candidate>,
    /// Running requests that were put back since the engine cleared it.
    pub(crate) preempted: Vec<RequestId>,
    /// Rows of several tokens, of the step being planned.
    pub(super) wide: Vec<Row>,
    /// Number of the last step planned.
    pub(super) step: u64,
    arrivals: u64,
    /// The time, as far as it is known.
    pub(super) now_ns: u64,
    pub(super) tickets: u64,
    /// Counters; the levels in it are filled in by `stats`.
    pub(crate) counters: Stats,
}

impl Scheduler {
    /// An idle scheduler for limits that were checked.
    pub fn new(limits: &EngineLimits, dims: Dims) -> Self {
        let reserve = |blocks: u32| (f64::from(limits.watermark) * f64::from(blocks)) as usize;
        let group = |group: &GroupLimits| GroupConfig {
            keep: group.keep,
            blocks: group.num_blocks,
            reserve: reserve(group.num_blocks),
        };
        Self {
            dims,
            block_size: limits.block_size as usize,
            threshold: limits.long_prefill_token_threshold as usize,
            context_len: limits.context_len() as usize,
            max_waiting: limits.max_num_queued_reqs as usize,
            sequences: Slab::new(),
            by_id: HashMap::new(),
            clock: Clock::default(),
            waiting: queue(limits.policy, &limits.tenant_weights),
            running: Running::with_capacity(dims.slots),
            kv: KvManager::new(KvConfig {
                blocks: limits.num_blocks,
                reserve: reserve(limits.num_blocks),
                block_size: limits.block_size,
                caching: limits.enable_prefix_caching,
                max_pinned: (f64::from(limits.max_pinned_share) * f64::from(limits.num_blocks)) as usize,
                identities: limits.kv_events || limits.host_blocks > 0,
                events: limits.kv_events,
                tiers: (limits.host_blocks > 0).then_some(TierConfig {
                    host_slots: limits.host_blocks,
                    most_copies: dims.copies,
                    loads: limits.host_load_tokens < limits.block_size as f32,
                    disk: limits.disk_tier,
                }),
                groups: limits.groups.iter().map(group).collect(),
            }),
            free_slots: slots(limits.max_num_seqs),
            freed: Vec::with_capacity(2 * dims.slots),
            chunked: Vec::with_capacity(dims.slots),
            deferred: Vec::new(),
            preempted: Vec::with_capacity(dims.slots),
            wide: Vec::with_capacity(dims.slots),
            step: 0,
            arrivals: 0,
            now_ns: 0,
            tickets: 0,
            counters: Stats::default(),
        }
    }

    /// Queues a request that was checked.
    ///
    /// # Errors
    /// Overloaded if the queue is full; internal if the id is in use.
    pub fn add(&mut self, request: EngineRequest) -> Result<()> {
        if self.waiting.len() >= self.max_waiting {
            let most = self.max_waiting;
            return Err(Error::overloaded(format!(
                "{most} requests wait already, the most that max_num_queued_reqs allows; try again later"
            )));
        }
        if self.by_id.contains_key(&request.id) {
            return Err(Error::internal(format!("request id {} is in use", request.id.0)));
        }
        let rank = self.waiting.rank(request.priority, self.arrivals);
        self.arrivals += 1;
        let index = self.sequences.vacant_key();
        let candidate = Candidate { rank, index, tenant: request.tenant };
        let lease = self.kv.lease(request.cache_salt);
        let awaited = self.fetch(&lease, &request);
        self.sequences.insert(Sequence {
            id: request.id,
            tokens: request.prompt.to_vec(),
            prompt_len: request.prompt.len(),
            candidate,
            charged: 0,
            scheduled: 0,
            unread: 0,
            lease,
            awaited,
            awaited_until_ns: self.now_ns.saturating_add(FETCH_PATIENCE_NS),
            synced: 0,
            slot: None,
            ticket: 0,
            started: false,
            cached: CachedTokens::default(),
            prompt_reported: 1,
            retain: request.retain,
            retained: 0,
            deadlines: request.deadlines,
            sampling: request.sampling,
            stop: request.stop,
        });
        self.by_id.insert(request.id, index);
        self.clock.set(request.deadlines, index);
        self.waiting.push(candidate, false);
        Ok(())
    }

    /// The place of a request that has not ended.
    pub fn find(&self, id: RequestId) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// The sequence at a place that `find` or `begun` gave.
    pub fn sequence(&self, index: usize) -> &Sequence {
        &self.sequences[index]
    }

    /// The row's sequence, unless it has ended or was preempted since.
    pub fn row_sequence(&mut self, row: &Row) -> Option<&mut Sequence> {
        self.sequences.get_mut(row.sequence).filter(|sequence| sequence.ticket == row.ticket)
    }

    /// The length at which every sequence ends.
    pub fn context_len(&self) -> usize {
        self.context_len
    }

    /// Puts the full blocks of a running sequence into the prefix cache.
    pub fn cache_full(&mut self, index: usize) {
        let sequence = &mut self.sequences[index];
        let Sequence { lease, tokens, scheduled, .. } = sequence;
        let exchanged = self.kv.cache_full(lease, tokens, *scheduled, self.step);
        if let Some(at) = exchanged {
            sequence.synced = sequence.synced.min(at);
        }
    }

    /// Ends a sequence. Steps in flight may still compute it; their rows are
    /// void, and whoever gets its slot and blocks comes after them on the device.
    pub fn finish(&mut self, index: usize, reason: FinishReason) {
        self.retain_again(index);
        let sequence = &self.sequences[index];
        if sequence.slot.is_some() {
            let uncharged = sequence.scheduled.saturating_sub(sequence.charged);
            self.waiting.charge(sequence.candidate.tenant, uncharged);
            self.stop_running(index);
        } else {
            self.waiting.remove(self.sequences[index].candidate);
        }
        let sequence = self.sequences.remove(index);
        self.by_id.remove(&sequence.id);
        self.clock.clear(sequence.deadlines, index);
        self.counters.finished.count(reason);
    }

    /// The tiers below the device, if there are some.
    pub fn tiers(&mut self) -> Option<&mut Tiers> {
        self.kv.tiers_mut()
    }

    /// The copies of a step are done.
    pub fn commit_copies(&mut self, step: &Step) {
        self.counters.host_saved_blocks += step.copies.saves.len() as u64;
        self.counters.host_loaded_blocks += step.copies.loads.len() as u64;
        if let Some(tiers) = self.kv.tiers_mut() {
            tiers.commit(step.number, &step.copies);
        }
    }

    /// The copies of a step will not be done.
    pub fn abandon_copies(&mut self, step: &Step) {
        if let Some(tiers) = self.kv.tiers_mut() {
            tiers.abandon(&step.copies);
        }
    }

    /// Takes the blocks of a running sequence out of the prefix cache.
    pub fn forget(&mut self, index: usize) {
        self.kv.forget(&self.sequences[index].lease);
    }

    /// Empties the prefix cache; true if no running request held a part of it.
    pub fn forget_all(&mut self) -> bool {
        self.kv.forget_all()
    }

    /// Ends leases that only lasted until planning was over, with the commit of
    /// `step`.
    pub fn committed(&mut self, step: u64) {
        self.kv.settle();
        self.kv.committed(step);
    }

    /// What entered and left the prefix cache.
    pub fn take_kv_events(&mut self) -> KvEvents {
        self.kv.take_events()
    }

    /// Starts to fetch what the disk has for a new request.
    fn fetch(&mut self, lease: &Lease, request: &EngineRequest) -> Vec<BlockHash> {
        match request.sampling.prompt_logprobs {
            Some(_) => Vec::new(),
            None => self.kv.fetch(lease, &request.prompt, self.step + 1),
        }
    }

    /// Takes a running sequence off its slot and blocks.
    pub(super) fn stop_running(&mut self, index: usize) {
        let sequence = &mut self.sequences[index];
        self.running.remove(sequence.candidate.rank);
        self.kv.release(&mut sequence.lease);
        self.freed.extend(sequence.slot);
        self.free_slots.extend(sequence.slot);
        sequence.rewind();
    }

    /// The device's memory is gone: everything unfinished waits again.
    pub fn recover(&mut self) {
        for candidate in self.running.drain() {
            let sequence = &mut self.sequences[candidate.index];
            sequence.rewind();
            sequence.lease = sequence.lease.voided();
            self.waiting.push(candidate, true);
        }
        self.kv.reset();
        self.free_slots = slots(self.dims.slots as u32);
        self.freed.clear();
    }

    /// Gives a sequence its next `len` tokens of `step`.
    pub(super) fn schedule(&mut self, index: usize, len: usize, budget: &mut Budget, step: &mut Step) {
        let sequence = &mut self.sequences[index];
        let start = sequence.scheduled;
        let end = start + len;
        let blocks = end.div_ceil(self.block_size);
        if let Some(slot) = sequence.slot {
            for index in sequence.synced..blocks {
                step.deltas.push(Delta { group: 0, slot, index, block: sequence.lease.block(index) });
            }
            if self.kv.has_groups() {
                self.kv.widen(&mut sequence.lease, end, |group, index, block| {
                    step.deltas.push(Delta { group, slot, index, block });
                });
            }
        }
        budget.deltas -= blocks.saturating_sub(sequence.synced);
        budget.tokens -= len;
        sequence.synced = sequence.synced.max(blocks);
        let samples = end == sequence.len();
        sequence.scheduled = end;
        // Output is charged by the block: a policy need not look at every token.
        if end >= sequence.charged + self.block_size {
            self.waiting.charge(sequence.candidate.tenant, end - sequence.charged);
            sequence.charged = end;
        }
        sequence.unread += usize::from(samples);
        step.tokens += len;
        let row = Row {
            sequence: index,
            ticket: sequence.ticket,
            start,
            len,
            samples,
            prompt_logprobs: sequence.owes_prompt_logprobs() && start + 1 < sequence.prompt_len,
        };
        let rows = if len == 1 { &mut step.rows } else { &mut self.wide };
        rows.push(row);
        if let Some(at) = self.kv.cache_full(&mut sequence.lease, &sequence.tokens, end, step.number) {
            sequence.synced = sequence.synced.min(at);
        }
        self.retain(index);
    }

    /// True while a request has not ended.
    pub fn has_work(&self) -> bool {
        !self.sequences.is_empty()
    }

    /// Counters and levels.
    pub fn stats(&self) -> Stats {
        let lost = self.kv.tiers().map_or_else(Lost::default, Tiers::lost);
        Stats {
            running: self.running.len(),
            waiting: self.waiting.len(),
            waiting_deferred: self.counters.waiting_deferred.min(self.waiting.len()),
            blocks_total: self.kv.total(),
            blocks_used: self.kv.leased(),
            blocks_cached: self.kv.cached(),
            blocks_pinned: self.kv.pinned(),
            host_blocks_used: self.kv.tiers().map_or(0, Tiers::host_used),
            host_blocks_total: self.kv.tiers().map_or(0, Tiers::host_slots),
            host_blocks_held: self.kv.tiers().map_or(0, Tiers::host_held),
            host_saves_failed: lost.saves,
            host_fetches_failed: lost.fetches,
            disk_blocks: self.kv.tiers().map_or(0, Tiers::on_disk),
            kv_usage: self.kv.usage(),
            ..self.counters
        }
    }

    /// Checks the laws of memory, slots and queues. Costs O(blocks).
    ///
    /// # Errors
    /// Internal, naming the law that is broken.
    pub fn check_laws(&self) -> Result<()> {
        crate::kv::check::check(&self.kv, self.sequences.iter().map(|(_, s)| &s.lease))?;
        let law = |holds, name| if holds { Ok(()) } else { Err(Error::internal(name)) };
        law(
            self.running.len() + self.free_slots.len() == self.dims.slots,
            "scheduler law broken: a slot is free or holds a running sequence",
        )?;
        law(
            self.running.len() + self.waiting.len() == self.sequences.len(),
            "scheduler law broken: a sequence waits or runs",
        )?;
        for candidate in self.running.iter() {
            let s = &self.sequences[candidate.index];
            law(s.slot.is_some() && s.ticket > 0, "scheduler law broken: who runs has a slot")?;
            law(
                self.kv.serves(&s.lease, s.scheduled) && s.synced <= s.lease.len(),
                "scheduler law broken: scheduled tokens have blocks",
            )?;
            law(
                s.scheduled <= s.len() && s.tokens.len() < s.max_len(self.context_len),
                "scheduler law broken: a running sequence is unfinished",
            )?;
        }
        Ok(())
    }
}

/// All slots, low numbers on top.
fn slots(count: u32) -> Vec<Slot> {
    (0..count).rev().map(Slot).collect()
}
