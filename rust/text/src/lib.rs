//! Strings to tokens and back, for every door: tokenizers, incremental
//! detokenizing, stop strings and chat templates.
//!
//! All of it is plain CPU work without threads of its own. [`TextModel`] reads a
//! model's files; from it come a shared [`Tokenizer`] and [`ChatTemplate`]. Each
//! stream of output has a [`Detokenizer`] and, if it needs one, a [`StopStrings`].

mod chat;
mod detokenizer;
mod error;
mod model;
mod stop;
mod tokenizer;

pub use chat::{ChatRequest, ChatTemplate, Clock, ContentFormat, prepare_messages};
pub use detokenizer::Detokenizer;
pub use error::{Error, Kind, Result};
pub use model::{Overrides, SamplingDefaults, TextModel};
pub use stop::{StopStrings, Stopped};
pub use tokenizer::Tokenizer;
