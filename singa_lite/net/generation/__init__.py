"""Texts that a net writes id by id: `net.generate`, and the plan of it."""

from singa_lite.net.generation.write import generate as generate
from singa_lite.net.generation.write import generation_plan as generation_plan
