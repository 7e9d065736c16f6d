"""Optimizers: how a parameter moves, given its gradient."""

from singa_lite.optimizer.adaptive import AdaGrad as AdaGrad
from singa_lite.optimizer.adaptive import Adam as Adam
from singa_lite.optimizer.adaptive import AdamW as AdamW
from singa_lite.optimizer.adaptive import RMSProp as RMSProp
from singa_lite.optimizer.base import Optimizer as Optimizer
from singa_lite.optimizer.global_norm import GlobalNorm as GlobalNorm
from singa_lite.optimizer.global_norm import clip_global_norm as clip_global_norm
from singa_lite.optimizer.sgd import SGD as SGD
from singa_lite.optimizer.sgd import Nesterov as Nesterov
