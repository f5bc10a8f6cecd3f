"""Octavo beside vLLM and llama.cpp: same machine, same weights, same load client. See README.md here."""
