"""Continue many prompts at once: python examples/offline.py [MODEL]."""

import sys

from octavo import LLM, SamplingParams

prompts = ["The capital of France is", "1, 2, 3, 4,", "Water boils at"]
params = SamplingParams(temperature=0, max_tokens=16)

with LLM(sys.argv[1] if len(sys.argv) > 1 else "demo") as llm:
    for output in llm.generate(prompts, params):
        print(repr(output.prompt), "->", repr(output.outputs[0].text))
