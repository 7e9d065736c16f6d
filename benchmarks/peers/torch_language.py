"""A language model with adapters in PyTorch: transformers and peft, from Hugging Face's folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .process import Task


def use_once() -> None:
    """What loads at first use belongs to the import."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from peft import PeftModel  # noqa: F401
    from transformers import AutoModelForCausalLM, LlamaForCausalLM  # noqa: F401

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    layer = torch.nn.Linear(4, 4)
    layer(torch.ones(4, 4)).sum().backward()
    torch.optim.AdamW(layer.parameters(), fused=True).step()


def load(task: Task, length: int, bfloat16: bool = False, checkpointing: bool = False) -> Any:
    """The model in float32 or bfloat16. length: of texts, of which it wants to know nothing."""
    import torch
    from transformers import AutoModelForCausalLM

    dtype = torch.bfloat16 if bfloat16 else torch.float32
    model = AutoModelForCausalLM.from_pretrained(Path(task.folder) / "folder", dtype=dtype)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def training(model: Any, x: np.ndarray, y: np.ndarray, task: Task) -> Callable[[], float]:
    """A step of the adapters, which are in float32."""
    import torch
    from peft import PeftModel

    module = PeftModel.from_pretrained(model, Path(task.folder) / "adapter", is_trainable=True).train()
    trained = [value for value in module.parameters() if value.requires_grad]
    rule = torch.optim.AdamW(trained, lr=task.lr, weight_decay=0.01, fused=True)
    ids, targets = torch.from_numpy(x), torch.from_numpy(y).flatten()

    def step() -> float:
        scores = module(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(scores.float().flatten(0, 1), targets)
        loss.backward()
        rule.step()
        rule.zero_grad(set_to_none=True)
        return float(loss)

    return step


def writing(model: Any, prompt: np.ndarray, count: int) -> Callable[[], Any]:
    """A text that goes on from the prompt by the largest scores."""
    import torch

    ids = torch.from_numpy(prompt)[None]
    options = {"do_sample": False, "max_new_tokens": count, "min_new_tokens": count, "pad_token_id": 0}
    return lambda: model.eval().generate(ids, attention_mask=torch.ones_like(ids), **options)[0]


def training_all(
    model: Any, rate: float, decay: float, in_backward: bool, compiled: bool = False
) -> Callable[[np.ndarray, np.ndarray], float]:
    """A step of all weights by AdamW. in_backward: each is updated as soon as its gradient is there, which is freed."""
    import torch

    options = {"lr": rate, "weight_decay": decay, "fused": True}
    values = list(model.train().parameters())
    rules = {value: torch.optim.AdamW([value], **options) for value in values} if in_backward else {}
    whole = None if in_backward else torch.optim.AdamW(values, **options)

    def update(value: Any) -> None:
        rules[value].step()
        rules[value].zero_grad(set_to_none=True)

    forward = torch.compile(model) if compiled else model
    for value in rules:
        value.register_post_accumulate_grad_hook(update)

    def step(x: np.ndarray, y: np.ndarray) -> float:
        loss = _loss(forward, x, y)
        loss.backward()
        if whole is not None:
            whole.step()
            whole.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step


def mean_loss(model: Any, x: np.ndarray, y: np.ndarray) -> float:
    """The loss of rows, without training, one after the other."""
    import torch

    model.eval()
    with torch.no_grad():
        return float(np.mean([float(_loss(model, x[row : row + 1], y[row : row + 1])) for row in range(len(x))]))


def _loss(model: Any, x: np.ndarray, y: np.ndarray) -> Any:
    import torch

    scores = model(input_ids=torch.from_numpy(x), use_cache=False).logits
    return torch.nn.functional.cross_entropy(scores.float().flatten(0, 1), torch.from_numpy(y).flatten())
