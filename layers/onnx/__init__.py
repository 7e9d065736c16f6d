"""The operators of ONNX's, as a layer over operations of `autograd`."""

from .nodes import OnnxNodes as OnnxNodes
