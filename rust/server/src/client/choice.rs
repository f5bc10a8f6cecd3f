//! One choice's way from tokens to text.

use octavo_core::{FinishReason as EngineFinish, RequestId, Token, TokenLogprobs};
use octavo_text::{Detokenizer, StopStrings, Tokenizer};

use super::output::{Delta, Finish, FinishReason, StopReason, TIMEOUT};
use super::request::SamplingOptions;

/// Turns one sequence's tokens into deltas.
#[derive(Debug)]
pub(super) struct Choice {
    /// The engine's name for it.
    pub request: RequestId,
    index: u32,
    detokenizer: Option<Detokenizer>,
    stops: Option<StopStrings>,
    include_stop: bool,
    min_tokens: u32,
    tokens: u32,
    delta: Delta,
    finished: bool,
}

impl Choice {
    pub fn new(index: u32, request: RequestId, options: &SamplingOptions, min_tokens: u32) -> Self {
        let stops = &options.stop;
        Self {
            request,
            index,
            detokenizer: options.detokenize.then(|| Detokenizer::after_text(options.skip_special_tokens)),
            stops: (!stops.is_empty()).then(|| StopStrings::new(stops, options.include_stop_str_in_output)),
            include_stop: options.include_stop_str_in_output,
            min_tokens,
            tokens: 0,
            delta: Delta::new(index),
            finished: false,
        }
    }

    /// True after the last token, or a stop string.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// True if a stop string may end the choice.
    pub fn watches_text(&self) -> bool {
        self.stops.is_some()
    }

    /// Tokens so far, those of text that is held back included.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Takes one token; true when a stop string has ended the choice before the
    /// engine did.
    pub fn token(
        &mut self,
        tokenizer: &Tokenizer,
        token: Token,
        logprobs: Option<Box<TokenLogprobs>>,
        finish: Option<EngineFinish>,
    ) -> bool {
        if self.finished {
            return false;
        }
        self.tokens += 1;
        self.delta.token_ids.push(token);
        self.delta.logprobs.extend(logprobs.map(|logprobs| *logprobs));
        let is_stop = matches!(finish, Some(EngineFinish::Eos | EngineFinish::StopToken(_)));
        if (!is_stop || self.include_stop)
            && let Some(detokenizer) = &mut self.detokenizer
        {
            let text = detokenizer.push(tokenizer, token);
            let watched = self.stops.as_mut().filter(|_| self.tokens > self.min_tokens);
            let stop = append(&mut self.delta.text, watched, text);
            if let Some(stop) = stop {
                self.end(Finish { reason: FinishReason::Stop, stop_reason: Some(StopReason::Text(stop)) });
                return finish.is_none();
            }
        }
        if let Some(reason) = finish {
            self.finish(tokenizer, reason);
        }
        false
    }

    /// Ends the choice as the engine says, unless the text that is left ends
    /// with a stop string.
    pub fn finish(&mut self, tokenizer: &Tokenizer, reason: EngineFinish) {
        if self.finished {
            return;
        }
        let mut finish = Finish::from(reason);
        if finish.reason == FinishReason::Timeout && self.tokens > 0 {
            let stop_reason = Some(StopReason::Text(TIMEOUT.to_owned()));
            finish = Finish { reason: FinishReason::Length, stop_reason };
        }
        if let Some(detokenizer) = &mut self.detokenizer {
            let rest = detokenizer.finish(tokenizer);
            if let Some(stop) = append(&mut self.delta.text, self.stops.as_mut(), rest) {
                finish = Finish { reason: FinishReason::Stop, stop_reason: Some(StopReason::Text(stop)) };
            }
        }
        if let Some(stops) = &mut self.stops {
            self.delta.text.push_str(stops.finish());
        }
        self.end(finish);
    }

    fn end(&mut self, finish: Finish) {
        self.finished = true;
        self.delta.finish = Some(finish);
    }

    /// What is new since the last call; `None` while text is held back.
    pub fn take_delta(&mut self) -> Option<Delta> {
        let has_news = match self.detokenizer {
            Some(_) => !self.delta.text.is_empty(),
            None => !self.delta.token_ids.is_empty(),
        };
        let ready = has_news || self.delta.finish.is_some();
        ready.then(|| std::mem::replace(&mut self.delta, Delta::new(self.index)))
    }
}

/// Appends what may go out of `text`; the stop string that it completes, if any.
fn append(out: &mut String, stops: Option<&mut StopStrings>, text: &str) -> Option<String> {
    let Some(stops) = stops else {
        out.push_str(text);
        return None;
    };
    let step = stops.push(text);
    out.push_str(step.text);
    step.stop.map(str::to_owned)
}
