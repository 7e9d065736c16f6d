"""Keywords of Keras and PyTorch, told by what stands here in their place. Those of layers are in `layer_names`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache, wraps
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, NoReturn, ParamSpec, TypeVar

from singa_lite.common.deleted_options import check_deleted

P = ParamSpec("P")
R = TypeVar("R")

#: Of optimizers, losses and metrics; a name that the constructor has not is passed over for the next one.
OBJECTS: Mapping[str, tuple[str, ...]] = {
    "learning_rate": ("lr",),
    "betas": ("beta_1 and beta_2",),
    "beta1": ("beta_1",),
    "beta2": ("beta_2",),
    "eps": ("epsilon",),
    "alpha": ("rho",),
    "momentum": ("beta_1", "optimizer.SGD(momentum=)"),
    "decay": ("weight_decay",),
    "l2": ("weight_decay",),
    "lr_decay": ("a schedule as lr, such as schedule.Exponential",),
    "nesterov": ("optimizer.Nesterov, or optimizer.SGD(nesterov=True)",),
    "params": ("nothing, as net.compile(optimizer) gives it the parameters",),
    "clipnorm": ("net.compile(clip_global_norm=), by the norm of all gradients together",),
    "global_clipnorm": ("net.compile(clip_global_norm=)",),
    "clipvalue": ("net.compile(clip_global_norm=), by the norm of all gradients together",),
    "from_logits": ("nothing, as it takes raw scores: leave the softmax or sigmoid before it out",),
    "reduction": ("nothing, as forward gives a value a sample and evaluate the mean",),
    "weight": ("net.fit(class_weight=)",),
    "top_k": ("k",),
    "dim": ("axis",),
}

COMPILE: Mapping[str, tuple[str, ...]] = {
    "metrics": ("metric",),
    "weighted_metrics": ("metric",),
    "losses": ("loss",),
    "criterion": ("loss",),
    "loss_fn": ("loss",),
    "lr": ("the optimizer's lr, optimizer.SGD(lr=)",),
    "learning_rate": ("the optimizer's lr, optimizer.SGD(lr=)",),
    "run_eagerly": ("graph, which is its opposite",),
    "jit_compile": ("graph",),
    "steps_per_execution": ("nothing, as each step is one",),
    "mixed_precision": ("precision",),
    "gradient_accumulation_steps": ("accumulate",),
    "clipnorm": ("clip_global_norm",),
    "max_grad_norm": ("clip_global_norm",),
}

DATA: Mapping[str, tuple[str, ...]] = {
    "num_epochs": ("epochs",),
    "n_epochs": ("epochs",),
    "nb_epoch": ("epochs",),
    "max_epochs": ("epochs",),
    "batch": ("batch_size",),
    "callback": ("callbacks",),
    "class_weights": ("class_weight",),
    "sample_weights": ("sample_weight",),
    "val_data": ("validation_data",),
    "val_split": ("validation_split",),
    "validation_freq": ("nothing, as the validation is at the end of each epoch",),
    "validation_batch_size": ("batch_size, which both have",),
    "max_queue_size": ("prefetch",),
    "use_multiprocessing": ("workers=data.Processes(2)",),
    "num_workers": ("workers",),
    "return_dict": ("nothing, as (loss, metric) comes back",),
    "verbose": ("nothing, as it shows no bar",),
    "lr": ("net.optimizer.lr",),
    "learning_rate": ("net.optimizer.lr",),
}

#: Of callbacks.
CALLBACKS: Mapping[str, tuple[str, ...]] = {
    "restore_best_weights": ("restore_best",),
    "filepath": ("folder",),
    "filename": ("path",),
    "log_dir": ("folder",),
    "save_freq": ("every_steps",),
    "save_best_only": ("nothing, as best.h5 is the best one by monitor and mode",),
    "save_weights_only": ("nothing, as net.load(path, optimizer=False) reads the weights alone",),
    "baseline": ("net.evaluate() before the fit",),
    "schedule": ("the optimizer's lr, a schedule or a function of the step",),
}


def check_keywords(
    where: str, given: Mapping[str, object], call: Callable[..., object], words: Mapping[str, tuple[str, ...]]
) -> None:
    """Raises TypeError for a keyword that the call does not take, and names ours for another framework's. A constructor
    of a user's that takes any keywords may hand it on.
    """
    if not given or _parameters(call).keys() >= given.keys():
        return
    check_deleted(where, given)
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in _parameters(call).values())
    is_users = (call.__module__ or "").partition(".")[0] != __name__.partition(".")[0]
    if not (is_users and takes_any):
        refuse(where, given, _parameters(call), words)
    if not takes_any:
        _refuse_unknown(where, given, [name for name in _parameters(call) if name != "self"])


def _refuse_unknown(where: str, given: Mapping[str, object], options: Sequence[str]) -> NoReturn:
    unknown = next(name for name in given if name not in options)
    near = get_close_matches(unknown, options, 1)
    raise TypeError(
        f"{where}: wanted an option of {', '.join(options) or 'none'}, received {unknown}={given[unknown]!r:.100}"
        + (f"; perhaps {near[0]}" if near else "")
    )


def refuse(
    where: str, given: Iterable[str], parameters: Mapping[str, Parameter], words: Mapping[str, tuple[str, ...]]
) -> None:
    """The same of a call with these parameters. Of a keyword's words, names of no parameter are passed over."""
    for option in given:
        found = () if option in parameters else words.get(option, ())
        here = next((each for each in found if each in parameters or not each.isidentifier()), None)
        if here is not None:
            raise TypeError(f"{where}: wanted {here}, received {option}=, which is another framework's word for it")


def explains_keywords(
    words: Mapping[str, tuple[str, ...]] = MappingProxyType({}), **checks: Callable[[str, Any], object]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function, method or constructor whose keywords of other frameworks are told by ours, and unknown ones refused.

    checks: {parameter: raises where an argument of its is not as wanted, given its name for the message, and itself}.
    """

    def around(call: Callable[P, R]) -> Callable[P, R]:
        form = signature(call)

        @wraps(call)
        def checked(*args: P.args, **options: P.kwargs) -> R:
            where = type(args[0]).__name__ if args and call.__name__ == "__init__" else call.__name__
            check_keywords(where, options, call, words)
            given = form.bind(*args, **options).arguments if checks else {}
            for name in given.keys() & checks.keys():
                checks[name](f"{where} {name}", given[name])
            return call(*args, **options)

        return checked

    return around


def accepts_arguments(call: object, count: int) -> bool:
    """Whether it can be called with so many arguments; so can what says no signature."""
    if not callable(call):
        return False
    try:
        signature(call).bind(*range(count))
    except ValueError:  # of a function in C
        return True
    except TypeError:
        return False
    return True


@lru_cache(256)
def _parameters(call: Callable[..., object]) -> Mapping[str, Parameter]:
    return signature(call).parameters
