//! Serde types of Octavo's HTTP APIs. No logic.
//!
//! A request body is read as several views of the same JSON: the route's own
//! fields (such as [`ChatFields`]), the sampling fields that both routes share
//! ([`SamplingFields`]) and the fields that this release knows but refuses
//! ([`RefusedFields`]). Each view ignores what it does not declare, so unknown
//! fields are accepted. Every field may be absent or null.
//!
//! Responses borrow their strings, so that a chunk can be written straight
//! into a buffer. Fields that are unset are left out of stream chunks.

pub mod chat;
pub mod completion;
pub mod error;
pub mod logprobs;
pub mod model;
pub mod sampling;
pub mod tokenize;
pub mod usage;

pub use chat::{
    ChatChoice, ChatChunk, ChatChunkChoice, ChatDelta, ChatFields, ChatMessage, ChatReply, Message,
};
pub use completion::{CompletionChoice, CompletionFields, CompletionReply, Prompt};
pub use error::{ErrorBody, ErrorObject};
pub use logprobs::{ChatLogprobs, ChatTokenLogprob, ChatTopLogprob, CompletionLogprobs, PromptLogprob};
pub use model::{ModelCard, ModelList, ModelPermission};
pub use sampling::{RefusedFields, SamplingFields, Stop, StopReason, StreamOptions};
pub use tokenize::{DetokenizeReply, DetokenizeRequest, TokenizeReply, TokenizeRequest};
pub use usage::{PromptTokensDetails, Usage};
