"""Nets of published forms, whose weights load from the files that others share (`snapshots.maps`)."""

from .bert import bert as bert
from .densenet import densenet121 as densenet121
from .from_onnx import from_onnx as from_onnx
from .gpt2 import gpt2 as gpt2
from .language import LanguageConfig as LanguageConfig
from .language import language_model as language_model
from .load import load as load
from .mobilenet import mobilenet_v2 as mobilenet_v2
from .resnet import resnet50 as resnet50
from .unet import unet as unet
