"""Texts that a net writes id by id: `net.generate`, `net.chat`, and their plan."""

from singa_lite.net.generation.answer import answer as answer
from singa_lite.net.generation.write import Options as Options
from singa_lite.net.generation.write import generate as generate
from singa_lite.net.generation.write import generation_plan as generation_plan
