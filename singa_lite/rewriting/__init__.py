"""Rules by which a recorded step is rewritten: a pattern and its replacement, two functions over tensors.

`graph.rewrite(rule)` and `net.compile(rules=[...])` take them. See docs/rewriting.md.
"""

from singa_lite.errors import RuleError as RuleError
from singa_lite.rewriting.rule import Rule as Rule
