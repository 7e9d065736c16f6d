"""Estimators for scikit-learn's pipelines and searches: a net behind `fit(X, y)` and `predict(X)`."""

from singa_lite.sklearn.estimators import NetClassifier as NetClassifier
from singa_lite.sklearn.estimators import NetRegressor as NetRegressor
from singa_lite.sklearn.onnx_converters import register_onnx_converters as register_onnx_converters
