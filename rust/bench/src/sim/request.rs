//! Engine requests of simulations and benches.

use std::sync::Arc;

use octavo_core::{Deadlines, EngineRequest, RequestId, SamplingParams, StopRules, Token};
use rand::Rng;
use rand::rngs::StdRng;

/// Tokens in the vocabulary of benches, and of simulations that ask for no other.
pub const VOCAB_SIZE: u32 = 50_000;

/// A greedy request that ends at `output_len` tokens.
pub fn request(id: u64, prompt: Arc<[Token]>, output_len: u32) -> EngineRequest {
    EngineRequest {
        id: RequestId(id),
        prompt,
        sampling: SamplingParams {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            seed: id,
            logprobs: None,
            prompt_logprobs: None,
            logit_bias: Vec::new(),
        },
        stop: StopRules {
            max_tokens: output_len,
            min_tokens: 0,
            eos_token_ids: Vec::new(),
            stop_token_ids: Vec::new(),
        },
        priority: 0,
        tenant: 0,
        deadlines: Deadlines::default(),
        cache_salt: 0,
        retain: Vec::new(),
    }
}

/// `length` random tokens of a vocabulary.
pub fn tokens(rng: &mut StdRng, length: u32, vocab_size: u32) -> impl Iterator<Item = Token> {
    (0..length).map(move |_| rng.random_range(0..vocab_size))
}
