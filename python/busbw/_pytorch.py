"""PyTorch, for the parts of the package that need it: where it is missing, the error says what to do."""

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        "this part of busbw needs PyTorch, which is not installed here: pip install torch", name="torch"
    ) from None

__all__ = ["torch"]
