"""Reports of a step and of a net: the plan as a page, the profile, the record for Graphviz, the table of layers.

Each is asked for by a method of what it shows (`plan.to_html`, `graph.profile`, `graph.to_dot`, `net.summary`), so
this folder lies below all four: it takes plain facts, and knows no plan, graph or net.
"""

from singa_lite.compiler.report.net_drawing import plot_net as plot_net
