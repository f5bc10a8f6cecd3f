"""The offline engine: text in, text out, in this process."""

from __future__ import annotations

import itertools
import logging
import os
import random
import sys
import threading
import weakref
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

from octavo._core import Door
from octavo.config import EngineConfig, resolve
from octavo.config.option import UnknownOptionError
from octavo.engine.errors import EngineDeadError
from octavo.engine.gather import Gathered
from octavo.engine.prompts import (
    chat_source,
    conversation_list,
    is_conversation,
    params_list,
    prompt_list,
    prompt_source,
    sampling_options,
)
from octavo.engine.pump import Pump
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.start import StartedEngine, start_engine
from octavo.engine.tokenizer import Tokenizer
from octavo.executor.errors import WorkerError
from octavo.executor.loop import StepLoop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence

    from octavo.boundary import PromptSource, Sample
    from octavo.engine.outputs import RequestOutput
    from octavo.engine.prompts import Messages, Prompt

_log = logging.getLogger("octavo")

_WAIT_S = 0.5
_CLOSE_S = 30.0

Work = tuple["PromptSource", str | None, str | None]
"""What to submit, the prompt's text where it is known, the cache salt."""


class Engine:
    """A model with its engine, in this process; close it, or use it as a context manager, to free its memory.

    `model` and keyword arguments are the options of docs/reference/options.md. Bad values raise ValueError,
    unknown names TypeError, a model that cannot be loaded ModelError; each says what to do.
    """

    def __init__(self, model: str | os.PathLike[str] = "demo", **options: Any) -> None:
        try:
            self.config = resolve(EngineConfig, {"model": model, **options}, source=type(self).__name__)
        except UnknownOptionError as error:
            raise TypeError(str(error)) from None
        if sys.stderr.isatty():
            sys.stderr.write(f"octavo: loading {self.config.model}\n")
        self._process = os.getpid()
        self._closing = threading.Event()
        own_process = self.config.worker == "process"
        started = start_engine(self.config, _log.info, own_process=own_process, leave=self._closing.is_set)
        _log.info("%s", started.facts["kv_explanation"])
        self._started = started
        self._tokenizer = Tokenizer(started.text)
        self._names = itertools.count()
        self._seeds = random.Random(self.config.seed)  # noqa: S311  (seeds of sampling, not secrets)
        self._door = Door(started.client, threads=min(4, os.cpu_count() or 1))
        loop = threading.Thread(target=_run_loop, args=(started,), name="octavo-loop", daemon=True)
        self._pump = Pump(self._door)
        self._finalizer = weakref.finalize(self, _shut_down, started, loop, self._closing, self._pump)
        loop.start()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Abort what runs and free the model. The engine cannot be used afterwards."""
        self._finalizer()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Continue prompts; the outputs come in their order.

        A prompt is text, a list of token ids, or a mapping with `prompt` or `prompt_token_ids` (and maybe
        `cache_salt`). One parameter object goes for all prompts, None takes the model's defaults. A mistake
        in any of them raises ValueError and nothing is generated.
        """
        work = [_prompt_work(prompt) for prompt in prompt_list(prompts)]
        return self._run(work, sampling_params, use_tqdm, priority)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        *,
        priority: Sequence[int] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, or several, through the model's chat template.

        A conversation is a list of mappings with `role` and `content`.
        """
        rendering = {
            "chat_template": chat_template,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "tools": tools,
            "chat_template_kwargs": chat_template_kwargs,
        }
        conversations = conversation_list(messages)
        work: list[Work] = [(chat_source(one, **rendering), None, None) for one in conversations]  # type: ignore[arg-type]
        return self._run(work, sampling_params, use_tqdm, priority)

    async def stream(
        self,
        prompt: Prompt | Messages,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput]:
        """Outputs of one prompt or conversation as they come; closing the generator aborts it.

        `sampling_params.output_kind` says whether each output holds all text so far (the default), what is
        new, or only the end.
        """
        work: Work
        if is_conversation(prompt):
            source = chat_source(
                prompt,
                chat_template=None,
                add_generation_prompt=True,
                continue_final_message=False,
                tools=None,
                chat_template_kwargs=None,
            )
            work = source, None, None
        else:
            work = _prompt_work(prompt)  # type: ignore[arg-type]
        params = sampling_params or self.get_default_sampling_params()
        self._check_open()
        name = request_id or str(next(self._names))
        gathered = Gathered(name, work[1], params)
        options = self._options(params, work[2], priority)
        async with aclosing(self._pump.stream(work[0], options, name)) as updates:
            async for update in updates:
                output = gathered.add(update)
                if output is not None:
                    yield output
        if not gathered.output.finished:
            yield gathered.abort()

    def abort(self, request_id: str) -> None:
        """End the streams of that id: each gives a last output whose choices have finish_reason "abort"."""
        self._pump.abort(request_id)

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer: encode, decode and apply_chat_template."""
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What requests without parameters get: the model's generation config."""
        found = self._started.sampling_defaults
        return SamplingParams(**{name: value for name, value in found.items() if value is not None})

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; False when some are in use and stay."""
        return self._started.handle.reset_prefix_cache()

    def metrics(self) -> list[Sample]:
        """Every metric of docs/metrics.md that an engine has: name, labels, type and value."""
        return self._started.handle.metrics()

    def stats(self) -> dict[str, float]:
        """Counters since the start and present levels of the engine's core, by name."""
        return self._started.handle.stats()

    def _run(
        self,
        work: list[Work],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool | Callable[..., Any],
        priority: Sequence[int] | None,
    ) -> list[RequestOutput]:
        self._check_open()
        params = params_list(sampling_params, len(work), self.get_default_sampling_params())
        if priority is not None and len(priority) != len(work):
            raise ValueError(f"priority has {len(priority)} entries for {len(work)} prompts")
        priorities = priority or [0] * len(work)
        requests = [
            (source, self._options(one, salt, rank))
            for (source, _, salt), one, rank in zip(work, params, priorities, strict=True)
        ]
        session = self._door.session()
        try:
            ids = session.submit(requests, True)
            gathered = {
                id_: Gathered(str(next(self._names)), text, one)
                for id_, (_, text, _), one in zip(ids, work, params, strict=True)
            }
            with _progress(use_tqdm, len(ids)) as advance:
                unfinished = set(ids)
                while unfinished:
                    for update in session.wait(_WAIT_S):
                        gathered[update.id].add(update)
                        if update.last:
                            unfinished.remove(update.id)
                            advance(gathered[update.id].output)
        finally:
            session.close()
        return [gathered[id_].output for id_ in ids]

    def _options(self, params: SamplingParams, salt: str | None, priority: int) -> Any:
        # Seeds are dealt in the order of the calls, so that a script gives the same tokens every time.
        return sampling_options(params, seed=self._seeds.getrandbits(63), priority=priority, cache_salt=salt)

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise EngineDeadError(
                f"this engine belongs to process {self._process}; a forked process must make its own "
                "(or start processes with the method spawn)"
            )
        if not self._finalizer.alive:
            raise EngineDeadError("the engine is closed")
        failure = self._started.handle.failure()
        if failure is not None:
            raise EngineDeadError(failure)


def _prompt_work(prompt: Prompt) -> Work:
    source, salt = prompt_source(prompt)
    text = prompt.get("prompt") if isinstance(prompt, dict) else None
    return source, source if isinstance(source, str) else text, salt


def _run_loop(started: StartedEngine) -> None:
    try:
        StepLoop(started.handle, started.executor, started.config.max_worker_deaths).run()
    except WorkerError as error:
        # Every caller has been told through the handle; this is for the log.
        _log.error("%s", error)
        _log.debug("%s", error.details)


def _shut_down(started: StartedEngine, loop: threading.Thread, closing: threading.Event, pump: Pump) -> None:
    """May run on any thread, for the collector calls it: a thread does not wait for itself."""
    closing.set()
    try:
        pump.close()
        started.handle.stop()
        if loop.is_alive() and loop is not threading.current_thread():
            loop.join(_CLOSE_S)
    finally:
        started.executor.close()


@contextmanager
def _progress(use_tqdm: bool | Callable[..., Any], total: int) -> Iterator[Callable[[RequestOutput], None]]:
    """A progress bar of finished prompts, with tokens per second beside it."""
    if not use_tqdm:
        yield lambda _: None
        return
    from tqdm import tqdm  # noqa: PLC0415  (only where a bar is shown)

    make = use_tqdm if callable(use_tqdm) else tqdm
    with make(total=total, desc="Processed prompts", unit="prompt", dynamic_ncols=True) as bar:
        counts = [0, 0]

        def advance(output: RequestOutput) -> None:
            counts[0] += len(output.prompt_token_ids)
            counts[1] += sum(len(choice.token_ids) for choice in output.outputs)
            elapsed = bar.format_dict["elapsed"] or 1e-9
            rates = f"input {counts[0] / elapsed:.0f} tokens/s, output {counts[1] / elapsed:.0f} tokens/s"
            bar.set_postfix_str(rates, refresh=False)
            bar.update()

        yield advance
