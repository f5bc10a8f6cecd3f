//! Runs an engine against the fake device and keeps what each request got.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use octavo_core::fake::FakeWorker;
use octavo_core::frame::Buffer;
use octavo_core::{
    BlockHash, CachedTokens, Deadlines, Engine, EngineLimits, EngineRequest, Event, EventKind, FinishReason,
    Policy, RequestId, SamplingParams, StopRules, Token, TokenLogprobs, Transfer,
};

pub fn limits() -> EngineLimits {
    EngineLimits {
        block_size: 4,
        num_blocks: 64,
        groups: Vec::new(),
        max_model_len: 200,
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        long_prefill_token_threshold: 0,
        max_num_queued_reqs: 1000,
        max_logprobs: 3,
        vocab_size: 50,
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

pub fn sampling() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        repetition_penalty: 1.0,
        seed: 0,
        logprobs: None,
        prompt_logprobs: None,
        logit_bias: Vec::new(),
    }
}

pub fn request(id: u64, prompt: impl Into<Arc<[Token]>>, max_tokens: u32) -> EngineRequest {
    EngineRequest {
        id: RequestId(id),
        prompt: prompt.into(),
        sampling: sampling(),
        stop: StopRules { max_tokens, min_tokens: 0, eos_token_ids: Vec::new(), stop_token_ids: Vec::new() },
        priority: 0,
        tenant: 0,
        deadlines: Deadlines::default(),
        cache_salt: 0,
        retain: Vec::new(),
    }
}

/// What a request got so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Received {
    pub cached_tokens: Option<u32>,
    pub cached: CachedTokens,
    pub tokens: Vec<Token>,
    pub logprobs: Vec<TokenLogprobs>,
    pub prompt_logprobs: Vec<TokenLogprobs>,
    pub finish: Option<FinishReason>,
}

/// An engine, its device, the frames in between and what came out.
#[derive(Debug)]
pub struct Driver {
    pub engine: Engine,
    pub worker: FakeWorker,
    frames: VecDeque<Buffer>,
    spare: Vec<Buffer>,
    result: Buffer,
    pub received: BTreeMap<u64, Received>,
    /// Requests in the order in which they ended.
    pub ended: Vec<u64>,
    events: Vec<Event>,
    pub disk: Disk,
}

/// Files by their content's name, and transfers that are not done.
#[derive(Debug, Default)]
pub struct Disk {
    pub files: HashMap<BlockHash, Vec<u64>>,
    pub queue: VecDeque<Transfer>,
    /// Every so many transfers fail.
    pub fails_every: usize,
    done: usize,
}

impl Driver {
    /// A new process that finds what another left on its disk.
    pub fn with_disk(limits: EngineLimits, files: HashMap<BlockHash, Vec<u64>>) -> Self {
        let mut driver = Self::new(limits);
        for &hash in files.keys() {
            driver.engine.set_on_disk(hash, true);
        }
        driver.disk.files = files;
        driver
    }

    pub fn new(limits: EngineLimits) -> Self {
        let worker = FakeWorker::new(&limits);
        let engine = Engine::new(limits).unwrap();
        let result = Buffer::new(engine.layout().result_bytes);
        Self {
            engine,
            worker,
            frames: VecDeque::new(),
            spare: Vec::new(),
            result,
            received: BTreeMap::new(),
            ended: Vec::new(),
            events: Vec::new(),
            disk: Disk::default(),
        }
    }

    /// Does the oldest transfer; false if there is none.
    pub fn transfer(&mut self) -> bool {
        let mut transfers = Vec::new();
        self.engine.take_transfers(&mut transfers);
        self.disk.queue.extend(transfers);
        let Some(transfer) = self.disk.queue.pop_front() else { return false };
        self.disk.done += 1;
        let fails = self.disk.fails_every > 0 && self.disk.done.is_multiple_of(self.disk.fails_every);
        match transfer {
            Transfer::Store { hash, slot } if !fails => {
                self.disk.files.insert(hash, self.worker.host_slot(slot).to_vec());
            }
            Transfer::Fetch { hash, slot } if !fails => {
                self.worker.host_slot(slot).copy_from_slice(&self.disk.files[&hash]);
            }
            // A failed fetch may have written a part.
            Transfer::Fetch { slot, .. } => self.worker.host_slot(slot)[0] = 77,
            Transfer::Store { .. } => {}
            Transfer::Delete { hash } => {
                self.disk.files.remove(&hash);
            }
            Transfer::Clear => self.disk.files.clear(),
        }
        self.engine.transferred(transfer, !fails);
        self.check();
        true
    }

    pub fn add(&mut self, request: EngineRequest) {
        let id = request.id.0;
        self.engine.add(request).unwrap();
        assert!(self.received.insert(id, Received::default()).is_none());
        self.check();
    }

    pub fn abort(&mut self, id: u64) {
        self.engine.abort(RequestId(id), &mut self.events);
        self.take_events();
    }

    pub fn expire(&mut self, now_ns: u64) {
        self.engine.expire(now_ns, &mut self.events);
        self.take_events();
    }

    /// True if a step was planned.
    pub fn plan(&mut self) -> bool {
        let bytes = self.engine.layout().frame_bytes;
        let mut frame = self.spare.pop().unwrap_or_else(|| Buffer::new(bytes));
        let planned = self.engine.plan(frame.bytes_mut()).unwrap().is_some();
        if planned {
            self.frames.push_back(frame);
        } else {
            self.spare.push(frame);
        }
        self.check();
        planned
    }

    /// True if a step was in flight.
    pub fn commit(&mut self) -> bool {
        let Some(frame) = self.frames.pop_front() else { return false };
        self.worker.run(frame.bytes(), self.result.bytes_mut()).unwrap();
        self.engine.commit(self.result.bytes(), &mut self.events).unwrap();
        self.spare.push(frame);
        self.take_events();
        true
    }

    /// One turn of the loop that a server runs.
    pub fn turn(&mut self) {
        while self.plan() {}
        self.commit();
    }

    pub fn run(&mut self) {
        let mut turns = 0;
        while self.engine.has_work() {
            self.turn();
            self.transfer();
            turns += 1;
            assert!(turns < 100_000, "the engine does not come to an end: {:?}", self.engine.stats());
        }
        while self.commit() {}
        assert_eq!(self.engine.stats().blocks_used, 0, "blocks are leased at the end");
    }

    /// The worker dies with all that it holds and what it had to do.
    pub fn kill_worker(&mut self) {
        self.worker.die();
        self.spare.extend(self.frames.drain(..));
        self.engine.recover();
        self.check();
    }

    pub fn check(&self) {
        self.engine.check_laws().unwrap();
    }

    fn take_events(&mut self) {
        for Event { request, kind } in self.events.drain(..) {
            let received = self.received.get_mut(&request.0).expect("an event has a request");
            assert_eq!(received.finish, None, "nothing follows the end");
            match kind {
                EventKind::Started { cached } => {
                    assert_eq!(received.cached_tokens.replace(cached.total()), None, "it starts once");
                    received.cached = cached;
                }
                EventKind::PromptLogprobs { start, entries } => {
                    assert_eq!(start as usize, received.prompt_logprobs.len() + 1);
                    received.prompt_logprobs.extend(entries);
                }
                EventKind::Token { token, logprobs, finish } => {
                    assert!(received.cached_tokens.is_some(), "it starts first");
                    received.tokens.push(token);
                    received.logprobs.extend(logprobs.map(|logprobs| *logprobs));
                    received.finish = finish;
                }
                EventKind::Finished { reason } => received.finish = Some(reason),
            }
            if received.finish.is_some() {
                self.ended.push(request.0);
            }
        }
        self.check();
    }
}

/// Tokens that differ by seed and position.
pub fn prompt(len: u32, seed: u32) -> Vec<Token> {
    (0..len).map(|i| (i * 7 + seed * 13 + i * i % 11) % 50).collect()
}

pub fn both_depths(limits: &EngineLimits) -> [EngineLimits; 2] {
    [1, 2].map(|pipeline_depth| EngineLimits { pipeline_depth, ..limits.clone() })
}

/// Runs the requests together and compares each with its run alone.
pub fn assert_as_alone(limits: &EngineLimits, requests: &[EngineRequest]) -> Driver {
    let mut driver = Driver::new(limits.clone());
    for request in requests {
        driver.add(request.clone());
    }
    driver.run();
    for request in requests {
        driver.assert_as_alone(request);
    }
    driver
}

impl Driver {
    /// Asserts that a finished request got what it would have got alone.
    pub fn assert_as_alone(&self, request: &EngineRequest) {
        let expected = self.worker.expected(request, self.engine.limits().context_len() as usize);
        let received = &self.received[&request.id.0];
        assert_eq!(received.tokens, expected, "request {}", request.id.0);
        let last = expected[expected.len() - 1];
        let may_stop = expected.len() > request.stop.min_tokens as usize;
        let finish = if may_stop && request.stop.eos_token_ids.contains(&last) {
            FinishReason::Eos
        } else if may_stop && request.stop.stop_token_ids.contains(&last) {
            FinishReason::StopToken(last)
        } else {
            FinishReason::Length
        };
        assert_eq!(received.finish, Some(finish), "request {}", request.id.0);
    }
}
