"""Estimators for scikit-learn's pipelines and searches: a net behind `fit(X, y)` and `predict(X)`."""

from singa_lite.sklearn.classifier import NetClassifier as NetClassifier
from singa_lite.sklearn.regressor import NetRegressor as NetRegressor
