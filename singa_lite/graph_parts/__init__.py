"""Parts of `graph`: how a step is recorded, and how it is planned within bounds.

`record` notes operations, `same_record` compares two. `planned_record` plans one: `within_bound` makes the plans that
keep a bound, `budget_error` says that there is none, by what `profiled_costs` and `peaks` measure of the device.
"""
