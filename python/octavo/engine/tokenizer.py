"""The model's tokenizer, under the names that scripts know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.engine.prompts import chat_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo._core import TextModel
    from octavo.engine.prompts import Messages


class Tokenizer:
    """Text to token ids and back."""

    def __init__(self, text: TextModel) -> None:
        self._text = text

    def __len__(self) -> int:
        return self._text.vocab_size

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary."""
        return self._text.vocab_size

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a sequence, if the model has one."""
        return self._text.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a sequence, if the model has one."""
        return self._text.eos_token_id

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`; special tokens in it are recognised."""
        return self._text.encode(text, add_special_tokens)

    def decode(self, token_ids: Sequence[int] | int, skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        return self._text.decode(ids, skip_special_tokens)

    def apply_chat_template(
        self,
        conversation: Messages,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **kwargs: Any,
    ) -> str | list[int]:
        """A conversation as the model sees it: token ids, or text with tokenize=False.

        Further keyword arguments are variables of the template.
        """
        chat = chat_source(
            conversation,
            chat_template=chat_template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            chat_template_kwargs=kwargs,
        )
        text = self._text.render(chat)
        return self._text.encode(text, False) if tokenize else text
