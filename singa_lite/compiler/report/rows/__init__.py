"""What a plan says of its blocks and its calls, in plain rows, for `memory_plan.py` and the reports."""
