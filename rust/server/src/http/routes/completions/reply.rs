//! The whole reply.

use axum::http::StatusCode;
use axum::response::Response;
use octavo_core::Token;
use octavo_protocol::{CompletionChoice, CompletionLogprobs, CompletionReply};

use super::convert::Call;
use crate::client::{Delta, Finish, OutputStream};
use crate::http::error::{ApiResult, json};
use crate::http::routes::{finished, logprobs};

/// One choice as it grows.
#[derive(Default)]
struct Collected {
    text: String,
    token_ids: Vec<Token>,
    logprobs: Option<CompletionLogprobs>,
    offset: usize,
    finish: Option<Finish>,
}

/// Waits for all choices and answers with them.
///
/// # Errors
/// The generation failed.
pub async fn whole(mut output: OutputStream, call: &Call) -> ApiResult<Response> {
    let mut choices: Vec<Collected> = (0..output.num_choices()).map(|_| Collected::default()).collect();
    output.wait_for_ends();
    while let Some(delta) = output.next().await {
        let delta = delta?;
        let choice = &mut choices[delta.index as usize];
        choice.take_in(&output, call, delta)?;
    }
    let completion_tokens = if call.echo_alone { 0 } else { output.completion_tokens() };
    let choices: Vec<_> =
        choices.iter_mut().zip(0..).map(|(choice, index)| choice.finish(&output, call, index)).collect();
    let reply = CompletionReply {
        id: &call.id,
        object: "text_completion",
        created: call.created,
        model: &call.model,
        choices: &choices,
        system_fingerprint: Some(&call.fingerprint),
        usage: Some(call.usage.count(&output, completion_tokens)),
    };
    Ok(json(StatusCode::OK, &reply))
}

impl Collected {
    fn take_in(&mut self, output: &OutputStream, call: &Call, delta: Delta) -> ApiResult<()> {
        if call.logprobs && self.logprobs.is_none() {
            self.logprobs = Some(call.first_columns(output, delta.index, &mut self.offset));
        }
        if let Some(columns) = self.logprobs.as_mut().filter(|_| !call.echo_alone) {
            call.names.completion(output.tokenizer(), &delta.logprobs, &mut self.offset, columns);
        }
        self.text.push_str(&delta.text);
        self.token_ids.extend(delta.token_ids);
        if let Some(finish) = delta.finish {
            finished(&finish)?;
            self.finish = Some(finish);
        }
        Ok(())
    }

    fn finish<'a>(&'a mut self, output: &'a OutputStream, call: &Call, index: u32) -> CompletionChoice<'a> {
        if call.echo_alone {
            self.text.clear();
            self.token_ids.clear();
        }
        if let Some(prompt) = call.echo_text(output, index) {
            self.text.insert_str(0, &prompt);
        }
        let prompt = output.prompt_of(index);
        CompletionChoice {
            index,
            text: &self.text,
            logprobs: self.logprobs.take(),
            finish_reason: self.finish.as_ref().map(|finish| finish.reason.name()),
            stop_reason: self.finish.as_ref().and_then(|finish| finish.stop_reason.as_ref()),
            token_ids: call.token_ids.then_some(&self.token_ids),
            prompt_logprobs: call
                .prompt_logprobs
                .then(|| logprobs::prompt(output.tokenizer(), &prompt.logprobs)),
            prompt_token_ids: call.token_ids.then_some(&*prompt.token_ids),
        }
    }
}

impl Call {
    /// The prompt's text, where it is echoed.
    pub fn echo_text(&self, output: &OutputStream, index: u32) -> Option<String> {
        let texts = self.echo.as_ref()?;
        let text = &texts[index as usize / output.n()];
        let decode = || output.tokenizer().decode(&output.prompt_of(index).token_ids, false);
        Some(text.clone().unwrap_or_else(decode))
    }

    /// The columns of a choice before its first token: those of the prompt,
    /// where it is echoed.
    pub fn first_columns(&self, output: &OutputStream, index: u32, offset: &mut usize) -> CompletionLogprobs {
        let mut columns = CompletionLogprobs::default();
        if self.echo.is_some() {
            let prompt = output.prompt_of(index);
            let tokenizer = output.tokenizer();
            self.names.completion_prompt(
                tokenizer,
                &prompt.token_ids,
                &prompt.logprobs,
                offset,
                &mut columns,
            );
        }
        columns
    }
}
