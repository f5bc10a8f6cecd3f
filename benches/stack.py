#!/usr/bin/env python3
"""What the stack costs around the model: start-up, and the share of a step that is not the model's forward.

    python benches/stack.py [--runs N] [--streams N]     (or: make bench)

Prints one table; every figure is a median with its range. The loaded server runs a tiny random model (two
layers, hidden size 64, SmolLM2's vocabulary) with 256 streams at once, driven by `octavo-bench load` on the
same machine. Its forward alone, logits included, is measured in a process of its own with as many rows as the
server's steps had on average, on the same kernels. Server, client and worker share the machine, so the share
is that of a whole system under load; prompts, which take a part of the steps too, count as not forward.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
INPUT_LEN, OUTPUT_LEN = 32, 128
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5,
    "dtype": "float32",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--forward", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.forward:
        print(json.dumps(forward_ms(options.forward, options.streams)))
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(TINY))
        measure(folder, options.runs, options.streams)


def measure(folder: str, runs: int, streams: int) -> None:
    octavo = [sys.executable, "-m", "octavo"]
    report("import octavo, s", repeat(5, lambda: seconds([sys.executable, "-c", "import octavo"])))
    report("octavo --help, s", repeat(5, lambda: seconds([*octavo, "--help"])))
    report("octavo serve demo: ready after, s", repeat(runs, lambda: ready_after(["demo"])))
    forwards, steps, rates, rows = [], [], [], []
    for _ in range(runs):
        step, rate = loaded(folder, streams)
        rows.append(round(rate * step / 1000))
        steps.append(step)
        rates.append(rate)
        command = [sys.executable, __file__, "--forward", folder, "--streams", str(rows[-1])]
        forwards.append(json.loads(subprocess.check_output(command)))
    report(f"tiny model, {streams} streams: output tokens/s", rates)
    report("  rows of a step, mean", [float(count) for count in rows])
    report("  one step of the whole stack, ms", steps)
    report("  the model's forward alone, ms", forwards)
    report(
        "  share of a step that is not forward, %",
        [100 * (1 - f / s) for f, s in zip(forwards, steps, strict=True)],
    )


def repeat(runs: int, measured: Callable[[], float]) -> list[float]:
    return [measured() for _ in range(runs)]


def report(what: str, values: list[float]) -> None:
    print(f"{what:48} {statistics.median(values):10.3f}  [{min(values):.3f} - {max(values):.3f}]", flush=True)


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def ready_after(arguments: list[str]) -> float:
    start = time.perf_counter()
    with server(arguments):
        return time.perf_counter() - start


def loaded(folder: str, streams: int) -> tuple[float, float]:
    """(milliseconds a step, output tokens a second) of a server under load."""
    tokenizer = (
        subprocess.check_output([sys.executable, "-m", "octavo", "pull", "demo"], text=True)
        .strip()
        .splitlines()
    )
    options = [folder, "--tokenizer", tokenizer[-1], "--load-format", "dummy", "--max-num-seqs", str(streams)]
    with server([*options, "--kv-cache-memory-bytes", "1G", "--no-enable-prefix-caching"]) as port:
        before = step_count(port)
        command = ["cargo", "run", "--quiet", "--release", "-p", "octavo-bench", "--", "load"]
        command += ["--port", str(port), "--num-prompts", str(2 * streams), "--concurrency", str(streams)]
        command += [
            "--input-len",
            str(INPUT_LEN),
            "--output-len",
            str(OUTPUT_LEN),
            "--num-warmups",
            "0",
            "--json",
        ]
        found = json.loads(subprocess.check_output(command, cwd=ROOT, stderr=subprocess.DEVNULL))
        count = step_count(port) - before
    return 1000 * found["duration"] / count, found["output_throughput"]


def step_count(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        for line in response.read().decode().splitlines():
            if line.startswith("vllm:iteration_tokens_total_count"):
                return float(line.rsplit(" ", 1)[1])
    raise SystemExit("the server's metrics have no vllm:iteration_tokens_total")


@contextlib.contextmanager
def server(arguments: list[str]) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "octavo", "serve", *arguments, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not answers(port):
            if process.poll() is not None:
                raise SystemExit(f"the server ended: {' '.join(command)}")
            time.sleep(0.01)
        yield port
    finally:
        process.terminate()
        process.wait()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def forward_ms(folder: str, streams: int) -> float:
    """Median milliseconds of a decode step's forward, logits included, halfway through the outputs."""
    import torch  # noqa: PLC0415

    from octavo import ops  # noqa: PLC0415
    from octavo.executor import kv_cache  # noqa: PLC0415
    from octavo.executor.machine import keep_freed_memory  # noqa: PLC0415
    from octavo.layers import Backend, checkpoint_slots, finish_loading  # noqa: PLC0415
    from octavo.loader import fill_dummy  # noqa: PLC0415
    from octavo.models import ModelConfig, create_model  # noqa: PLC0415
    from octavo.ops import AttentionMetadata  # noqa: PLC0415

    keep_freed_memory()
    config = ModelConfig.from_hf(json.loads(Path(folder, "config.json").read_text()))
    device = torch.device("cpu")
    model = create_model(config, Backend(device, torch.float32, ops.select(device)), config.max_position)
    fill_dummy(checkpoint_slots(model), 0, lambda what, done, total: None)
    finish_loading(model)
    context, block = INPUT_LEN + OUTPUT_LEN // 2, 16
    blocks = -(-context // block)
    shape = kv_cache.KVShape.of(config, block, torch.float32)
    caches = kv_cache.allocate(shape, streams * blocks, device)
    tables = torch.arange(streams * blocks, dtype=torch.int32).view(streams, blocks)
    positions = torch.full((streams,), context - 1)
    starts = torch.arange(streams + 1, dtype=torch.int32)
    lens = torch.full((streams,), context, dtype=torch.int32)
    metadata = AttentionMetadata(
        query_start=starts,
        seq_lens=lens,
        block_tables=tables,
        slot_mapping=tables[:, -1].long() * block + (context - 1) % block,
        host_query_start=starts.numpy(),
        host_seq_lens=lens.numpy(),
        num_decode_rows=streams,
        max_query_len=1,
        max_seq_len=context,
    )
    tokens = torch.arange(streams)
    times = []
    with torch.inference_mode():
        for _ in range(60):
            start = time.perf_counter()
            model.logits(model(tokens, positions, [metadata] * len(caches), caches))
            times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[10:])


if __name__ == "__main__":
    main()
