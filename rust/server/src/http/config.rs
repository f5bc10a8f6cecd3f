//! The server's resolved options.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};

/// Everything the HTTP server must know. There are no defaults: options are
/// declared and resolved in `python/octavo/config`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct ServerConfig {
    /// Address to listen on, or a name for one.
    pub host: String,
    /// Port to listen on; 0 picks a free one.
    pub port: u16,
    /// Unix socket to listen on instead.
    pub uds: Option<PathBuf>,
    /// Names that the API answers to, at least one; the first is echoed.
    pub served_model_names: Vec<String>,
    /// Where the weights came from, for `/v1/models`.
    pub model_root: String,
    /// The program's version, for `/version` and the fingerprint.
    pub version: String,
    /// Keys that guarded paths ask for; empty asks for none.
    pub api_keys: Vec<String>,
    /// Longest request body, bytes.
    pub max_body_bytes: usize,
    /// Most connections at once; more wait to be accepted.
    pub max_connections: usize,
    /// Most prompts in one completion call.
    pub max_prompts: usize,
    /// Which other origins browsers may call from.
    pub cors: CorsConfig,
    /// Prefix that a proxy in front keeps on paths, such as `/llm`.
    pub root_path: Option<String>,
    /// Answer with an `X-Request-Id` header.
    pub enable_request_id_headers: bool,
    /// Log a line a request.
    pub access_log: bool,
    /// Seconds between comment lines on idle streams; 0 sends none.
    pub sse_keep_alive_interval_s: u64,
    /// Seconds that running requests get at shutdown; 0 aborts them at once.
    pub shutdown_timeout_s: u64,
    /// Seconds in which `/health_generate` must see a token.
    pub health_generate_timeout_s: f64,
    /// Role of generated chat messages.
    pub response_role: String,
    /// Variables for the chat template; a request's own come on top.
    pub default_chat_template_kwargs: Map<String, Value>,
    /// The form in which templates get message content.
    pub chat_template_content_format: ContentFormat,
    /// Let requests bring their own chat template.
    pub trust_request_chat_template: bool,
    /// Name tokens `token_id:N` in log-probabilities.
    pub return_tokens_as_token_ids: bool,
    /// Report cached prompt tokens in usage.
    pub enable_prompt_tokens_details: bool,
    /// End every stream with usage.
    pub enable_force_include_usage: bool,
    /// No periodic line of statistics, and no `/metrics`.
    pub disable_log_stats: bool,
}

/// Cross-origin calls; off while `allowed_origins` is empty.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorsConfig {
    /// Origins, or `*` for all.
    pub allowed_origins: Vec<String>,
    /// Methods, or `*`.
    pub allowed_methods: Vec<String>,
    /// Headers, or `*`.
    pub allowed_headers: Vec<String>,
    /// Let browsers send credentials.
    pub allow_credentials: bool,
}

/// The form in which templates get message content.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ContentFormat {
    /// As it was sent, where the template shows it.
    Auto,
    /// One string.
    String,
    /// A list of parts.
    OpenAi,
}

impl From<ContentFormat> for octavo_text::ContentFormat {
    fn from(format: ContentFormat) -> Self {
        match format {
            ContentFormat::Auto => Self::Auto,
            ContentFormat::String => Self::String,
            ContentFormat::OpenAi => Self::OpenAi,
        }
    }
}
