//! The reply as a stream of chunks.

use octavo_protocol::{CompletionChoice, CompletionLogprobs, CompletionReply};

use super::convert::Call;
use crate::client::{Delta, OutputStream};
use crate::http::error::ApiResult;
use crate::http::routes::finished;
use crate::http::sse::{ChunkWriter, Events};

/// Writes the chunks of one call.
#[derive(Debug)]
pub struct Writer {
    call: Call,
    /// By choice: its first chunk is out; where its next token starts, characters.
    choices: Vec<(bool, usize)>,
    completion_tokens: u32,
}

impl Writer {
    /// A writer at the start of a stream.
    pub fn new(call: Call) -> Self {
        Self { call, choices: Vec::new(), completion_tokens: 0 }
    }
}

impl ChunkWriter for Writer {
    fn delta(&mut self, output: &OutputStream, mut delta: Delta, events: &mut Events) -> ApiResult<()> {
        let Self { call, choices, completion_tokens } = self;
        choices.resize(output.num_choices(), (false, 0));
        let (begun, offset) = &mut choices[delta.index as usize];
        let is_first = !std::mem::replace(begun, true);
        if let Some(finish) = &delta.finish {
            finished(finish)?;
        }
        let mut columns = CompletionLogprobs::default();
        if is_first {
            if call.logprobs {
                columns = call.first_columns(output, delta.index, offset);
            }
            if call.echo_alone {
                delta.text.clear();
            }
            if let Some(prompt) = call.echo_text(output, delta.index) {
                delta.text.insert_str(0, &prompt);
            }
        }
        if call.echo_alone {
            delta.token_ids.clear();
        } else if call.logprobs {
            call.names.completion(output.tokenizer(), &delta.logprobs, offset, &mut columns);
        }
        *completion_tokens += delta.token_ids.len() as u32;
        let finish = delta.finish.as_ref();
        let choice = CompletionChoice {
            index: delta.index,
            text: &delta.text,
            logprobs: call.logprobs.then_some(columns),
            finish_reason: finish.map(|finish| finish.reason.name()),
            stop_reason: finish.and_then(|finish| finish.stop_reason.as_ref()),
            token_ids: call.token_ids.then_some(&delta.token_ids),
            prompt_logprobs: None,
            prompt_token_ids: (call.token_ids && is_first).then(|| &*output.prompt_of(delta.index).token_ids),
        };
        events.push(&CompletionReply {
            id: &call.id,
            object: "text_completion",
            created: call.created,
            model: &call.model,
            choices: &[choice],
            system_fingerprint: (finish.is_some() && !call.usage.at_end).then_some(&*call.fingerprint),
            usage: call.usage.on_chunks.then(|| call.usage.count(output, *completion_tokens)),
        });
        Ok(())
    }

    fn end(&mut self, output: &OutputStream, events: &mut Events) {
        let call = &self.call;
        if call.usage.at_end {
            events.push(&CompletionReply {
                id: &call.id,
                object: "text_completion",
                created: call.created,
                model: &call.model,
                choices: &[],
                system_fingerprint: Some(&call.fingerprint),
                usage: Some(call.usage.count(output, self.completion_tokens)),
            });
        }
    }
}
