//! What is refused at the door: everything that is known to fail from the
//! request and the limits alone.

use crate::error::{Error, Result};
use crate::ids::Token;
use crate::limits::EngineLimits;
use crate::request::EngineRequest;

/// Checks that the engine can serve a request.
///
/// # Errors
/// Invalid, naming the field, the numbers and what to do.
pub fn check(limits: &EngineLimits, request: &EngineRequest) -> Result<()> {
    check_prompt(limits, request)?;
    check_stop(limits, request)?;
    check_logprobs(limits, request)?;
    check_heap(limits, request)
}

fn check_prompt(limits: &EngineLimits, request: &EngineRequest) -> Result<()> {
    const PARAM: &str = "input_tokens";
    let len = request.prompt.len();
    if len == 0 {
        return Err(Error::invalid(PARAM, "the prompt has no tokens; send at least one"));
    }
    let max_model_len = limits.max_model_len;
    if len >= max_model_len as usize {
        return Err(Error::invalid(
            PARAM,
            format!(
                "the prompt has {len} tokens, and with at least one output token it exceeds the model's \
                 context of {max_model_len} tokens; shorten it to at most {}",
                max_model_len - 1
            ),
        ));
    }
    if len >= limits.context_len() as usize {
        let short = limits.groups.iter().filter(|group| limits.is_short(group)).map(|group| group.num_blocks);
        let (num_blocks, block_size) = (short.fold(limits.num_blocks, u32::min), limits.block_size);
        let needed = len.div_ceil(block_size as usize);
        return Err(Error::invalid(
            PARAM,
            format!(
                "the prompt has {len} tokens and needs {needed} KV blocks of {block_size} tokens, but the device \
                 has {num_blocks}; shorten it to at most {} tokens or give the KV cache more memory",
                limits.context_len() - 1
            ),
        ));
    }
    tokens_in_vocabulary(limits, PARAM, request.prompt.iter().copied())
}

fn check_stop(limits: &EngineLimits, request: &EngineRequest) -> Result<()> {
    let rules = &request.stop;
    if rules.max_tokens == 0 {
        return Err(Error::invalid("max_tokens", "max_tokens is 0; it must be at least 1"));
    }
    if rules.min_tokens > rules.max_tokens {
        return Err(Error::invalid(
            "min_tokens",
            format!(
                "min_tokens is {} and max_tokens {}; min_tokens cannot be more",
                rules.min_tokens, rules.max_tokens
            ),
        ));
    }
    tokens_in_vocabulary(limits, "eos_token_ids", rules.eos_token_ids.iter().copied())?;
    tokens_in_vocabulary(limits, "stop_token_ids", rules.stop_token_ids.iter().copied())?;
    tokens_in_vocabulary(limits, "logit_bias", request.sampling.logit_bias.iter().map(|&(token, _)| token))
}

fn check_logprobs(limits: &EngineLimits, request: &EngineRequest) -> Result<()> {
    let most = limits.max_logprobs;
    let asked =
        [("logprobs", request.sampling.logprobs), ("prompt_logprobs", request.sampling.prompt_logprobs)];
    for (param, count) in asked {
        if let Some(count) = count.filter(|&count| count > most) {
            return Err(Error::invalid(
                param,
                format!("{param} asks for {count} alternatives; the most is {most} (max_logprobs)"),
            ));
        }
    }
    Ok(())
}

/// The lists that travel with a request must fit a frame even when the request
/// is started again at its full length.
fn check_heap(limits: &EngineLimits, request: &EngineRequest) -> Result<()> {
    let rules = &request.stop;
    let room = crate::frame::Dims::new(limits).heap;
    let history = if request.sampling.needs_history() { limits.max_model_len as usize } else { 0 };
    let bias = request.sampling.logit_bias.len();
    let stop = if rules.min_tokens == 0 { 0 } else { rules.eos_token_ids.len() + rules.stop_token_ids.len() };
    if history + stop + 2 * bias > room {
        let (param, count) = if 2 * bias > stop {
            ("logit_bias", bias)
        } else {
            ("stop_token_ids", rules.stop_token_ids.len())
        };
        return Err(Error::invalid(
            param,
            format!(
                "{param} has {count} entries; with the request's other lists they need {} words and a step \
                 carries {room}; send fewer",
                history + stop + 2 * bias
            ),
        ));
    }
    Ok(())
}

fn tokens_in_vocabulary(
    limits: &EngineLimits,
    param: &'static str,
    mut tokens: impl Iterator<Item = Token>,
) -> Result<()> {
    let size = limits.vocab_size;
    match tokens.find(|&token| token >= size) {
        None => Ok(()),
        Some(token) => Err(Error::invalid(
            param,
            format!("{param} holds token id {token}; the vocabulary has {size} tokens, numbered from 0"),
        )),
    }
}
