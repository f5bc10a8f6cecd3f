//! Random traces: arrivals, aborts, deaths of the worker, tiny pools, all chunk
//! sizes, both depths and policies. Laws are checked after every operation, the
//! device checks the frames, and each request must get what it gets alone.

mod drive;

use drive::{Driver, Received, limits, sampling};
use octavo_core::{
    Deadlines, EngineLimits, EngineRequest, FinishReason, GroupLimits, Keep, Policy, RequestId, Retain,
    SamplingParams, StopRules, Token,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Add(Box<Arrival>),
    Plan,
    Commit,
    Turns(u8),
    Abort(u8),
    KillWorker,
    ResetCache,
    Transfers(u8),
}

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent features of a request")]
struct Arrival {
    /// Which of a few shared beginnings the prompt has, and how much of it.
    family: u32,
    shared: u32,
    own: u32,
    max_tokens: u32,
    min_tokens: u32,
    stops: bool,
    penalties: bool,
    logprobs: bool,
    prompt_logprobs: bool,
    priority: i32,
    salt: u64,
    retain: Vec<Retain>,
    /// From now on.
    deadlines: Deadlines,
}

impl Arrival {
    fn request(&self, id: u64, vocab_size: u32) -> EngineRequest {
        let shared = (0..self.shared).map(|i| i * 5 + self.family * 3 + i * i % 7);
        let own = (0..self.own).map(|i| i * 3 + id as u32 * 11);
        let prompt: Vec<Token> = shared.chain(own).map(|token| token % vocab_size).collect();
        EngineRequest {
            id: RequestId(id),
            prompt: prompt.into(),
            sampling: SamplingParams {
                temperature: if self.penalties { 1.0 } else { 0.0 },
                frequency_penalty: if self.penalties { 0.5 } else { 0.0 },
                seed: if self.penalties { id } else { 0 },
                logprobs: self.logprobs.then_some(1),
                prompt_logprobs: self.prompt_logprobs.then_some(1),
                logit_bias: if self.penalties { vec![(1, 0.5)] } else { Vec::new() },
                ..sampling()
            },
            stop: StopRules {
                max_tokens: self.max_tokens,
                min_tokens: self.min_tokens.min(self.max_tokens),
                eos_token_ids: if self.stops { vec![0, 1] } else { Vec::new() },
                stop_token_ids: if self.stops { vec![2] } else { Vec::new() },
            },
            priority: self.priority,
            tenant: u64::from(self.family),
            deadlines: self.deadlines,
            cache_salt: self.salt,
            retain: self.retain.clone(),
        }
    }
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let shape = (0..3u32, 0..24u32, 1..12u32, 1..24u32, 0..6u32);
    let kind = (any::<bool>(), prop::bool::weighted(0.2), any::<bool>(), prop::bool::weighted(0.15));
    let rare = |times| prop::option::weighted(0.1, times);
    let times = (rare(0..40u64), rare(0..60u64));
    let retain = prop::collection::btree_map(0..40u32, 0..50u64, 0..3);
    (shape, kind, -2..3i32, prop::bool::weighted(0.1), times, retain).prop_map(
        |(shape, kind, priority, salt, times, retain)| Arrival {
            family: shape.0,
            shared: shape.1,
            own: shape.2,
            max_tokens: shape.3,
            min_tokens: shape.4,
            stops: kind.0,
            penalties: kind.1,
            logprobs: kind.2,
            prompt_logprobs: kind.3,
            priority,
            salt: u64::from(salt),
            retain: retain.into_iter().map(|(tokens, ttl_ns)| Retain { tokens, ttl_ns }).collect(),
            deadlines: Deadlines { start_ns: times.0, end_ns: times.1 },
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => arrival().prop_map(|arrival| Op::Add(Box::new(arrival))),
        5 => Just(Op::Plan),
        5 => Just(Op::Commit),
        4 => (1..5u8).prop_map(Op::Turns),
        2 => any::<u8>().prop_map(Op::Abort),
        1 => Just(Op::KillWorker),
        1 => Just(Op::ResetCache),
        4 => (1..12u8).prop_map(Op::Transfers),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Fcfs),
        Just(Policy::Priority),
        Just(Policy::LongestPrefix),
        Just(Policy::FairShare)
    ]
}

/// Groups that can hold every sequence, if barely.
fn groups(block_size: u32) -> impl Strategy<Value = Vec<GroupLimits>> {
    let window = (1..40u32, 0..12u32).prop_map(move |(window, more)| GroupLimits {
        keep: Keep::Last(window),
        num_blocks: (window - 1).div_ceil(block_size) + 1 + more,
    });
    let state = (1..4u32, 1..12u32)
        .prop_map(|(every, num_blocks)| GroupLimits { keep: Keep::State { every }, num_blocks });
    let fixed = (1..4u32, 0..9u32)
        .prop_map(|(own, more)| GroupLimits { keep: Keep::Fixed(own), num_blocks: own + more });
    prop::collection::vec(prop_oneof![3 => window, 2 => state, 1 => fixed], 0..4)
}

fn engine_limits() -> impl Strategy<Value = EngineLimits> {
    engine_limits_of_one_group().prop_flat_map(|limits| {
        groups(limits.block_size).prop_map(move |groups| {
            // Tiers are for one group.
            let alone = groups.is_empty();
            let host_blocks = if alone { limits.host_blocks } else { 0 };
            EngineLimits { groups, host_blocks, disk_tier: alone && limits.disk_tier, ..limits.clone() }
        })
    })
}

fn engine_limits_of_one_group() -> impl Strategy<Value = EngineLimits> {
    let pinned = prop_oneof![Just(0.0f32), Just(0.3), Just(1.0)];
    let memory = (1..6u32, 12..40u32, any::<bool>(), prop_oneof![Just(0.0f32), Just(0.1)], pinned);
    let step = (1..9u32, 1..40u32, prop_oneof![Just(0u32), 1..8u32]);
    let tiers = (prop_oneof![Just(0u32), 1..6u32, 1..60u32], any::<bool>());
    (memory, tiers, step, policy(), prop_oneof![Just(7u32), Just(40)]).prop_map(
        |(memory, tiers, step, policy, vocab_size)| EngineLimits {
            block_size: memory.0,
            num_blocks: memory.1.max(40 / memory.0),
            enable_prefix_caching: memory.2,
            host_blocks: if memory.2 { tiers.0 } else { 0 },
            disk_tier: memory.2 && tiers.0 > 0 && tiers.1,
            watermark: memory.3,
            max_pinned_share: memory.4,
            max_num_seqs: step.0,
            max_num_batched_tokens: step.1,
            long_prefill_token_threshold: step.2,
            max_model_len: 64,
            vocab_size,
            max_logprobs: 2,
            policy,
            ..limits()
        },
    )
}

/// Runs a trace; returns what each request got that was not aborted.
fn replay(limits: &EngineLimits, ops: &[Op]) -> Vec<(u64, Received)> {
    let mut driver = Driver::new(limits.clone());
    driver.disk.fails_every = 5;
    let mut requests: Vec<EngineRequest> = Vec::new();
    let mut aborted = Vec::new();
    for (now, op) in (0..).zip(ops) {
        driver.expire(now);
        match op {
            Op::Add(arrival) => {
                let mut request = arrival.request(requests.len() as u64, limits.vocab_size);
                let Deadlines { start_ns, end_ns } = &mut request.deadlines;
                [start_ns, end_ns].into_iter().flatten().for_each(|ns| *ns += now);
                requests.push(request.clone());
                driver.add(request);
            }
            Op::Plan => {
                driver.plan();
            }
            Op::Commit => {
                driver.commit();
            }
            Op::Turns(count) => (0..*count).for_each(|_| driver.turn()),
            Op::Abort(which) if !requests.is_empty() => {
                let id = u64::from(*which) % requests.len() as u64;
                driver.abort(id);
                aborted.push(id);
            }
            Op::Abort(_) => {}
            Op::KillWorker => driver.kill_worker(),
            Op::Transfers(count) => (0..*count).for_each(|_| {
                driver.transfer();
            }),
            Op::ResetCache => {
                driver.engine.reset_prefix_cache();
                driver.check();
            }
        }
    }
    drain(&mut driver, &requests);
    for request in &requests {
        let received = &driver.received[&request.id.0];
        if received.finish == Some(FinishReason::Abort) {
            assert!(aborted.contains(&request.id.0));
            let expected = driver.worker.expected(request, limits.context_len() as usize);
            assert!(expected.starts_with(&received.tokens));
        } else if received.finish == Some(FinishReason::Timeout) {
            let Deadlines { start_ns, end_ns } = request.deadlines;
            assert!(end_ns.is_some() || (start_ns.is_some() && received.tokens.is_empty()));
            let expected = driver.worker.expected(request, limits.context_len() as usize);
            assert!(expected.starts_with(&received.tokens));
        } else {
            driver.assert_as_alone(request);
            let owed = if request.sampling.prompt_logprobs.is_some() { request.prompt.len() - 1 } else { 0 };
            assert_eq!(received.prompt_logprobs.len(), owed);
        }
    }
    assert_eq!(driver.ended.len(), requests.len(), "every request ends once");
    // How far a request gets in time is a matter of depth.
    let timed = |id: &u64| requests[*id as usize].deadlines != Deadlines::default();
    driver.received.into_iter().filter(|(id, _)| !aborted.contains(id) && !timed(id)).collect()
}

/// Nobody waits for ever: in every turn the first in rank advances, so the
/// unfinished need no more turns than they have tokens.
fn drain(driver: &mut Driver, requests: &[EngineRequest]) {
    let tokens = |r: &EngineRequest| r.prompt.len() + r.stop.max_tokens as usize;
    let unfinished = requests.iter().filter(|r| driver.received[&r.id.0].finish.is_none());
    let bound = 2 * unfinished.map(tokens).sum::<usize>() + 10;
    let mut turns = 0;
    while driver.engine.has_work() {
        driver.turn();
        while driver.transfer() {}
        turns += 1;
        assert!(turns <= bound, "{turns} turns and not at the end: {:?}", driver.engine.stats());
    }
    while driver.commit() {}
    assert_eq!(driver.engine.stats().blocks_used, 0, "blocks are leased at the end");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2 * ProptestConfig::default().cases, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_gets_what_it_gets_alone(
        limits in engine_limits(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let [one, two] = drive::both_depths(&limits).map(|limits| replay(&limits, &ops));
        for ((id, one), (other, two)) in one.iter().zip(&two) {
            prop_assert_eq!(id, other);
            prop_assert_eq!(
                (&one.tokens, &one.logprobs, &one.prompt_logprobs, one.finish),
                (&two.tokens, &two.logprobs, &two.prompt_logprobs, two.finish)
            );
        }
    }
}
