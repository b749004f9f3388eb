"""Language models that write by editing."""

__version__ = "0.1.0"
