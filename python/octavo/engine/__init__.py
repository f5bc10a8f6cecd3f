"""The doors to an engine in this process."""
