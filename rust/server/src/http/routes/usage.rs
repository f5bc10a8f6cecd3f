//! Token counts for replies.

use octavo_protocol::{PromptTokensDetails, StreamOptions, Usage};

use crate::client::OutputStream;
use crate::http::config::ServerConfig;
use crate::http::error::{ApiError, ApiResult};

/// How a call reports usage.
#[derive(Clone, Copy, Debug)]
pub struct UsagePlan {
    /// A last chunk has it.
    pub at_end: bool,
    /// Every chunk has it.
    pub on_chunks: bool,
    details: bool,
}

impl UsagePlan {
    /// As the request and the server's options say.
    ///
    /// # Errors
    /// Invalid: options of a stream without one.
    pub fn new(stream: bool, options: Option<StreamOptions>, config: &ServerConfig) -> ApiResult<Self> {
        if options.is_some() && !stream {
            return Err(ApiError::invalid("stream_options", "stream_options needs stream to be true"));
        }
        let options = options.unwrap_or_default();
        let at_end = config.enable_force_include_usage || options.include_usage == Some(true);
        let on_chunks = at_end && options.continuous_usage_stats == Some(true);
        Ok(Self { at_end, on_chunks, details: config.enable_prompt_tokens_details })
    }

    /// The counts so far, with `completion_tokens` given out.
    pub fn count(self, output: &OutputStream, completion_tokens: u32) -> Usage {
        let prompt_tokens = output.prompt_tokens();
        let details = PromptTokensDetails { cached_tokens: output.cached_tokens() };
        Usage {
            prompt_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            completion_tokens,
            prompt_tokens_details: self.details.then_some(details),
        }
    }
}
