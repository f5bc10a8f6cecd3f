"""`octavo serve`: a model over HTTP."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.cli.console import say, start_log
from octavo.config import ServeConfig
from octavo.config.command_line import Parser, parse_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo._core import Server
    from octavo.engine.start import StartedEngine

_DESCRIPTION = "Serve a model over HTTP, compatible with OpenAI's API. Without MODEL, the demo model."
_MAX_BODY_BYTES = 32 << 20
_MAX_CONNECTIONS = 16384
_OTHER_DESCRIPTORS = 256
_MAX_PROMPTS = 1024
_MAX_HTTP_THREADS = 4
_END_S = 10.0


def run(arguments: Sequence[str]) -> int:
    """Serve until a signal ends it; returns the exit status."""
    config = parse_config(ServeConfig, Parser(prog="octavo serve", description=_DESCRIPTION), arguments)
    # These load the extension, which --help does not need.
    from octavo._core import Listener, start_logging  # noqa: PLC0415
    from octavo.engine.errors import ModelError  # noqa: PLC0415
    from octavo.engine.start import start_engine  # noqa: PLC0415

    start_log(config.log_level)
    start_logging(config.log_level)
    began = time.monotonic()
    ended = _Ended()
    try:
        # First of all, so that a port in use is said before anything is loaded.
        listener = Listener(json.dumps(server_config(config)))
        started = start_engine(config, say, own_process=config.worker != "inline", leave=ended)
    except (ModelError, ValueError) as error:
        say(str(error))
        return 1
    say(started.facts["kv_explanation"])
    # From here on the server takes signals; its handlers would call Python's as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended.server = server = listener.serve(started.client, _http_threads())
    say(f"ready after {time.monotonic() - began:.1f} s")
    say(next_step(config, server.address, server.port, can_chat=started.text.has_chat_template))
    return _run_loop(started, server)


class _Ended:
    """Tells whether the server has ended, for those who wait on its behalf."""

    server: Server | None = None

    def __call__(self) -> bool:
        return self.server is not None and self.server.wait(0)


def _run_loop(started: StartedEngine, server: Server) -> int:
    from octavo.executor.errors import WorkerError  # noqa: PLC0415
    from octavo.executor.loop import StepLoop  # noqa: PLC0415

    status = 0
    try:
        StepLoop(started.handle, started.executor, started.config.max_worker_deaths).run()
    except WorkerError as error:
        say(f"the engine has failed: {error}")
        status = 1
    finally:
        server.shutdown()
        if not server.wait(_END_S):
            server.shutdown()
            server.wait(_END_S)
        started.executor.close()
    return status


def next_step(config: ServeConfig, address: str, port: int, *, can_chat: bool) -> str:
    """The line that says where the server is and what to type next."""
    if config.uds is not None:
        return f"Ready on {address}  -  try: curl --unix-socket {config.uds} http://octavo/v1/models"
    command = f"{_own_command()} {'chat' if can_chat else 'complete'}"
    if port != 8000 or config.host not in ("127.0.0.1", "localhost", "0.0.0.0"):  # noqa: S104
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)  # noqa: S104
        host = f"[{host}]" if ":" in host else host
        command += f" --url http://{host}:{port}{config.root_path or ''}/v1"
    if config.api_key:
        command += " --api-key KEY"
    return f"Ready on {address}  -  try: {command}"


def _own_command() -> str:
    """How to type the octavo command here, whose folder need not be on the PATH."""
    if shutil.which("octavo") is not None:
        return "octavo"
    script = Path(sys.executable).with_name("octavo")
    if not script.is_file():
        return shlex.join([sys.executable, "-m", "octavo"])
    relative = os.path.join(os.curdir if script.parent == Path.cwd() else "", os.path.relpath(script))
    return shlex.quote(min(str(script), relative, key=len))


def server_config(config: ServeConfig) -> dict[str, Any]:
    """The server's resolved options, as the Rust side takes them."""
    from octavo import __version__  # noqa: PLC0415  (reads the installed version)
    from octavo.engine.start import served_names  # noqa: PLC0415

    return {
        "host": config.host,
        "port": config.port,
        "uds": config.uds,
        "served_model_names": served_names(config),
        "model_root": config.model,
        "version": __version__,
        "api_keys": config.api_key,
        "max_body_bytes": _MAX_BODY_BYTES,
        "max_connections": _connections(),
        "max_prompts": _MAX_PROMPTS,
        "cors": {
            "allowed_origins": config.allowed_origins,
            "allowed_methods": config.allowed_methods,
            "allowed_headers": config.allowed_headers,
            "allow_credentials": config.allow_credentials,
        },
        "root_path": config.root_path,
        "enable_request_id_headers": config.enable_request_id_headers,
        "access_log": not config.disable_access_log,
        "sse_keep_alive_interval_s": config.sse_keep_alive_interval,
        "shutdown_timeout_s": config.shutdown_timeout,
        "health_generate_timeout_s": config.health_generate_timeout,
        "response_role": config.response_role,
        "default_chat_template_kwargs": config.default_chat_template_kwargs,
        "chat_template_content_format": config.chat_template_content_format,
        "trust_request_chat_template": config.trust_request_chat_template,
        "return_tokens_as_token_ids": config.return_tokens_as_token_ids,
        "enable_prompt_tokens_details": config.enable_prompt_tokens_details,
        "enable_force_include_usage": config.enable_force_include_usage,
        "disable_log_stats": config.disable_log_stats,
    }


def _connections() -> int:
    """Most connections, within the descriptors that this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_CONNECTIONS + _OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(_OTHER_DESCRIPTORS, soft - _OTHER_DESCRIPTORS)
    return _MAX_CONNECTIONS


def _http_threads() -> int:
    return min(_MAX_HTTP_THREADS, os.cpu_count() or 1)
