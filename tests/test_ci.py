"""What .ci/run takes from the project's own words: README's commands, and the extras that files name together."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
CI = ROOT / ".ci"

pytestmark = pytest.mark.skipif(not CI.is_dir(), reason="this copy has no .ci, the checkout has")


@pytest.fixture(scope="module")
def resolve() -> ModuleType:
    """The module, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("resolve", CI / "resolve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_extras_are_read_from_the_commands(resolve, tmp_path):
    for folder in ("docs", "benchmarks", "examples", ".ci"):
        (tmp_path / folder).mkdir()
    (tmp_path / "README.md").write_text('pip install ".[examples,onednn]" && python x.py\npip install .\n')
    (tmp_path / "docs" / "gpu.md").write_text('`pip install -e ".[cuda13]"` and pip install --quiet ".[a,b]" torch\n')
    (tmp_path / "benchmarks" / "gpu.py").write_text('"""\n    pip install ".[b,a]" && python gpu.py\n"""')
    named = resolve.named_together(tmp_path)
    assert named == {frozenset(names) for names in (("examples", "onednn"), ("cuda13",), ("a", "b"))}


def test_the_project_names_extras_that_it_has(resolve):
    extras = set(re.findall(r'^        "(\w+)": [\[A-Z]', (ROOT / "setup.py").read_text(), re.MULTILINE))
    named = set().union(*resolve.named_together())
    assert {"cudatest", "peer"} <= named <= extras


def test_only_the_largest_sets_are_asked_for(resolve):
    sets = [frozenset(letters) for letters in ("ab", "a", "bcd", "cd", "ab", "e")]
    assert resolve.largest(sets) == [frozenset(letters) for letters in ("ab", "bcd", "e")]


def test_settings_that_bring_packages_of_this_machine_are_left_out(resolve, monkeypatch, tmp_path):
    settings = {"PIP_FIND_LINKS": "/wheels", "PIP_EXTRA_INDEX_URL": "x", "PIP_CONSTRAINT": "y", "PIP_RETRIES": "7"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    left = {name: value for name, value in resolve.environment().items() if name.startswith("PIP_")}
    assert not {"PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"} & set(left)
    assert (left["PIP_CONFIG_FILE"], left["PIP_RETRIES"]) == (os.devnull, "7")


def test_a_refusal_is_told_and_is_the_exit_status(resolve, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(resolve, "named_together", lambda: {frozenset("a"), frozenset("bc")})
    monkeypatch.setattr(resolve, "wheel", lambda folder, settings: tmp_path / "x.whl")
    monkeypatch.setattr(resolve, "trouble", lambda made, extras, settings: "conflict" if "b" in extras else "")
    assert resolve.main() == 1
    assert capsys.readouterr().out == "can be had: a\ncannot be had: b, c\nconflict\n"
    monkeypatch.setattr(resolve, "trouble", lambda made, extras, settings: "")
    assert resolve.main() == 0


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('pip install . && python examples/x.py\npip install ".[test]" && pytest\n', None),
        ('pip install ".[test]" && pytest\n', "python examples/"),
        ("pip install . && python examples/x.py\n" * 2 + "pip install . && pytest\n", "python examples/"),
        ("pip install . && python examples/x.py\n    pip install . && pytest\n", "pytest"),
    ],
)
def test_each_of_readmes_commands_is_wanted_once(tmp_path, text, wrong):
    """The script ends before it makes anything; with both commands there it wants Python, which here is `false`."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_text((CI / "run").read_text())
    (tmp_path / "README.md").write_text(text)
    environment = {**os.environ, "PYTHON": "false"}
    done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert ("first environment" in done.stdout) == (wrong is None)
    if wrong:
        assert f"wanted one line 'pip install ... && {wrong} ...' in README.md, received: '" in done.stderr


def test_readme_has_both_commands():
    lines = (ROOT / "README.md").read_text().splitlines()
    for word in ("&& python examples/", "&& pytest"):
        assert len([line for line in lines if line.startswith("pip install ") and word in line]) == 1
