"""The one place that knows the release number."""

__version__ = "0.1.0"
