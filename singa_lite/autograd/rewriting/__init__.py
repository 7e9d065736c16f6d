"""Rules by which a recorded step is rewritten: a pattern and its replacement, two functions over tensors.

`graph.rewrite(rule)` and `net.compile(rules=[...])` take them. See docs/rewriting.md.
"""

from singa_lite.autograd.rewriting.rule import Rule as Rule
from singa_lite.common.errors import RuleError as RuleError
