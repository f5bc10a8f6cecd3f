"""Every option of Octavo, declared once.

`EngineConfig` is what any engine needs; `ServeConfig` adds the HTTP server. Values are what the user asked
for: facts that are found at start (model limits, block counts) never go back into them.
"""

# ruff: noqa: RUF009  (option() is a dataclass field)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.config.option import BOOLEAN, CORES, INTEGER, LENGTH, NUMBER, OBJECT, STRING, STRINGS, option

MODEL = "Model"
MEMORY = "KV memory"
SCHEDULING = "Scheduling"
DEVICE = "Device and processes"
TEXT = "Prompts and sampling"
LOGGING = "Logging"
SERVER = "HTTP server"


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Options of an engine, offline or served."""

    model: str = option(
        "demo",
        STRING,
        MODEL,
        "What to run: a Hugging Face id (Qwen/Qwen3-0.6B), a folder with config.json and safetensors, "
        "a .gguf file, or demo (SmolLM2-135M-Instruct).",
    )
    served_model_name: list[str] = option(
        [],
        STRINGS,
        MODEL,
        "Names that the API answers to; the first is echoed.",
        default_text="the model argument",
    )
    tokenizer: str | None = option(
        None, STRING, MODEL, "Folder, file or id to read the tokenizer from.", default_text="the model"
    )
    revision: str | None = option(None, STRING, MODEL, "Branch, tag or commit on the hub.")
    hf_token: str | None = option(
        None,
        STRING,
        MODEL,
        "Token for gated models on the hub.",
        env=("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
        secret=True,
    )
    download_dir: str | None = option(
        None, STRING, MODEL, "Where models from the hub are kept.", default_text="the Hugging Face cache"
    )
    load_format: str = option(
        "auto",
        STRING,
        MODEL,
        "Format of the weights; dummy fills them with random numbers.",
        choices=("auto", "safetensors", "gguf", "dummy"),
    )
    hf_overrides: dict[str, Any] = option(
        {}, OBJECT, MODEL, "Fields that replace those of the model's config.json."
    )
    dtype: str = option(
        "auto",
        STRING,
        MODEL,
        "Type of weights and activations. auto takes the model's own and leaves quantised weights as they "
        "are; with another type they are decoded when they are loaded.",
        choices=("auto", "half", "float16", "bfloat16", "float", "float32"),
    )
    quantization: str | None = option(
        None,
        STRING,
        MODEL,
        "On a CPU: int8 or int4 rounds the weights of a float model when they are loaded; the other names "
        "ask for a model that is quantised so, and keep it whatever the dtype; see docs/quantization.md.",
        default_text="as the model is",
        choices=("int8", "int4", "gguf", "gptq", "awq", "compressed-tensors"),
    )
    max_model_len: int | None = option(
        None,
        LENGTH,
        MODEL,
        "Longest sequence, prompt and output, in tokens; auto or -1: the longest that fits in memory.",
        default_text="the model's own limit",
        minimum=1,
    )
    seed: int = option(
        0,
        INTEGER,
        TEXT,
        "Where the random numbers of requests without a seed start.",
        minimum=0,
        maximum=2**63 - 1,
    )

    kv_cache_dtype: str = option(
        "auto",
        STRING,
        MEMORY,
        "Type of KV in the cache; auto is the model's. int8_per_token_head takes about half of bfloat16: "
        "bytes with a scale for each token and head.",
        choices=("auto", "float32", "bfloat16", "float16", "int8_per_token_head"),
    )
    gpu_memory_utilization: float = option(
        0.92,
        NUMBER,
        MEMORY,
        "On a GPU: share of its memory for weights, activations and KV.",
        above=0,
        maximum=1,
        aliases=("device_memory_utilization",),
    )
    kv_cache_memory_bytes: int | None = option(
        None, INTEGER, MEMORY, "Exact size of KV memory, on a GPU and on a CPU.", minimum=1
    )
    cpu_kvcache_space: float | None = option(
        None,
        NUMBER,
        MEMORY,
        "On a CPU: size of KV memory in GiB.",
        env=("VLLM_CPU_KVCACHE_SPACE",),
        default_text="a share of free memory, explained at start",
        minimum=0,
    )
    block_size: int = option(16, INTEGER, MEMORY, "Tokens in a KV block.", minimum=1, maximum=1024)
    num_gpu_blocks_override: int | None = option(
        None,
        INTEGER,
        MEMORY,
        "Exact number of KV blocks, for tests; windows get what goes with them.",
        minimum=1,
    )
    enable_prefix_caching: bool = option(True, BOOLEAN, MEMORY, "Reuse the KV of shared prompt prefixes.")
    max_pinned_share: float = option(
        0.5,
        NUMBER,
        MEMORY,
        "Share of KV memory that requests may keep cached for a time (cache_control, cache_ttl_s).",
        minimum=0,
        maximum=1,
    )
    max_cache_ttl: float = option(
        3600.0,
        NUMBER,
        MEMORY,
        "Most seconds that a request may keep its prompt cached; 0 keeps none longer than others.",
        minimum=0,
        maximum=10**9,
    )
    kv_events_config: dict[str, Any] = option(
        {},
        OBJECT,
        MEMORY,
        "Tell routers over ZeroMQ what the prefix cache holds, such as "
        '{"enable_kv_cache_events": true, "endpoint": "tcp://*:5557"}; docs/kv-events.md has the keys.',
    )
    kv_offloading_size: float | None = option(
        None,
        NUMBER,
        MEMORY,
        "Host memory in GiB for KV blocks that the device gives up; preempted requests and later ones with "
        "the same prefix load them instead of computing them again.",
        aliases=("swap_space",),
        default_text="none; 1 with kv_disk_path",
        minimum=0,
    )
    kv_disk_path: str | None = option(
        None,
        STRING,
        MEMORY,
        "Folder to keep KV blocks in, so that a restart finds the prefixes of earlier runs. It holds what "
        "users sent: only this user can read it.",
    )
    kv_disk_size: float = option(
        10.0, NUMBER, MEMORY, "Most GiB in kv_disk_path; the least recently used blocks go.", above=0
    )
    watermark: float = option(
        0.0,
        NUMBER,
        MEMORY,
        "Share of KV blocks kept free when a request is admitted.",
        minimum=0,
        maximum=0.99,
    )

    max_num_batched_tokens: int = option(
        2048, INTEGER, SCHEDULING, "Most tokens computed in one step.", minimum=1, maximum=1 << 20
    )
    max_num_seqs: int = option(
        256, INTEGER, SCHEDULING, "Most sequences in one step.", minimum=1, maximum=1 << 16
    )
    long_prefill_token_threshold: int = option(
        0, INTEGER, SCHEDULING, "Most prompt tokens of one request in one step; 0 is no limit.", minimum=0
    )
    enable_chunked_prefill: bool = option(
        True, BOOLEAN, SCHEDULING, "Split prompts that exceed a step's tokens. Always on."
    )
    scheduling_policy: str = option(
        "fcfs",
        STRING,
        SCHEDULING,
        "Order of waiting requests: first come, first served; priority runs lower numbers first; lpm the "
        "longest cached prefix first; fair gives each tenant the same share of tokens, where a tenant is an "
        "API key if there are several, else the request's user.",
        choices=("fcfs", "priority", "lpm", "fair"),
    )
    tenant_weights: dict[str, Any] = option(
        {},
        OBJECT,
        SCHEDULING,
        'With the fair policy: shares of tenants other than 1, such as {"alice": 2}, by user or API key.',
        secret=True,
    )
    max_num_queued_reqs: int | None = option(
        None,
        INTEGER,
        SCHEDULING,
        "Most unfinished sequences.",
        default_text="no limit",
        minimum=1,
        maximum=1 << 28,
    )
    max_num_queued_tokens: int | None = option(
        None,
        INTEGER,
        SCHEDULING,
        "Most prompt tokens waiting to be computed; more get HTTP 503.",
        default_text="no limit",
        minimum=1,
    )
    request_timeout: float = option(
        0.0,
        NUMBER,
        SCHEDULING,
        "Most seconds from a request's arrival to its end; 0 is no limit. A request may ask for less "
        "(timeout_s). What is there by then is the reply; without a token, or if the prompts that wait will "
        "take longer, it is HTTP 503.",
        minimum=0,
    )
    queue_timeout: float = option(
        0.0,
        NUMBER,
        SCHEDULING,
        "Most seconds that a request waits to be started; 0 is no limit. A request may ask for less "
        "(queue_timeout_s). Later, or if the prompts before it will take longer, it is HTTP 503.",
        minimum=0,
    )
    pipeline_depth: int = option(
        2,
        INTEGER,
        SCHEDULING,
        "Steps in flight: 2 plans a step while another is computed.",
        minimum=1,
        maximum=2,
    )

    device: str = option(
        "auto",
        STRING,
        DEVICE,
        "Where the model runs; auto takes a GPU if there is one.",
        choices=("auto", "cpu", "cuda"),
    )
    max_worker_deaths: int = option(
        3,
        INTEGER,
        DEVICE,
        "Workers in a row that may die soon after their start; then the server gives up.",
        minimum=1,
    )
    cpu_threads: int | None = option(
        None,
        INTEGER,
        DEVICE,
        "Threads that compute on a CPU.",
        default_text="one for each physical core, or as many as cpu_bind lists",
        minimum=1,
        maximum=1 << 12,
    )
    cpu_bind: str | list[int] = option(
        "auto",
        CORES,
        DEVICE,
        "Where those threads stay: auto gives each a physical core, all of one memory node (NUMA) before the "
        "next, and hyperthreads last; a list such as 0-3,8 names the cores; none leaves it to the system. "
        "Servers side by side need lists of their own, or none.",
        env=("VLLM_CPU_OMP_THREADS_BIND",),
    )
    worker: str = option(
        "auto",
        STRING,
        DEVICE,
        "Where the model's process is: its own (process) or the caller's (inline); "
        "auto is process when serving, inline otherwise.",
        choices=("auto", "process", "inline"),
    )

    max_logprobs: int = option(
        20, INTEGER, TEXT, "Most log-probabilities reported for a position.", minimum=0, maximum=1024
    )
    generation_config: str = option(
        "auto",
        STRING,
        TEXT,
        "Where default sampling values come from: auto is the model's file, none (or vllm) is nothing, "
        "else a folder with generation_config.json.",
    )
    override_generation_config: dict[str, Any] = option(
        {}, OBJECT, TEXT, 'Default sampling values on top, such as {"temperature": 0.5}.'
    )
    chat_template: str | None = option(
        None, STRING, TEXT, "Chat template: a file, or the template itself.", default_text="the model's"
    )
    chat_template_content_format: str = option(
        "auto",
        STRING,
        TEXT,
        "How templates see message content: one string, or parts as in the OpenAI API.",
        choices=("auto", "string", "openai"),
    )

    disable_log_stats: bool = option(
        False, BOOLEAN, LOGGING, "No periodic line of statistics and no /metrics."
    )
    metrics_max_tenants: int = option(
        0,
        INTEGER,
        LOGGING,
        "Metrics by tenant (API key if there are several, else the request's user) for so many tenants, "
        "those of --tenant-weights and then who comes first; all others count as one. 0 is none.",
    )
    log_level: str = option(
        "info",
        STRING,
        LOGGING,
        "Least severe messages to show; debug includes tracebacks.",
        choices=("debug", "info", "warning", "error"),
        env=("VLLM_LOGGING_LEVEL",),
    )


@dataclass(frozen=True, kw_only=True)
class ServeConfig(EngineConfig):
    """Options of `octavo serve`: those of the engine and of the HTTP server."""

    max_num_queued_reqs: int | None = option(
        4096,
        INTEGER,
        SCHEDULING,
        "Most unfinished sequences; more get HTTP 503.",
        minimum=1,
        maximum=1 << 28,
    )

    host: str = option("127.0.0.1", STRING, SERVER, "Address to listen on; 0.0.0.0 is all of them.")
    port: int = option(
        8000, INTEGER, SERVER, "Port to listen on; 0 picks a free one.", minimum=0, maximum=65535
    )
    uds: str | None = option(None, STRING, SERVER, "Unix socket to listen on instead of host and port.")
    api_key: list[str] = option(
        [],
        STRINGS,
        SERVER,
        "Keys that requests below /v1 must carry one of.",
        env=("VLLM_API_KEY",),
        default_text="none asked for",
        secret=True,
    )
    allowed_origins: list[str] = option([], STRINGS, SERVER, "Origins allowed to call from a browser (CORS).")
    allowed_methods: list[str] = option(["*"], STRINGS, SERVER, "Methods allowed to those origins.")
    allowed_headers: list[str] = option(["*"], STRINGS, SERVER, "Headers allowed to those origins.")
    allow_credentials: bool = option(False, BOOLEAN, SERVER, "Let those origins send credentials.")
    root_path: str | None = option(
        None, STRING, SERVER, "Path prefix that a proxy in front keeps on requests."
    )
    enable_request_id_headers: bool = option(False, BOOLEAN, SERVER, "Answer with an X-Request-Id header.")
    disable_access_log: bool = option(
        False, BOOLEAN, SERVER, "No log line per request.", aliases=("disable_uvicorn_access_log",)
    )
    sse_keep_alive_interval: int = option(
        0,
        INTEGER,
        SERVER,
        "Seconds between comment lines on idle streams; 0 sends none.",
        minimum=0,
        maximum=3600,
    )
    shutdown_timeout: int = option(
        30, INTEGER, SERVER, "Seconds that running requests get after SIGTERM.", minimum=0, maximum=86400
    )
    health_generate_timeout: float = option(
        20.0, NUMBER, SERVER, "Seconds in which /health_generate must see a token.", above=0, maximum=3600
    )
    response_role: str = option("assistant", STRING, SERVER, "Role of generated chat messages.")
    default_chat_template_kwargs: dict[str, Any] = option(
        {}, OBJECT, SERVER, 'Arguments for the chat template, such as {"enable_thinking": false}.'
    )
    trust_request_chat_template: bool = option(
        False, BOOLEAN, SERVER, "Let requests bring their own chat template."
    )
    return_tokens_as_token_ids: bool = option(
        False, BOOLEAN, SERVER, "Name tokens token_id:N in log-probabilities."
    )
    enable_prompt_tokens_details: bool = option(
        True, BOOLEAN, SERVER, "Report in usage how many prompt tokens came from the prefix cache."
    )
    enable_force_include_usage: bool = option(False, BOOLEAN, SERVER, "End every stream with usage.")
