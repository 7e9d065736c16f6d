"""What `fit` takes among its callbacks by the names of methods that Keras has, and what they are called here."""

from __future__ import annotations

from singa_lite.common.keywords import accepts_arguments

#: {method of Keras's callbacks: the one that is called here}.
_HERE: dict[str, str] = {
    "on_train_begin": "on_start",
    "on_train_batch_end": "on_batch",
    "on_batch_end": "on_batch",
    "on_test_batch_end": "on_validation_batch",
    "on_epoch_end": "on_epoch",
    "on_train_end": "on_end",
}
#: Those that have none: {method: what to use}.
_NONE: dict[str, str] = {
    "on_epoch_begin": "on_epoch of the one before, or on_start",
    "on_train_batch_begin": "on_batch of the one before",
    "on_batch_begin": "on_batch of the one before",
    "on_test_begin": "on_validation_batch",
    "on_test_end": "on_epoch",
}


#: What is called, with which arguments.
_CALLED: dict[str, str] = dict.fromkeys(("on_start", "on_batch", "on_validation_batch", "on_epoch"), "training") | {
    "on_end": "training, error",
    "state": "",
    "restore": "state",
}


def check_calls(callback: object) -> None:
    """TypeError for a method that is called with other arguments than it takes."""
    for name, arguments in _CALLED.items():
        if not accepts_arguments(getattr(callback, name), len(arguments.split())):
            raise TypeError(
                f"fit callbacks: wanted a method {name}({arguments}), received {type(callback).__name__} with one that "
                "cannot be called so"
            )


def check_methods(callback: object) -> None:
    """TypeError for a method of Keras's, which nothing here would ever call: it names those that are called."""
    for name, here in (_HERE | _NONE).items():
        if callable(getattr(callback, name, None)):
            wanted = f"{here}(training, error)" if here == "on_end" else f"{here}(training)" if name in _HERE else here
            raise TypeError(
                f"fit callbacks: wanted {wanted} in the place of {name}, which nothing calls, received "
                f"{type(callback).__name__} with it"
            )
