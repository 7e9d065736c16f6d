"""Temporary."""
from singa_lite.memory.problem import Plan, floor
def check(*a, **k): pass
def plan(requests, seconds=0, conflicts=None):
    placed=[]; offs={}
    for r in sorted(requests, key=lambda r:(-r.size, r.lower)):
        if conflicts is None: busy=sorted((o,o+q.size) for q,o in placed if q.lower<r.upper and r.lower<q.upper)
        else: busy=sorted((o,o+q.size) for q,o in placed if q.id in conflicts[r.id])
        at=0
        for a,b in busy:
            if a-at>=r.size: break
            at=max(at,b)
        placed.append((r,at)); offs[r.id]=at
    arena=max((o+q.size for q,o in placed), default=0)
    return Plan(offs, arena, floor(requests), arena==floor(requests), 0.0, "tmp")
