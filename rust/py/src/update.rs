//! What a session tells Python about its requests.

use octavo_core::{Token, TokenLogprobs};
use octavo_server::client::{Delta, StopReason};
use octavo_text::Tokenizer;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::enter::Failure;

/// Token, natural logarithm of its probability, rank (1 is the most likely), text.
type Alternative = (Token, f32, u32, String);

/// News of one request: its prompt (first of all), more of one choice, or its end.
#[pyclass(frozen, module = "octavo._core")]
#[derive(Debug, Default)]
pub struct Update {
    /// As `Session.submit` returned it.
    #[pyo3(get)]
    id: u64,
    /// The prompt's tokens, in the request's first update alone.
    #[pyo3(get)]
    prompt_token_ids: Option<Vec<Token>>,
    /// The prompt as text, where a chat template made it; with `prompt_token_ids`.
    #[pyo3(get)]
    prompt: Option<String>,
    /// Prompt tokens that came from the prefix cache; in the last update alone.
    #[pyo3(get)]
    cached_tokens: Option<u32>,
    /// Of prompt tokens 1, 2, ...: the token itself, then others, best first; in the last update alone.
    #[pyo3(get)]
    prompt_logprobs: Vec<Vec<Alternative>>,
    /// Which choice the rest is about.
    #[pyo3(get)]
    index: u32,
    /// Text to append.
    #[pyo3(get)]
    text: String,
    /// Tokens to append.
    #[pyo3(get)]
    token_ids: Vec<Token>,
    /// One entry a token, where asked: the token itself, then others, best first.
    #[pyo3(get)]
    logprobs: Vec<Vec<Alternative>>,
    /// "stop", "length", "abort" or "error" once the choice has ended.
    #[pyo3(get)]
    finish_reason: Option<&'static str>,
    stop_reason: Option<StopReason>,
    /// True in the request's last update: nothing follows.
    #[pyo3(get)]
    last: bool,
    failure: Option<Failure>,
}

#[pymethods]
impl Update {
    /// The stop string or stop token that ended the choice.
    #[getter]
    fn stop_reason<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &self.stop_reason {
            Some(StopReason::Token(token)) => token.into_bound_py_any(py).map(Some),
            Some(StopReason::Text(text)) => text.into_bound_py_any(py).map(Some),
            None => Ok(None),
        }
    }

    /// Raise the request's failure, if it has failed.
    fn raise_failure(&self) -> PyResult<()> {
        self.failure.clone().map_or(Ok(()), |failure| Err(failure.into()))
    }
}

impl Update {
    /// The first: what the prompt became.
    pub fn started(id: u64, prompt: Option<String>, prompt_token_ids: Vec<Token>) -> Self {
        Self { id, prompt, prompt_token_ids: Some(prompt_token_ids), ..Self::default() }
    }

    /// The last: all choices have finished.
    pub fn finished(
        id: u64,
        cached_tokens: Option<u32>,
        prompt_logprobs: &[TokenLogprobs],
        tokenizer: &Tokenizer,
    ) -> Self {
        let prompt_logprobs = describe(prompt_logprobs, tokenizer);
        Self { id, cached_tokens, prompt_logprobs, last: true, ..Self::default() }
    }

    /// The last: the request has failed.
    pub fn failed(id: u64, failure: Failure) -> Self {
        Self { id, failure: Some(failure), last: true, ..Self::default() }
    }

    /// The start of what is new of a choice.
    pub fn of_choice(id: u64, index: u32) -> Self {
        Self { id, index, ..Self::default() }
    }

    /// Appends what is new.
    pub fn append(&mut self, delta: Delta, tokenizer: &Tokenizer) {
        self.text.push_str(&delta.text);
        self.token_ids.extend(delta.token_ids);
        self.logprobs.extend(describe(&delta.logprobs, tokenizer));
        if let Some(finish) = delta.finish {
            self.finish_reason = Some(finish.reason.name());
            self.stop_reason = finish.stop_reason;
        }
    }

    /// Whose it is.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// True for the request's last update.
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// True once the choice has ended.
    pub fn ends_choice(&self) -> bool {
        self.finish_reason.is_some()
    }
}

fn describe(positions: &[TokenLogprobs], tokenizer: &Tokenizer) -> Vec<Vec<Alternative>> {
    let text = |token| tokenizer.token_text(token).into_owned();
    let one = |position: &TokenLogprobs| {
        let own = (position.token, position.logprob, position.rank, text(position.token));
        let others = position.top.iter().zip(1..).filter(|((token, _), _)| *token != position.token);
        std::iter::once(own)
            .chain(others.map(|(&(token, logprob), rank)| (token, logprob, rank, text(token))))
            .collect()
    };
    positions.iter().map(one).collect()
}
