"""Weight formats other than plain floats."""
