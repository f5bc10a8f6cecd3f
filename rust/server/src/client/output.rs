//! What comes back from the client.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use octavo_core::{EventKind, FinishReason as EngineFinish, Result, Token, TokenLogprobs};
use octavo_text::Tokenizer;

use super::choice::Choice;
use crate::engine::{AbortCause, EngineHandle, Sink};

/// What is new of one choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Which choice: prompt index times n plus the choice of that prompt.
    pub index: u32,
    /// Text to append; empty only with `finish`, or without detokenizing.
    pub text: String,
    /// New tokens, a stop token included. Those of text that is held back come
    /// with the text.
    pub token_ids: Vec<Token>,
    /// One entry a token, where asked.
    pub logprobs: Vec<TokenLogprobs>,
    /// Set on the choice's last delta.
    pub finish: Option<Finish>,
}

impl Delta {
    pub(super) fn new(index: u32) -> Self {
        Self { index, ..Self::default() }
    }
}

/// How a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// The stop string or the request's own stop token that ended it.
    pub stop_reason: Option<StopReason>,
}

/// Why a choice ended, in the API's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// End-of-sequence, a stop token or a stop string.
    Stop,
    /// `max_tokens` or the context is used up.
    Length,
    /// The server has stopped.
    Abort,
    /// Its time was over before its first token. With tokens it ends as
    /// [`Self::Length`], for output that was cut off is what callers know how to
    /// handle, and the stop reason is [`TIMEOUT`].
    Timeout,
    /// The device could not compute it.
    Error,
}

impl FinishReason {
    /// The API's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}

pub use octavo_protocol::StopReason;

/// The stop reason of output that a deadline cut off.
pub const TIMEOUT: &str = "timeout";

impl From<EngineFinish> for Finish {
    fn from(reason: EngineFinish) -> Self {
        let (reason, stop_reason) = match reason {
            EngineFinish::Eos => (FinishReason::Stop, None),
            EngineFinish::StopToken(token) => (FinishReason::Stop, Some(StopReason::Token(token))),
            EngineFinish::Length => (FinishReason::Length, None),
            EngineFinish::Abort => (FinishReason::Abort, None),
            EngineFinish::Timeout => (FinishReason::Timeout, None),
            EngineFinish::Error => (FinishReason::Error, None),
        };
        Self { reason, stop_reason }
    }
}

/// One prompt of a call, as it was computed.
#[derive(Debug)]
pub struct PromptInfo {
    /// Its tokens.
    pub token_ids: Arc<[Token]>,
    /// How many of them came from the prefix cache, once it is known.
    pub cached_tokens: Option<u32>,
    /// Log-probabilities of tokens 1, 2, ... where asked; complete when the
    /// first delta of any of its choices comes.
    pub logprobs: Vec<TokenLogprobs>,
}

/// The deltas of one call, until all its choices have finished. Dropping it
/// aborts what is unfinished and frees its memory.
#[derive(Debug)]
pub struct OutputStream {
    engine: EngineHandle,
    tokenizer: Arc<Tokenizer>,
    sink: Arc<Sink>,
    prompts: Vec<PromptInfo>,
    choices: Vec<Choice>,
    /// Kept for its memory.
    events: Vec<(u32, EventKind)>,
    ready: VecDeque<Delta>,
    unfinished: usize,
}

impl OutputStream {
    pub(super) fn new(
        engine: EngineHandle,
        tokenizer: Arc<Tokenizer>,
        sink: Arc<Sink>,
        prompts: Vec<PromptInfo>,
        choices: Vec<Choice>,
    ) -> Self {
        let unfinished = choices.len();
        Self {
            engine,
            tokenizer,
            sink,
            prompts,
            choices,
            events: Vec::new(),
            ready: VecDeque::new(),
            unfinished,
        }
    }

    /// The prompts, in the order of the request.
    pub fn prompts(&self) -> &[PromptInfo] {
        &self.prompts
    }

    /// The prompt that choice `index` continues.
    pub fn prompt_of(&self, index: u32) -> &PromptInfo {
        &self.prompts[index as usize / self.n()]
    }

    /// Choices of all prompts together.
    pub fn num_choices(&self) -> usize {
        self.choices.len()
    }

    /// Choices a prompt.
    pub fn n(&self) -> usize {
        self.choices.len() / self.prompts.len()
    }

    /// Prompt tokens of all prompts.
    pub fn prompt_tokens(&self) -> u32 {
        self.prompts.iter().map(|prompt| prompt.token_ids.len() as u32).sum()
    }

    /// Prompt tokens of all prompts that came from the prefix cache.
    pub fn cached_tokens(&self) -> u32 {
        self.prompts.iter().filter_map(|prompt| prompt.cached_tokens).sum()
    }

    /// Output tokens of all choices so far.
    pub fn completion_tokens(&self) -> u32 {
        self.choices.iter().map(Choice::tokens).sum()
    }

    /// The tokenizer that made the text.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// For readers that use nothing before its end: deltas come once a choice
    /// has ended, with few wake-ups, unless stop strings must be watched for.
    pub fn wait_for_ends(&mut self) {
        if !self.choices.iter().any(Choice::watches_text) {
            self.sink.wait_for_ends();
        }
    }

    /// The next delta, in no order among choices; `None` at the end.
    ///
    /// # Errors
    /// The engine has failed. Nothing comes after it.
    pub async fn next(&mut self) -> Option<Result<Delta>> {
        poll_fn(|cx| self.poll_delta(cx)).await
    }

    /// [`Self::next`] for those who poll.
    pub fn poll_delta(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Delta>>> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(delta)));
            }
            if self.unfinished == 0 {
                return Poll::Ready(None);
            }
            let mut events = std::mem::take(&mut self.events);
            match self.sink.poll_events(cx, &mut events) {
                Poll::Pending => {
                    self.events = events;
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => {
                    self.unfinished = 0;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(Ok(())) => {
                    self.digest(&mut events);
                    self.events = events;
                }
            }
        }
    }

    /// Takes events in and puts what they make into `ready`, one delta a choice.
    fn digest(&mut self, events: &mut Vec<(u32, EventKind)>) {
        if self.choices.len() == 1 {
            for (index, kind) in events.drain(..) {
                self.take_in(index as usize, kind);
            }
            self.make_ready(0);
            return;
        }
        let mut touched: Vec<usize> = Vec::new();
        for (index, kind) in events.drain(..) {
            touched.push(index as usize);
            self.take_in(index as usize, kind);
        }
        touched.sort_unstable();
        touched.dedup();
        for index in touched {
            self.make_ready(index);
        }
    }

    fn take_in(&mut self, index: usize, kind: EventKind) {
        let prompt = index / self.n();
        let choice = &mut self.choices[index];
        match kind {
            EventKind::Started { cached } => {
                // Of several choices the first to start says what was cached before the call.
                self.prompts[prompt].cached_tokens.get_or_insert(cached.total());
            }
            EventKind::PromptLogprobs { start, entries } => {
                // Each choice of a prompt reports them, and again after a preemption.
                let known = &mut self.prompts[prompt].logprobs;
                let repeated = (known.len() + 1).saturating_sub(start as usize);
                known.extend(entries.into_iter().skip(repeated));
            }
            EventKind::Token { token, logprobs, finish } => {
                if choice.token(&self.tokenizer, token, logprobs, finish) {
                    self.engine.abort([choice.request], AbortCause::StopString);
                }
            }
            EventKind::Finished { reason } => choice.finish(&self.tokenizer, reason),
        }
    }

    fn make_ready(&mut self, index: usize) {
        if let Some(delta) = self.choices[index].take_delta() {
            self.unfinished -= usize::from(delta.finish.is_some());
            self.ready.push_back(delta);
        }
    }
}

impl futures_core::Stream for OutputStream {
    type Item = Result<Delta>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_delta(cx)
    }
}

impl Drop for OutputStream {
    fn drop(&mut self) {
        let unfinished = self.choices.iter().filter(|choice| !choice.is_finished());
        let mut requests = unfinished.map(|choice| choice.request).peekable();
        if requests.peek().is_some() {
            self.engine.abort(requests, AbortCause::Cancelled);
        }
    }
}
