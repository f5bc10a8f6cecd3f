//! `POST /tokenize` and `POST /detokenize`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use octavo_protocol::{DetokenizeReply, DetokenizeRequest, TokenizeReply, TokenizeRequest};

use super::conversation::Conversation;
use crate::http::error::{ApiError, ApiResult, json};
use crate::http::request::JsonBody;
use crate::http::state::AppState;

/// Token ids of a text or a conversation.
pub async fn tokenize(State(state): State<AppState>, body: JsonBody) -> ApiResult<Response> {
    let request: TokenizeRequest = body.view()?;
    state.model(request.model.as_deref())?;
    let (text, add_special_tokens) = match (request.prompt, request.messages) {
        (Some(prompt), None) => (prompt, request.add_special_tokens.unwrap_or(true)),
        (None, Some(messages)) => {
            let conversation = Conversation {
                messages,
                tools: request.tools,
                documents: request.documents,
                add_generation_prompt: request.add_generation_prompt,
                continue_final_message: request.continue_final_message,
                template: request.chat_template,
                kwargs: request.chat_template_kwargs,
                reasoning_effort: None,
                cache_control: None,
                bytes: body.len(),
            };
            (conversation.render(&state).await?.text, request.add_special_tokens.unwrap_or(false))
        }
        _ => return Err(ApiError::invalid("prompt", "send either prompt or messages, and not both")),
    };
    let mut lists = state.client.encode(vec![(text, add_special_tokens)], None).await?;
    let tokens = lists.pop().unwrap_or_default();
    let tokenizer = state.client.tokenizer();
    let piece = |token: &u32| tokenizer.piece(*token).unwrap_or_default().to_owned();
    let reply = TokenizeReply {
        count: tokens.len(),
        max_model_len: state.client.engine().limits().max_model_len,
        token_strs: (request.return_token_strs == Some(true)).then(|| tokens.iter().map(piece).collect()),
        tokens,
    };
    Ok(json(StatusCode::OK, &reply))
}

/// The text of token ids, special tokens included.
pub async fn detokenize(State(state): State<AppState>, body: JsonBody) -> ApiResult<Response> {
    let request: DetokenizeRequest = body.view()?;
    state.model(request.model.as_deref())?;
    let Some(tokens) = request.tokens else {
        return Err(ApiError::malformed(
            Some("body.tokens".to_owned()),
            "body.tokens: the field is required",
        ));
    };
    let most = state.client.max_text_tokens();
    if tokens.len() > most {
        let message =
            format!("tokens has {} tokens; at most {most} tokens are turned into text at once", tokens.len());
        return Err(ApiError::invalid("tokens", message));
    }
    let size = state.client.tokenizer().vocab_size();
    if let Some(token) = tokens.iter().find(|token| **token as usize >= size) {
        let message = format!("tokens: token id {token} is not in the vocabulary (0 to {})", size - 1);
        return Err(ApiError::invalid("tokens", message));
    }
    let tokenizer = state.client.tokenizer().clone();
    let prompt = state.client.compute(4 * tokens.len(), move || Ok(tokenizer.decode(&tokens, false))).await?;
    Ok(json(StatusCode::OK, &DetokenizeReply { prompt }))
}
