"""Recorded steps: a record of operations, planned within bounds of bytes, and what replays it.

`record` notes operations. `planned_record` plans one: `within_bound` makes the plans that keep a bound, `budget_error`
says that there is none, by what `call_times` measures of the device. `executable` and `arena` run a plan, `lanes` at
the same time where that is asked for, `checked_launches` with checks.
"""

from singa_lite.graph.graph import Graph as Graph
from singa_lite.graph.graph import Phase as Phase
