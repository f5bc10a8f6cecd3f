//! The one asynchronous way to the engine, for every door.
//!
//! [`Client::generate`] checks options, tokenizes, fans choices out into engine
//! requests and gives back an [`OutputStream`] of text. It knows nothing of HTTP.
//! It must be called within a tokio runtime.

mod choice;
mod output;
mod request;
mod retain;
mod seed;
mod validate;

use std::sync::Arc;
use std::time::Instant;

use octavo_core::engine::check;
use octavo_core::{EngineLimits, EngineRequest, Error, Result, Retain, Token};
use octavo_text::{ChatTemplate, Tokenizer};
use tokio::sync::Semaphore;

pub use self::output::{Delta, Finish, FinishReason, OutputStream, PromptInfo, StopReason};
pub use self::request::{
    CachePrefix, ClientConfig, GenerateRequest, Prompt, SamplingDefaults, SamplingOptions, Side,
};

use self::choice::Choice;
use self::seed::Seeds;
use self::validate::Resolved;
use crate::engine::EngineHandle;

/// Work on longer texts moves to a thread that may block, bytes.
const INLINE_TEXT: usize = 8 * 1024;
/// Where the context is no limit, a text may have this many times its tokens,
const TEXT_CONTEXTS: usize = 4;
/// and this many in any case.
const MIN_TEXT_TOKENS: usize = 1 << 17;

/// The way to one engine. Clones share it.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: EngineHandle,
    tokenizer: Arc<Tokenizer>,
    chat_template: Option<Arc<ChatTemplate>>,
    config: ClientConfig,
    seeds: Seeds,
    /// Bounds the threads that work on long texts at once.
    computing: Semaphore,
}

impl Client {
    /// A client of `engine`. Without `chat_template` there is no chat.
    pub fn new(
        engine: EngineHandle,
        tokenizer: Arc<Tokenizer>,
        chat_template: Option<Arc<ChatTemplate>>,
        config: ClientConfig,
    ) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let seeds = Seeds::new(config.seed);
        let computing = Semaphore::new(threads);
        Self(Arc::new(Inner { engine, tokenizer, chat_template, config, seeds, computing }))
    }

    /// The engine behind it.
    pub fn engine(&self) -> &EngineHandle {
        &self.0.engine
    }

    /// Its resolved options.
    pub fn config(&self) -> &ClientConfig {
        &self.0.config
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.0.tokenizer
    }

    /// The model's chat template, if it has one.
    pub fn chat_template(&self) -> Option<&Arc<ChatTemplate>> {
        self.0.chat_template.as_ref()
    }

    /// A seed for a request without one. With [`ClientConfig::seed`] the k-th
    /// call always gives the same; calls to [`Self::generate`] take one a prompt
    /// without a seed, so a door that wants an order of its own draws them first.
    pub fn fresh_seed(&self) -> u64 {
        self.0.seeds.fresh()
    }

    /// Starts to continue `request`'s prompts.
    ///
    /// # Errors
    /// Invalid, naming the field; overloaded at the queue limits or if the call
    /// cannot be in time; the engine's failure.
    pub async fn generate(&self, request: GenerateRequest) -> Result<OutputStream> {
        let arrived = Instant::now();
        let GenerateRequest { prompts, options } = request;
        let engine = &self.0.engine;
        let limits = engine.limits();
        let resolved = validate::resolve(&options, &self.0.config, limits)?;
        if prompts.is_empty() {
            return Err(Error::invalid("prompt", "there is no prompt; send at least one"));
        }
        engine.check_room((prompts.len() as u32).saturating_mul(resolved.n))?;
        let prefixes = self.tokenize_prefixes(&prompts, &options.cache_prefixes).await?;
        let prompts = self.tokenize_all(prompts, &options).await?;

        let mut requests = Vec::with_capacity(prompts.len() * resolved.n as usize);
        let mut choices = Vec::with_capacity(requests.capacity());
        for tokens in &prompts {
            let retain = retain::retain(tokens, resolved.cache_ttl, &prefixes);
            let seed = resolved.seed.unwrap_or_else(|| self.0.seeds.fresh());
            for choice in 0..resolved.n {
                let request =
                    self.engine_request(tokens, &resolved, &retain, seed::of_choice(seed, choice), arrived);
                if choice == 0 {
                    check(limits, &request)?;
                }
                let index = choices.len() as u32;
                choices.push(Choice::new(index, request.id, &options, request.stop.min_tokens));
                requests.push(request);
            }
        }
        let sink = engine.submit(requests, resolved.n, arrived, resolved.patience)?;
        engine.metrics().called(resolved.n);
        let prompts = prompts.into_iter().map(PromptInfo::new).collect();
        Ok(OutputStream::new(engine.clone(), Arc::clone(&self.0.tokenizer), sink, prompts, choices))
    }

    fn engine_request(
        &self,
        prompt: &Arc<[Token]>,
        resolved: &Resolved,
        retain: &[Retain],
        seed: u64,
        arrived: Instant,
    ) -> EngineRequest {
        let room = self.0.engine.limits().context_len().saturating_sub(prompt.len() as u32).max(1);
        let mut stop = resolved.stop.clone();
        stop.max_tokens = stop.max_tokens.min(room);
        stop.min_tokens = stop.min_tokens.min(stop.max_tokens);
        let mut sampling = resolved.sampling.clone();
        sampling.seed = seed;
        EngineRequest {
            id: self.0.engine.next_id(),
            prompt: Arc::clone(prompt),
            sampling,
            stop,
            priority: resolved.priority,
            tenant: resolved.tenant,
            deadlines: self.0.engine.deadlines(arrived, resolved.patience),
            cache_salt: resolved.cache_salt,
            retain: retain.to_vec(),
        }
    }

    async fn tokenize_all(
        &self,
        prompts: Vec<Prompt>,
        options: &SamplingOptions,
    ) -> Result<Vec<Arc<[Token]>>> {
        let limits = self.0.engine.limits();
        let keep = truncation(options, limits)?;
        // Of a text that will be cut more tokens are needed than fit.
        let most = keep.is_none().then_some(limits.max_model_len as usize - 1);
        let mut token_lists = Vec::with_capacity(prompts.len());
        let mut texts = Vec::new();
        for (index, prompt) in prompts.into_iter().enumerate() {
            match prompt {
                Prompt::Tokens(tokens) => token_lists.push(tokens),
                Prompt::Text { text, add_special_tokens } => {
                    token_lists.push(Vec::new());
                    texts.push((index, text, add_special_tokens));
                }
            }
        }
        let indices: Vec<usize> = texts.iter().map(|(index, ..)| *index).collect();
        let texts = texts.into_iter().map(|(_, text, special)| (text, special)).collect();
        for (index, tokens) in indices.into_iter().zip(self.encode(texts, most).await?) {
            token_lists[index] = tokens;
        }
        let cut = |tokens: Vec<Token>| match (keep, options.truncation_side) {
            (Some(keep), Side::Left) => tokens[tokens.len().saturating_sub(keep)..].into(),
            (Some(keep), Side::Right) => tokens[..tokens.len().min(keep)].into(),
            (None, _) => tokens.into(),
        };
        Ok(token_lists.into_iter().map(cut).collect())
    }

    /// Most tokens that one text or list of tokens may have where the context is no limit.
    pub fn max_text_tokens(&self) -> usize {
        MIN_TEXT_TOKENS.max(TEXT_CONTEXTS * self.0.engine.limits().max_model_len as usize)
    }

    /// Tokens of `texts` (each with whether to add special tokens).
    ///
    /// # Errors
    /// Invalid: a text has more than `max_tokens` tokens, by default [`Self::max_text_tokens`].
    pub async fn encode(
        &self,
        texts: Vec<(String, bool)>,
        max_tokens: Option<usize>,
    ) -> Result<Vec<Vec<Token>>> {
        let tokenizer = Arc::clone(&self.0.tokenizer);
        let from_text = if max_tokens.is_some() { from_text } else { from_unbounded_text };
        let max_tokens = max_tokens.unwrap_or_else(|| self.max_text_tokens());
        let bytes = texts.iter().map(|(text, _)| text.len()).sum();
        let encode = move || {
            let encoded = texts.iter().map(|(text, special)| tokenizer.encode(text, *special, max_tokens));
            encoded.collect::<octavo_text::Result<_>>().map_err(from_text)
        };
        self.compute(bytes, encode).await
    }

    /// Runs `work` on `bytes` bytes of text: here if they are few, else on a
    /// thread that may block, a bounded number at once.
    ///
    /// # Errors
    /// The work's own; internal if it panics.
    pub async fn compute<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if bytes <= INLINE_TEXT {
            return work();
        }
        // The semaphore is never closed.
        let _permit = self.0.computing.acquire().await;
        let task = tokio::task::spawn_blocking(work);
        task.await.unwrap_or_else(|error| Err(Error::internal(format!("work on a text has failed: {error}"))))
    }
}

impl PromptInfo {
    fn new(token_ids: Arc<[Token]>) -> Self {
        Self { token_ids, cached_tokens: None, logprobs: Vec::new() }
    }
}

/// How many prompt tokens to keep, where a limit is asked for.
fn truncation(options: &SamplingOptions, limits: &EngineLimits) -> Result<Option<usize>> {
    let most = i64::from(limits.max_model_len) - 1;
    match options.truncate_prompt_tokens {
        None => Ok(None),
        Some(-1) => Ok(Some(most as usize)),
        Some(keep) if (1..=most).contains(&keep) => Ok(Some(keep as usize)),
        Some(keep) => Err(Error::invalid(
            "truncate_prompt_tokens",
            format!("truncate_prompt_tokens is {keep}; it must be from 1 to {most}, or -1 for {most}"),
        )),
    }
}

/// An error of the text crate about a text that need not fit the context.
fn from_unbounded_text(error: octavo_text::Error) -> Error {
    match error {
        octavo_text::Error::TooLong { max_tokens, .. } => Error::invalid(
            "input_tokens",
            format!(
                "the text has more than {max_tokens} tokens; at most {max_tokens} tokens are tokenized at once"
            ),
        ),
        other => from_text(other),
    }
}

/// An error of the text crate in the core's terms.
pub(crate) fn from_text(error: octavo_text::Error) -> Error {
    use octavo_text::Error as Text;
    match error {
        Text::Invalid { param, message } => Error::invalid(param, message),
        Text::TooLong { tokens, max_tokens } => Error::invalid(
            "input_tokens",
            format!(
                "the prompt has at least {tokens} tokens, and with at least one output token it exceeds the model's \
                 context of {} tokens; shorten it to at most {max_tokens}",
                max_tokens + 1
            ),
        ),
        Text::Refused(_) | Text::Template(_) => Error::invalid("messages", error.to_string()),
        Text::NotFound { .. } | Text::Model { .. } | Text::Internal(_) => Error::internal(error.to_string()),
    }
}
