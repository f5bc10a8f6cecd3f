//! The reply as a stream of chunks.

use octavo_protocol::{ChatChunk, ChatChunkChoice, ChatDelta, Usage};

use super::convert::Call;
use crate::client::{Delta, OutputStream};
use crate::http::error::ApiResult;
use crate::http::routes::finished;
use crate::http::sse::{ChunkWriter, Events};

/// Writes the chunks of one call.
#[derive(Debug)]
pub struct Writer {
    call: Call,
    begun: bool,
    completion_tokens: u32,
}

impl Writer {
    /// A writer at the start of a stream.
    pub fn new(call: Call) -> Self {
        Self { call, begun: false, completion_tokens: 0 }
    }

    /// A chunk around `choices`.
    fn chunk<'a>(&'a self, choices: &'a [ChatChunkChoice<'a>], usage: Option<Usage>) -> ChatChunk<'a> {
        ChatChunk {
            id: &self.call.id,
            object: "chat.completion.chunk",
            created: self.call.created,
            model: &self.call.model,
            choices,
            system_fingerprint: None,
            usage,
            prompt_token_ids: None,
            prompt_text: None,
        }
    }

    fn running_usage(&self, output: &OutputStream) -> Option<Usage> {
        self.call.usage.on_chunks.then(|| self.call.usage.count(output, self.completion_tokens))
    }

    /// The role of every choice, and the echo where asked.
    fn begin(&self, output: &OutputStream, events: &mut Events) {
        let usage = self.running_usage(output);
        for index in 0..output.num_choices() as u32 {
            let choice = [plain(index, ChatDelta { role: Some(&self.call.role), content: Some("") })];
            let mut chunk = self.chunk(&choice, usage);
            if index == 0 {
                chunk.prompt_token_ids = self.call.token_ids.then(|| &*output.prompts()[0].token_ids);
                chunk.prompt_text = self.call.prompt_text.as_deref();
            }
            events.push(&chunk);
            if let Some(echo) = &self.call.echo {
                let choice = [plain(index, ChatDelta { role: None, content: Some(echo) })];
                events.push(&self.chunk(&choice, usage));
            }
        }
    }
}

/// A choice with a delta and nothing else.
fn plain(index: u32, delta: ChatDelta<'_>) -> ChatChunkChoice<'_> {
    ChatChunkChoice { index, delta, logprobs: None, finish_reason: None, stop_reason: None, token_ids: None }
}

impl ChunkWriter for Writer {
    fn delta(&mut self, output: &OutputStream, delta: Delta, events: &mut Events) -> ApiResult<()> {
        if let Some(finish) = &delta.finish {
            finished(finish)?;
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.begin(output, events);
        }
        self.completion_tokens += delta.token_ids.len() as u32;
        let (call, finish) = (&self.call, delta.finish.as_ref());
        let content = (!delta.text.is_empty()).then_some(&*delta.text);
        let choice = [ChatChunkChoice {
            logprobs: call.logprobs.then(|| call.names.chat(output.tokenizer(), &delta.logprobs)),
            finish_reason: finish.map(|finish| finish.reason.name()),
            stop_reason: finish.and_then(|finish| finish.stop_reason.as_ref()),
            token_ids: call.token_ids.then_some(&delta.token_ids),
            ..plain(delta.index, ChatDelta { role: None, content })
        }];
        let mut chunk = self.chunk(&choice, self.running_usage(output));
        chunk.system_fingerprint = (finish.is_some() && !call.usage.at_end).then_some(&*call.fingerprint);
        events.push(&chunk);
        Ok(())
    }

    fn end(&mut self, output: &OutputStream, events: &mut Events) {
        if self.call.usage.at_end {
            let mut chunk = self.chunk(&[], Some(self.call.usage.count(output, self.completion_tokens)));
            chunk.system_fingerprint = Some(&self.call.fingerprint);
            events.push(&chunk);
        }
    }
}
