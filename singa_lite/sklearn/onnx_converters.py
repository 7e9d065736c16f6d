"""Converters of skl2onnx, by which it writes the estimators into a file of ONNX with the rest of a pipeline."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from singa_lite.common.errors import SnapshotError
from singa_lite.sklearn.estimator import NetEstimator
from singa_lite.sklearn.estimators import NetClassifier, NetRegressor


def register_onnx_converters() -> None:
    """Let skl2onnx convert `NetClassifier` and `NetRegressor`, by themselves or in a pipeline.

    A classifier gives labels, int or str, and probabilities, by skl2onnx's options `zipmap`, `nocl` and
    `output_class_labels`. Floats are float64 where skl2onnx is told that samples are, else float32.
    target_opset: 17 to 22. ImportError where skl2onnx is missing.

    >>> from singa_lite.sklearn import NetClassifier, register_onnx_converters
    >>> from skl2onnx import to_onnx
    >>> register_onnx_converters()
    >>> X = np.array([[0.0, 0.0], [0.1, 0.2], [1.0, 0.9], [0.8, 1.0]], "float32")
    >>> [made.name for made in to_onnx(NetClassifier().fit(X, [0, 0, 1, 1]), X).graph.output]
    ['output_label', 'output_probability']
    """
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes

    options = {"zipmap": [True, False, "columns"], "nocl": [True, False], "output_class_labels": [False, True]}
    shapes = calculate_linear_classifier_output_shapes
    update_registered_converter(NetClassifier, "SingaLiteNetClassifier", shapes, _convert_classifier, options=options)
    update_registered_converter(NetRegressor, "SingaLiteNetRegressor", _set_regressor_shape, _convert_regressor)


def _set_regressor_shape(operator: Any) -> None:
    from skl2onnx.common.data_types import guess_tensor_type

    (outputs,) = _net_shape(operator.raw_operator)
    made = guess_tensor_type(operator.inputs[0].type)
    made.shape = [operator.inputs[0].get_first_dimension(), outputs]
    operator.outputs[0].set_type(made)


def _net_shape(estimator: NetEstimator) -> tuple[int, ...]:
    net = estimator.net_
    return tuple(net.output_shapes(net.output_names()[0])[0])


def _convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    container.add_node("Identity", _add_net(scope, operator, container), operator.outputs[0].full_name)


def _convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    from onnx import TensorProto
    from skl2onnx.common.utils_classifier import get_label_classes

    scores = _add_net(scope, operator, container)
    labels, probabilities = (variable.full_name for variable in operator.outputs)
    container.add_node("Softmax", scores, probabilities, axis=1)
    names = get_label_classes(scope, operator.raw_operator)
    is_text = names.dtype.kind in "OUS"
    classes, ids = (scope.get_unique_variable_name(name) for name in ("classes", "ids"))
    kind = TensorProto.STRING if is_text else TensorProto.INT64
    container.add_initializer(classes, kind, names.shape, names.astype(str if is_text else np.int64).tolist())
    container.add_node("ArgMax", scores, ids, axis=1, keepdims=0)
    container.add_node("Gather", [classes, ids], labels)


def _add_net(scope: Any, operator: Any, container: Any) -> str:
    """Add the net's nodes and weights under names that are free, and return the name of its scores."""
    import onnx
    from skl2onnx.common.data_types import guess_numpy_type

    opset, dtype = container.target_opset_any_domain(""), guess_numpy_type(operator.outputs[-1].type)
    with TemporaryDirectory() as folder:
        path = Path(folder, "net.onnx")
        operator.raw_operator.net_.export(path, opset=opset, dtype=dtype)
        graph = onnx.load(path).graph
    if len(graph.input) > 1:
        names = [given.name for given in graph.input]
        raise SnapshotError(f"skl2onnx: wanted a net of one input that keeps no state, received the inputs {names}")
    prefix = f"{scope.get_unique_operator_name('net')}/"
    weights = {weight.name: prefix + weight.name for weight in graph.initializer}  # those that a Scan's graph reads too
    graph = onnx.compose.add_prefix_graph(graph, prefix, name_map=weights)
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    container.add_node("Cast", operator.inputs[0].full_name, graph.input[0].name, to=to)
    container.nodes.extend(graph.node)
    container.initializers.extend(graph.initializer)
    container.node_domain_version_pair_sets.add(("", opset))
    return str(graph.output[0].name)
