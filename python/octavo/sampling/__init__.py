"""From logits to tokens. A row's outcome depends on that row alone, bit for bit."""

from octavo.sampling.sampler import Logprobs, NewSlot, Sampled, Sampler

__all__ = ["Logprobs", "NewSlot", "Sampled", "Sampler"]
