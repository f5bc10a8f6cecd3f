//! The resolved numbers that bound an engine. No defaults here: options are
//! declared and resolved in `python/octavo/config`, facts come from the worker.

use crate::error::{Error, Result};
use crate::kv::Keep;

/// Largest value of a limit, so that sums of a few still fit 32 bits.
const MOST: u32 = 1 << 28;

/// How waiting requests are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// First come, first served.
    Fcfs,
    /// Lower `priority` first; a running request of higher number may be
    /// preempted for a waiting one of lower number.
    Priority,
    /// Longest cached prefix first, but nobody is passed over for ever.
    LongestPrefix,
    /// The tenant for which the fewest tokens were computed first.
    FairShare,
}

/// A layer group beside the spine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// What of a sequence it keeps.
    pub keep: Keep,
    /// Its blocks on the device.
    pub num_blocks: u32,
}

/// Everything the core must know about the machine and the options.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineLimits {
    /// Tokens in a KV block.
    pub block_size: u32,
    /// KV blocks on the device: those of the spine, the layer group that keeps all.
    pub num_blocks: u32,
    /// Layer groups beside the spine, which keep less.
    pub groups: Vec<GroupLimits>,
    /// Longest sequence (prompt and output), tokens.
    pub max_model_len: u32,
    /// Most sequences in one step, and most slots.
    pub max_num_seqs: u32,
    /// Most tokens computed in one step.
    pub max_num_batched_tokens: u32,
    /// Most prompt tokens of one request in one step; 0 is no limit.
    pub long_prefill_token_threshold: u32,
    /// Most requests waiting to be admitted; more are refused as overload.
    pub max_num_queued_reqs: u32,
    /// Most alternatives in log-probabilities.
    pub max_logprobs: u32,
    /// Vocabulary size.
    pub vocab_size: u32,
    /// Share of blocks kept free when a request is admitted, 0 to 1.
    pub watermark: f32,
    /// Reuse the KV of shared prefixes.
    pub enable_prefix_caching: bool,
    /// Most of all blocks that requests may pin, 0 to 1.
    pub max_pinned_share: f32,
    /// Collect what enters and leaves the prefix cache;
    /// see [`Engine::take_kv_events`](crate::Engine::take_kv_events).
    pub kv_events: bool,
    /// Blocks that the host tier holds; 0 is no host tier.
    pub host_blocks: u32,
    /// What loading a block from the host costs, in prompt tokens computed in the
    /// same time. Blocks are loaded where that is less than computing them.
    pub host_load_tokens: f32,
    /// There is a disk tier below the host.
    pub disk_tier: bool,
    /// Order of the waiting queue.
    pub policy: Policy,
    /// Under the fair policy: shares of tenants; others have 1.
    pub tenant_weights: Vec<(u64, f32)>,
    /// Most steps planned but not yet committed: 1 or 2.
    pub pipeline_depth: u32,
}

impl EngineLimits {
    /// The longest sequence that the engine can hold: `max_model_len`, or less
    /// if the device has fewer blocks (the last token needs none). A sequence of
    /// this length ends as at its context's end; doors clamp `max_tokens` to it.
    pub fn context_len(&self) -> u32 {
        let tokens = |blocks: u32| blocks.saturating_mul(self.block_size).saturating_add(1);
        let least = self.groups.iter().filter(|group| self.is_short(group)).map(|group| group.num_blocks);
        self.max_model_len.min(tokens(least.fold(self.num_blocks, u32::min)))
    }

    /// True if a group cannot hold what it keeps of every sequence.
    pub(crate) fn is_short(&self, group: &GroupLimits) -> bool {
        (group.num_blocks as usize) < group.keep.most_blocks(self.block_size as usize)
    }

    /// Checks that the numbers make an engine.
    ///
    /// # Errors
    /// Invalid, naming the field, its value and what it must be.
    pub fn check(&self) -> Result<()> {
        let at_least_one = [
            ("block_size", self.block_size),
            ("num_blocks", self.num_blocks),
            ("max_model_len", self.max_model_len),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_num_queued_reqs", self.max_num_queued_reqs),
            ("vocab_size", self.vocab_size),
        ];
        for (name, value) in at_least_one {
            if value == 0 || value > MOST {
                return Err(Error::invalid(name, format!("{name} is {value}; it must be 1 to {MOST}")));
            }
        }
        if self.max_model_len < 2 {
            return Err(Error::invalid(
                "max_model_len",
                "max_model_len is 1; a prompt token and an output token need 2",
            ));
        }
        if !(0.0..1.0).contains(&self.watermark) {
            let value = self.watermark;
            return Err(Error::invalid(
                "watermark",
                format!("watermark is {value}; it must be at least 0 and below 1"),
            ));
        }
        if !(0.0..=1.0).contains(&self.max_pinned_share) {
            let value = self.max_pinned_share;
            return Err(Error::invalid(
                "max_pinned_share",
                format!("max_pinned_share is {value}; it must be from 0 to 1"),
            ));
        }
        self.check_groups()?;
        self.check_tiers()?;
        if let Some((_, weight)) =
            self.tenant_weights.iter().find(|(_, weight)| !(0.001..=1000.0).contains(weight))
        {
            return Err(Error::invalid(
                "tenant_weights",
                format!("tenant_weights has the weight {weight}; it must be from 0.001 to 1000"),
            ));
        }
        if !(1..=2).contains(&self.pipeline_depth) {
            let value = self.pipeline_depth;
            return Err(Error::invalid(
                "pipeline_depth",
                format!("pipeline_depth is {value}; it must be 1 or 2"),
            ));
        }
        if self.max_logprobs > self.vocab_size {
            return Err(Error::invalid(
                "max_logprobs",
                format!(
                    "max_logprobs is {} and vocab_size {}; it cannot be more",
                    self.max_logprobs, self.vocab_size
                ),
            ));
        }
        Ok(())
    }

    fn check_groups(&self) -> Result<()> {
        for (at, group) in self.groups.iter().enumerate() {
            let GroupLimits { keep, num_blocks } = group;
            let (Keep::Last(size) | Keep::State { every: size } | Keep::Fixed(size)) = *keep;
            if [*num_blocks, size].iter().any(|value| !(1..=MOST).contains(value)) {
                let message = format!(
                    "layer group {} has {num_blocks} blocks and keeps {keep:?}; both must be 1 to {MOST}",
                    at + 1
                );
                return Err(Error::invalid("groups", message));
            }
            if self.is_short(group) && !matches!(keep, Keep::Last(_)) {
                let message = format!(
                    "layer group {} has {num_blocks} blocks and each sequence needs {size}; give the KV cache more memory",
                    at + 1
                );
                return Err(Error::invalid("groups", message));
            }
        }
        if !self.groups.is_empty() && self.host_blocks > 0 {
            return Err(Error::invalid(
                "host_blocks",
                "the host and disk tiers are not for models with several layer groups yet; serve this model without",
            ));
        }
        Ok(())
    }

    fn check_tiers(&self) -> Result<()> {
        let blocks = self.host_blocks;
        if blocks > MOST {
            return Err(Error::invalid(
                "host_blocks",
                format!("host_blocks is {blocks}; the most is {MOST}"),
            ));
        }
        if blocks > 0 && !self.enable_prefix_caching {
            return Err(Error::invalid(
                "host_blocks",
                "a host tier keeps parts of the prefix cache, and enable_prefix_caching is off; turn it on",
            ));
        }
        if blocks == 0 && self.disk_tier {
            let message = "a disk tier lies below a host tier, and host_blocks is 0; give it some";
            return Err(Error::invalid("disk_tier", message));
        }
        if self.host_load_tokens.is_nan() || self.host_load_tokens < 0.0 {
            let value = self.host_load_tokens;
            return Err(Error::invalid(
                "host_load_tokens",
                format!("host_load_tokens is {value}; it must be at least 0"),
            ));
        }
        Ok(())
    }
}
