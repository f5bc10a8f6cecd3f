"""`LLM`: the offline engine under the signature that scripts written for vLLM use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.engine.engine import Engine
from octavo.engine.metrics import metrics_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from octavo.engine.metrics import Metric
    from octavo.engine.outputs import RequestOutput
    from octavo.engine.prompts import Messages, Prompt
    from octavo.engine.sampling_params import SamplingParams


class LLM(Engine):
    """As `Engine`; arguments that ask for what this release does not do raise ValueError and say so."""

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        super().__init__(model, **options)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: Sequence[int] | None = None,
        **other: Any,
    ) -> list[RequestOutput]:
        """Continue prompts; the outputs come in their order. See `Engine.generate`."""
        _refuse(other, ("lora_request", "tokenization_kwargs", "mm_processor_kwargs"))
        return super().generate(prompts, sampling_params, use_tqdm=use_tqdm, priority=priority)

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
        **other: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or several. See `Engine.chat`."""
        if other.get("chat_template_content_format") == "auto":
            del other["chat_template_content_format"]
        names = ("lora_request", "tokenization_kwargs", "mm_processor_kwargs", "chat_template_content_format")
        _refuse(other, names)
        return super().chat(
            messages,
            sampling_params,
            use_tqdm,
            priority=priority,
            chat_template=chat_template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )

    def get_metrics(self) -> list[Metric]:
        """What `/metrics` of a server exports of the engine, in vLLM's types."""
        return metrics_of(self.metrics())


def _refuse(other: dict[str, Any], known: tuple[str, ...]) -> None:
    for name, value in other.items():
        if name not in known:
            raise TypeError(f"unexpected argument {name!r}")
        if value is not None:
            raise ValueError(f"{name} is not supported in this release")
