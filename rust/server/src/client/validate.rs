//! Checks options and resolves them to the core's terms.

use std::time::Duration;

use octavo_core::limits::Policy;
use octavo_core::{EngineLimits, Error, Result, SamplingParams, StopRules, Token};
use sha2::{Digest, Sha256};

use super::request::{ClientConfig, SamplingOptions};
use crate::engine::Patience;

/// Below this temperature sampling is greedy.
const GREEDY_BELOW: f32 = 1e-5;
/// Lowest temperature that divides logits without overflow.
const MIN_TEMPERATURE: f32 = 0.01;
/// Largest bias either way.
const MAX_BIAS: f32 = 100.0;
/// Most tokens with a bias, and most stop tokens.
const MAX_TOKEN_LIST: usize = 1024;
/// Longest cache salt, characters.
const MAX_SALT: usize = 128;

/// Options that all choices share, checked.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub n: u32,
    /// Seeds differ by choice, so this one's is 0.
    pub sampling: SamplingParams,
    /// `max_tokens` is not clamped to the context yet.
    pub stop: StopRules,
    pub seed: Option<u64>,
    pub priority: i32,
    pub tenant: u64,
    pub patience: Patience,
    pub cache_salt: u64,
    /// How long the whole prompt is kept in the prefix cache.
    pub cache_ttl: Duration,
}

/// Checks `options` against the API's ranges and this server's limits.
pub(super) fn resolve(
    options: &SamplingOptions,
    config: &ClientConfig,
    limits: &EngineLimits,
) -> Result<Resolved> {
    let sampling = sampling(options, config, limits)?;
    let n = choices(options.n, sampling.temperature == 0.0, config.max_n)?;
    stop_strings(options, config.max_stop_strings)?;
    Ok(Resolved {
        n,
        stop: stop_rules(options, config, limits)?,
        seed: options.seed.filter(|seed| *seed != -1).map(|seed| seed as u64),
        priority: priority(options.priority, limits.policy)?,
        tenant: options.tenant,
        patience: Patience {
            queue: timeout("queue_timeout_s", options.queue_timeout_s, config.queue_timeout_s)?,
            total: timeout("timeout_s", options.timeout_s, config.request_timeout_s)?,
        },
        cache_salt: options.cache_salt.as_deref().map_or(Ok(0), salt)?,
        cache_ttl: cache_ttl(options.cache_ttl_s.unwrap_or(0.0), config.max_cache_ttl_s)?,
        sampling,
    })
}

fn sampling(
    options: &SamplingOptions,
    config: &ClientConfig,
    limits: &EngineLimits,
) -> Result<SamplingParams> {
    let defaults = &config.sampling_defaults;
    let temperature = options.temperature.or(defaults.temperature).unwrap_or(1.0);
    within("temperature", temperature, 0.0, 2.0)?;
    let top_p = options.top_p.or(defaults.top_p).unwrap_or(1.0);
    if !(top_p > 0.0 && top_p <= 1.0) {
        return Err(Error::invalid("top_p", format!("top_p is {top_p}; it must be above 0 and at most 1")));
    }
    let top_k = options.top_k.or(defaults.top_k).unwrap_or(0);
    if top_k < -1 {
        return Err(Error::invalid(
            "top_k",
            format!("top_k is {top_k}; it must be at least 1, or 0 or -1 for off"),
        ));
    }
    let min_p = options.min_p.or(defaults.min_p).unwrap_or(0.0);
    within("min_p", min_p, 0.0, 1.0)?;
    within("presence_penalty", options.presence_penalty, -2.0, 2.0)?;
    within("frequency_penalty", options.frequency_penalty, -2.0, 2.0)?;
    let repetition = options.repetition_penalty.or(defaults.repetition_penalty).unwrap_or(1.0);
    if !(repetition > 0.0 && repetition.is_finite()) {
        let message = format!("repetition_penalty is {repetition}; it must be finite and above 0");
        return Err(Error::invalid("repetition_penalty", message));
    }
    let greedy = temperature < GREEDY_BELOW;
    Ok(SamplingParams {
        temperature: if greedy { 0.0 } else { temperature.max(MIN_TEMPERATURE) },
        top_p: if greedy { 1.0 } else { top_p },
        top_k: if greedy { 0 } else { top_k.clamp(0, i64::from(limits.vocab_size)) as u32 },
        min_p: if greedy { 0.0 } else { min_p },
        presence_penalty: options.presence_penalty,
        frequency_penalty: options.frequency_penalty,
        repetition_penalty: repetition,
        seed: 0,
        logprobs: alternatives("logprobs", options.logprobs, limits)?,
        prompt_logprobs: alternatives("prompt_logprobs", options.prompt_logprobs, limits)?,
        logit_bias: logit_bias(&options.logit_bias, limits)?,
    })
}

fn within(param: &'static str, value: f32, least: f32, most: f32) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(param, format!("{param} is {value}; it must be from {least} to {most}")))
}

fn choices(n: i64, greedy: bool, max_n: u32) -> Result<u32> {
    if !(1..=i64::from(max_n)).contains(&n) {
        return Err(Error::invalid("n", format!("n is {n}; it must be from 1 to {max_n}")));
    }
    if greedy && n > 1 {
        let message = format!("n is {n}, but at temperature 0 all choices are the same; set n to 1");
        return Err(Error::invalid("n", message));
    }
    Ok(n as u32)
}

fn alternatives(param: &'static str, asked: Option<i64>, limits: &EngineLimits) -> Result<Option<u32>> {
    let most = i64::from(limits.max_logprobs);
    match asked {
        None => Ok(None),
        Some(-1) if limits.max_logprobs >= limits.vocab_size => Ok(Some(limits.vocab_size)),
        Some(count) if (0..=most).contains(&count) => Ok(Some(count as u32)),
        Some(count) => Err(Error::invalid(
            param,
            format!("{param} is {count}; this server reports from 0 to {most} (see --max-logprobs)"),
        )),
    }
}

fn token(param: &'static str, id: i64, limits: &EngineLimits) -> Result<Token> {
    match Token::try_from(id) {
        Ok(token) if token < limits.vocab_size => Ok(token),
        _ => {
            let last = limits.vocab_size - 1;
            Err(Error::invalid(
                param,
                format!("{param}: token id {id} is not in the vocabulary (0 to {last})"),
            ))
        }
    }
}

fn logit_bias(bias: &[(i64, f32)], limits: &EngineLimits) -> Result<Vec<(Token, f32)>> {
    if bias.len() > MAX_TOKEN_LIST {
        let message = format!("logit_bias has {} tokens; at most {MAX_TOKEN_LIST} are allowed", bias.len());
        return Err(Error::invalid("logit_bias", message));
    }
    let checked = bias.iter().map(|&(id, bias)| {
        if bias.is_nan() {
            return Err(Error::invalid("logit_bias", format!("logit_bias of token {id} is not a number")));
        }
        Ok((token("logit_bias", id, limits)?, bias.clamp(-MAX_BIAS, MAX_BIAS)))
    });
    checked.collect()
}

fn stop_strings(options: &SamplingOptions, most: usize) -> Result<()> {
    if options.stop.len() > most {
        let message = format!("stop has {} strings; at most {most} are allowed", options.stop.len());
        return Err(Error::invalid("stop", message));
    }
    if options.stop.iter().any(String::is_empty) {
        return Err(Error::invalid("stop", "stop has an empty string; remove it"));
    }
    if !options.stop.is_empty() && !options.detokenize {
        return Err(Error::invalid("stop", "stop needs detokenize to be true"));
    }
    Ok(())
}

fn stop_rules(options: &SamplingOptions, config: &ClientConfig, limits: &EngineLimits) -> Result<StopRules> {
    let asked = options.max_tokens.or(config.sampling_defaults.max_tokens);
    if let Some(max_tokens) = asked
        && max_tokens < 1
    {
        return Err(Error::invalid(
            "max_tokens",
            format!("max_tokens is {max_tokens}; it must be at least 1"),
        ));
    }
    let min_tokens = options.min_tokens;
    if min_tokens < 0 || options.max_tokens.is_some_and(|max_tokens| min_tokens > max_tokens) {
        let message = format!("min_tokens is {min_tokens}; it must be from 0 to max_tokens");
        return Err(Error::invalid("min_tokens", message));
    }
    if options.stop_token_ids.len() > MAX_TOKEN_LIST {
        let count = options.stop_token_ids.len();
        let message = format!("stop_token_ids has {count} ids; at most {MAX_TOKEN_LIST} are allowed");
        return Err(Error::invalid("stop_token_ids", message));
    }
    let checked = options.stop_token_ids.iter().map(|&id| token("stop_token_ids", id, limits));
    let mut stop_token_ids = checked.collect::<Result<Vec<_>>>()?;
    stop_token_ids.sort_unstable();
    stop_token_ids.dedup();
    Ok(StopRules {
        max_tokens: asked.map_or(u32::MAX, |asked| u32::try_from(asked).unwrap_or(u32::MAX)),
        min_tokens: u32::try_from(min_tokens).unwrap_or(u32::MAX),
        eos_token_ids: if options.ignore_eos { Vec::new() } else { config.eos_token_ids.clone() },
        stop_token_ids,
    })
}

/// A request's timeout within the server's `limit_s`, where 0 is none.
fn timeout(param: &'static str, asked_s: Option<f64>, limit_s: f64) -> Result<Option<Duration>> {
    let limit_s = (limit_s > 0.0).then_some(limit_s);
    if let Some(asked_s) = asked_s
        && !(asked_s > 0.0 && asked_s.is_finite())
    {
        let message = format!("{param} is {asked_s}; it must be a number of seconds above 0");
        return Err(Error::invalid(param, message));
    }
    let seconds = asked_s.into_iter().chain(limit_s).reduce(f64::min);
    // More seconds than a duration holds are no limit.
    Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
}

fn cache_ttl(asked_s: f64, most_s: f64) -> Result<Duration> {
    match Duration::try_from_secs_f64(asked_s) {
        Ok(ttl) if asked_s <= most_s => Ok(ttl),
        _ => {
            let message = format!(
                "cache_ttl_s is {asked_s}; it must be a number of seconds from 0 to {most_s} (--max-cache-ttl)"
            );
            Err(Error::invalid("cache_ttl_s", message))
        }
    }
}

fn priority(priority: i64, policy: Policy) -> Result<i32> {
    if priority != 0 && policy != Policy::Priority {
        let message = "priority needs the server to run with --scheduling-policy priority";
        return Err(Error::invalid("priority", message));
    }
    i32::try_from(priority)
        .map_err(|_| Error::invalid("priority", format!("priority is {priority}; it must fit 32 bits")))
}

fn salt(salt: &str) -> Result<u64> {
    let length = salt.chars().count();
    if !(1..=MAX_SALT).contains(&length) || salt.contains(['@', '/', '\\', '\0']) {
        let message = format!("cache_salt must have 1 to {MAX_SALT} characters and none of @ / \\ or NUL");
        return Err(Error::invalid("cache_salt", message));
    }
    let hash: [u8; 32] = Sha256::digest(salt.as_bytes()).into();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    Ok(u64::from_le_bytes(first))
}
