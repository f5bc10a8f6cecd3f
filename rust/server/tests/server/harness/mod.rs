//! A whole server in the test's process: the real core, a device without a
//! model, a small real tokenizer and real sockets.

mod device;
mod http;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_core::fake::FakeWorker;
use octavo_core::{EngineLimits, Policy, Stats};
use octavo_server::client::{ClientConfig, SamplingDefaults};
use octavo_server::engine::QueueLimits;
use octavo_server::http::config::{ContentFormat, CorsConfig};
use octavo_server::metrics::{Metrics, MetricsConfig};
use octavo_server::{Client, EngineHandle, ServerConfig, ServerHandle, bind, serve};
use octavo_text::{ChatTemplate, Tokenizer};
use serde_json::{Map, Value, json};

pub use device::{Device, Gate};
pub use http::{Reply, connect, get, post, request, send};

/// Longest wait for a state that a test expects.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The end-of-sequence token.
pub const EOS: u32 = 97;

const TEMPLATE: &str = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}\
{% if tools %}tools:{{ tools | length }}\n{% endif %}{% if style is defined %}style:{{ style }}\n{% endif %}\
{% if add_generation_prompt %}<|start|>assistant\n{% endif %}";

/// What a test may change before the server starts.
pub struct Setup {
    pub limits: EngineLimits,
    pub queue: QueueLimits,
    pub client: ClientConfig,
    pub server: ServerConfig,
    pub metrics: MetricsConfig,
    /// A token that makes a row's values not finite.
    pub poison: Option<u32>,
    /// The device does constant work a token, and each step takes this long.
    pub pace: Option<Duration>,
    pub template: Option<&'static str>,
    pub handle_signals: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            limits: limits(),
            queue: QueueLimits { max_requests: 1000, max_prompt_tokens: None },
            client: client_config(),
            server: server_config(),
            metrics: MetricsConfig {
                model: "tiny".to_owned(),
                block_bytes: 1000,
                cache_config: [("cache_dtype".to_owned(), "none".to_owned())].into(),
                max_tenants: 0,
            },
            poison: None,
            pace: None,
            template: Some(TEMPLATE),
            handle_signals: false,
        }
    }
}

/// A running server. Dropping it stops everything.
pub struct Server {
    pub engine: EngineHandle,
    pub gate: Gate,
    pub port: u16,
    pub http: ServerHandle,
    _device: Device,
}

impl Setup {
    pub fn start(self) -> Server {
        let listener = bind(&self.server).unwrap();
        let (engine, client, device) = self.engine();
        let http = serve(listener, client, self.server, 2, self.handle_signals).unwrap();
        Server { engine, gate: device.gate(), port: http.port(), http, _device: device }
    }

    fn worker(&self) -> FakeWorker {
        let mut worker = FakeWorker::new(&self.limits);
        if let Some(token) = self.poison {
            worker = worker.with_poison(token);
        }
        if self.pace.is_some() { worker.with_shallow_reads() } else { worker }
    }

    /// The engine with its device and a client, without HTTP.
    pub fn engine(&self) -> (EngineHandle, Client, Device) {
        let metrics = Arc::new(Metrics::new(&self.metrics, &self.limits).unwrap());
        let engine = EngineHandle::new(self.limits.clone(), self.queue, metrics).unwrap();
        let device = Device::start(engine.clone(), self.worker(), self.pace);
        let tokenizer = Arc::new(tokenizer());
        let template =
            self.template.map(|source| Arc::new(ChatTemplate::new(source, BTreeMap::new()).unwrap()));
        let client = Client::new(engine.clone(), tokenizer, template, self.client.clone());
        (engine, client, device)
    }
}

impl Server {
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Waits until no request is left anywhere and no block is leased.
    pub fn wait_until_empty(&self) {
        wait_for("no request and no leased block", || {
            let stats = self.stats();
            self.engine.in_flight().requests == 0 && stats.running + stats.waiting + stats.blocks_used == 0
        });
        assert_eq!(self.engine.in_flight().prompt_tokens, 0);
    }

    pub async fn get(&self, path: &str) -> Reply {
        get(self.port, path).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        post(self.port, path, body).await
    }

    /// The value of a metric with these labels, as they are written; `None` if it is not exported.
    pub async fn metric(&self, series: &str) -> Option<f64> {
        let reply = self.get("/metrics").await;
        let found = reply.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        found.map(|value| value.parse().unwrap())
    }

    /// A completion that must succeed.
    pub async fn complete(&self, body: &Value) -> Value {
        let reply = self.post("/v1/completions", body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }
}

/// Waits for a state that the server reaches by itself.
pub fn wait_for(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

pub fn limits() -> EngineLimits {
    EngineLimits {
        block_size: 4,
        num_blocks: 2048,
        groups: Vec::new(),
        max_model_len: 1000,
        max_num_seqs: 64,
        max_num_batched_tokens: 256,
        long_prefill_token_threshold: 0,
        max_num_queued_reqs: 10_000,
        max_logprobs: 5,
        vocab_size: 98,
        watermark: 0.0,
        enable_prefix_caching: true,
        max_pinned_share: 0.5,
        kv_events: false,
        host_blocks: 0,
        host_load_tokens: 0.0,
        disk_tier: false,
        tenant_weights: Vec::new(),
        policy: Policy::Fcfs,
        pipeline_depth: 2,
    }
}

pub fn client_config() -> ClientConfig {
    ClientConfig {
        sampling_defaults: SamplingDefaults {
            temperature: None,
            top_p: None,
            top_k: None,
            min_p: None,
            repetition_penalty: None,
            max_tokens: None,
        },
        eos_token_ids: vec![EOS],
        seed: None,
        max_n: 64,
        max_stop_strings: 4,
        request_timeout_s: 0.0,
        max_cache_ttl_s: 3600.0,
        queue_timeout_s: 0.0,
    }
}

pub fn server_config() -> ServerConfig {
    ServerConfig {
        host: "127.0.0.1".to_owned(),
        port: 0,
        uds: None,
        served_model_names: vec!["tiny".to_owned(), "other".to_owned()],
        model_root: "/models/tiny".to_owned(),
        version: "1.2.3".to_owned(),
        api_keys: Vec::new(),
        max_body_bytes: 1 << 20,
        max_connections: 1000,
        max_prompts: 16,
        cors: CorsConfig {
            allowed_origins: Vec::new(),
            allowed_methods: vec!["*".to_owned()],
            allowed_headers: vec!["*".to_owned()],
            allow_credentials: false,
        },
        root_path: None,
        enable_request_id_headers: false,
        access_log: true,
        sse_keep_alive_interval_s: 0,
        shutdown_timeout_s: 30,
        health_generate_timeout_s: 20.0,
        response_role: "assistant".to_owned(),
        default_chat_template_kwargs: Map::new(),
        chat_template_content_format: ContentFormat::Auto,
        trust_request_chat_template: false,
        return_tokens_as_token_ids: false,
        enable_prompt_tokens_details: true,
        enable_force_include_usage: false,
        disable_log_stats: false,
    }
}

/// A byte-level tokenizer without merges: newline and printable ASCII are
/// tokens 0 to 95, then `<|start|>`, `<|end|>` and the other bytes.
pub fn tokenizer() -> Tokenizer {
    let spelled = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        // Bytes that do not print are spelled by characters from U+0100 on, in order.
        0..=b' ' => char::from_u32(0x100 + u32::from(byte)).unwrap(),
        0x7f..=0xa0 => char::from_u32(0x100 + 33 + u32::from(byte) - 0x7f).unwrap(),
        0xad => char::from_u32(0x100 + 67).unwrap(),
    };
    let first = std::iter::once(b'\n').chain(b' '..=b'~');
    let others = (0..=255_u8).filter(|byte| *byte != b'\n' && !(b' '..=b'~').contains(byte));
    let mut vocab = Map::new();
    for byte in first {
        vocab.insert(spelled(byte).to_string(), json!(vocab.len()));
    }
    for special in ["<|start|>", "<|end|>"] {
        vocab.insert(special.to_owned(), json!(vocab.len()));
    }
    for byte in others {
        vocab.insert(spelled(byte).to_string(), json!(vocab.len()));
    }
    let special = |content: &str| {
        json!({"id": vocab[content], "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [special("<|start|>"), special("<|end|>")],
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocab, "merges": []},
    });
    Tokenizer::from_json(tokenizer.to_string().as_bytes()).unwrap()
}
