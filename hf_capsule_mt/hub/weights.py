"""What is wrong with weights that cannot be loaded."""

from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError


@contextmanager
def explained_weights(checkpoint: object) -> Iterator[None]:
    """Around `from_pretrained`: say what is wrong with the weights of `checkpoint`, a folder or a name on the Hub.

    Raises:
        OSError: if they are damaged, or of other shapes than the configuration's.
    """
    try:
        yield
    except SafetensorError as error:
        raise OSError(
            f"the weights in {checkpoint} are damaged: {error}; copy or download them again, or name another checkpoint"
        ) from error
    # What Transformers raises for weights of another shape.
    except RuntimeError as error:
        raise OSError(
            f"the weights in {checkpoint} do not fit its configuration: {error} Put back the config.json that was "
            "saved with them, or name another checkpoint"
        ) from error


__all__ = ["explained_weights"]
