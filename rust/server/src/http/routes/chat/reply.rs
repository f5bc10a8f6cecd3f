//! The whole reply.

use axum::http::StatusCode;
use axum::response::Response;
use octavo_core::{Token, TokenLogprobs};
use octavo_protocol::{ChatChoice, ChatMessage, ChatReply};

use super::convert::Call;
use crate::client::{Delta, Finish, OutputStream};
use crate::http::error::{ApiResult, json};
use crate::http::routes::{finished, logprobs};

/// One choice as it grows.
#[derive(Default)]
struct Collected {
    text: String,
    token_ids: Vec<Token>,
    logprobs: Vec<TokenLogprobs>,
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
        choices[delta.index as usize].take_in(delta)?;
    }
    let prompt = &output.prompts()[0];
    let finish = |(choice, index): (Collected, u32)| choice.finish(&output, call, index);
    let reply = ChatReply {
        id: &call.id,
        object: "chat.completion",
        created: call.created,
        model: &call.model,
        choices: choices.into_iter().zip(0..).map(finish).collect(),
        service_tier: None,
        system_fingerprint: &call.fingerprint,
        usage: call.usage.count(&output, output.completion_tokens()),
        prompt_logprobs: call.prompt_logprobs.then(|| logprobs::prompt(output.tokenizer(), &prompt.logprobs)),
        prompt_token_ids: call.token_ids.then_some(&*prompt.token_ids),
        prompt_text: call.prompt_text.as_deref(),
        kv_transfer_params: None,
    };
    Ok(json(StatusCode::OK, &reply))
}

impl Collected {
    fn take_in(&mut self, delta: Delta) -> ApiResult<()> {
        self.text.push_str(&delta.text);
        self.token_ids.extend(delta.token_ids);
        self.logprobs.extend(delta.logprobs);
        if let Some(finish) = delta.finish {
            finished(&finish)?;
            self.finish = Some(finish);
        }
        Ok(())
    }

    fn finish(self, output: &OutputStream, call: &Call, index: u32) -> ChatChoice {
        let mut content = call.echo.clone().unwrap_or_default();
        content.push_str(&self.text);
        let message = ChatMessage {
            role: call.role.clone(),
            content,
            refusal: None,
            annotations: None,
            audio: None,
            function_call: None,
            tool_calls: [],
            reasoning: None,
        };
        ChatChoice {
            index,
            message,
            logprobs: call.logprobs.then(|| call.names.chat(output.tokenizer(), &self.logprobs)),
            finish_reason: self.finish.as_ref().map_or("abort", |finish| finish.reason.name()),
            stop_reason: self.finish.and_then(|finish| finish.stop_reason),
            token_ids: call.token_ids.then_some(self.token_ids),
        }
    }
}
