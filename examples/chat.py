"""A conversation of two turns: python examples/chat.py [MODEL]."""

import sys

from octavo import LLM, SamplingParams

params = SamplingParams(temperature=0.7, top_p=0.9, seed=1, max_tokens=64)
conversation = []

with LLM(sys.argv[1] if len(sys.argv) > 1 else "demo") as llm:
    for question in ["What is the capital of France?", "And what is it known for?"]:
        conversation.append({"role": "user", "content": question})
        (output,) = llm.chat(conversation, params, use_tqdm=False)
        answer = output.outputs[0].text
        conversation.append({"role": "assistant", "content": answer})
        # The second turn finds the first one in the prefix cache.
        print(f"> {question}\n{answer}\n[{output.num_cached_tokens} tokens of the prompt were cached]\n")
