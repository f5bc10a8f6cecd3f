"""The step loop and the worker that computes its steps."""
