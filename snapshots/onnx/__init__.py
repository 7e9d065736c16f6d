"""ONNX files: a net's predictions as a graph of ONNX operators."""
