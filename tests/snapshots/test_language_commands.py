"""`python -m singa_lite finetune`, `plan` and `chat` of a small language model, and what they refuse."""

from __future__ import annotations

import ast
import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_lite
from language_files import SIZES, small_weights, write_gguf
from singa_lite import __main__ as program
from singa_lite import models, optimizer, snapshots

TEXTS = ["the tin", "a hat in the sun", "an ant 12", "the fog"]


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file of two blocks with random weights, 64 positions, and a tokenizer of letters."""
    monkeypatch.setitem(SIZES, "context", 64)
    forms = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"), "q8_0")
    write_gguf(tmp_path / "small.gguf", small_weights({**forms, "token_embd": "q8_0"}))
    yield str(tmp_path / "small.gguf")
    gc.collect()  # nets have the file mapped


def lines(path: Path, rows: list[Any]) -> str:
    """The path of a file with these objects, one a line."""
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def chats(path: Path, count: int = 4) -> str:
    """A file of conversations."""
    pairs = [(text, TEXTS[number - 1]) for number, text in enumerate(TEXTS)] * count
    rows = [[{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in pairs[:count]]
    return lines(path / "chats.jsonl", [{"messages": row} for row in rows])


def weights(folder: Path) -> bytes:
    return (folder / "adapter_model.safetensors").read_bytes()


def sample(told: str, name: str) -> tuple[str, str]:
    """The prompt and the answer on a line of what is printed."""
    found = re.search(rf"^{name} +(.*) -> (.*)$", told, re.MULTILINE)
    assert found, told
    return ast.literal_eval(found[1]), ast.literal_eval(found[2])


ROWS: dict[str, list[Any]] = {
    "prompts": [{"prompt": "the ", "completion": "tin"}, {"prompt": "a ", "completion": "hat"}],
    "texts": [{"text": text} for text in TEXTS],
}


@pytest.mark.parametrize("kind", ROWS)
def test_finetune_says_the_plan_and_what_the_net_wrote(kind, base, tmp_path, capsys):
    out = tmp_path / "an adapter"
    file = lines(tmp_path / "rows.jsonl", ROWS[kind])
    options = ["--epochs", "30", "--rate", "0.05", "--budget", "8 MiB", "--rank", "4", "--packed"]
    assert program.main(["finetune", base, file, "--out", str(out), "--length", "24", *options]) == 0
    told = capsys.readouterr().out
    net = models.load(base, 24, packed=True)
    net.add_lora(4, 8.0)
    net.compile(optimizer.AdamW(2e-4), memory_budget="8 MiB")
    assert f"planned    {net.plan_batch(1).total_bytes:,} bytes" in told
    assert "live at the peak" not in told and "together" in told
    before, after = (sample(told, name) for name in ("before", "after"))
    assert before[0] == after[0] == ("the " if kind == "prompts" else "the tin")
    assert before[1] != after[1]
    if kind == "prompts":
        assert after[1].startswith("tin") and not before[1].startswith("tin")
    assert f"chat {base} --adapter '{out}'" in told  # which a shell takes as it stands
    config = json.loads((out / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (4, 8.0, base)


def test_a_run_that_was_killed_goes_on_to_the_same_bits(base, tmp_path):
    file = chats(tmp_path, 40)
    arguments = ["finetune", base, file, "--epochs", "4", "--rank", "2", "--minutes", "1e-6"]
    environment = {**os.environ, "PYTHONPATH": str(Path(singa_lite.__file__).parents[1])}

    def command(out: Path) -> list[str]:  # each in a process of its own, as bits hang on the number of threads
        return [sys.executable, "-m", "singa_lite", *arguments, "--out", str(out)]

    def printed(out: Path) -> str:
        return subprocess.run(command(out), env=environment, capture_output=True, text=True, check=True).stdout

    assert "before " in printed(tmp_path / "whole")
    out = tmp_path / "killed"
    with subprocess.Popen(
        command(out), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        end = time.monotonic() + 100
        while snapshots.latest(out / "checkpoints") is None and process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    assert not (out / "adapter_model.safetensors").exists()
    told = printed(out)
    assert "going on from" in told and "before " not in told
    assert weights(out) == weights(tmp_path / "whole")


def test_chat_answers_a_question_and_lines(base, tmp_path, capsys, monkeypatch):
    out = tmp_path / "adapter"
    file = lines(tmp_path / "one.jsonl", [json.loads(Path(chats(tmp_path)).read_text().splitlines()[1])])
    assert program.main(["finetune", base, file, "--out", str(out), "--epochs", "80", "--rate", "0.02"]) == 0
    capsys.readouterr()
    question, answer = TEXTS[1], TEXTS[0]
    command = ["chat", base, "--adapter", str(out), "--steps", "16", "--length", "64"]
    assert program.main([*command, question]) == 0
    assert capsys.readouterr().out == f"{answer}\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{question}\n\n{question}\n"))
    assert program.main(command) == 0
    assert capsys.readouterr().out == f"{answer}\n" * 2
    assert program.main(["chat", base, question]) == 0
    assert capsys.readouterr().out != f"{answer}\n"


def test_a_conversation_forgets_its_beginning_where_it_no_longer_fits(base, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("the tin\n" * 6))
    assert program.main(["chat", base, "--length", "32", "--steps", "4"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 6


#: (lines of the file, further arguments, the status, words of the error).
REFUSED: list[tuple[str, list[str], int, tuple[str, ...]]] = [
    ('{"text": "the"}\n{"text": "a', [], 2, ("line 2", "JSON", "Unterminated string starting at, column 10")),
    ('{"text": "the"}\n{"text": 3}\n', [], 2, ("line 2", "'text'")),
    ('{"words": "the"}\n', [], 2, ("line 1", "'messages', 'prompt', 'text'", "'words'")),
    ("\n \n", [], 2, (".jsonl: wanted lines of JSON", "blank lines alone")),
    ("", [], 2, (".jsonl: wanted text", "empty")),
    ('{"text": "the"}\n', ["--length", "-1"], 2, ("--length", "-1")),
    ('{"text": "the"}\n', ["--batch", "0"], 2, ("--batch", "0")),
    ('{"text": "the"}\n', ["--minutes", "0"], 2, ("minutes", "0")),
    ('{"messages": []}\n', [], 2, ("line 1", "messages")),
    ('{"messages": [{"role": "user", "content": "the"}]}\n', [], 2, ("received none",)),
    ('{"text": "the"}\n', ["--budget", "1 KiB"], 1, ("memory_budget", "1,024")),
    ('{"text": "the"}\n', ["--epochs", "0"], 2, ("--epochs", "0")),
    ('{"text": "the"}\n', ["--rank", "0"], 2, ("rank", "0")),
    ('{"text": "the"}\n', ["--precision", "float8"], 2, ("'float8'",)),
]


def test_what_finetune_refuses_before_it_trains(base, tmp_path, capsys):
    for number, (text, arguments, status, words) in enumerate(REFUSED):
        file, out = tmp_path / f"{number}.jsonl", tmp_path / f"out{number}"
        file.write_text(text)
        assert program.main(["finetune", base, str(file), "--out", str(out), *arguments]) == status, number
        told = capsys.readouterr()
        assert told.err.startswith("python -m singa_lite finetune: ") and told.err.count("\n") == 1, told.err
        assert all(word in told.err for word in words), told.err
        assert "samples/s" not in told.err and not out.exists()
    for command in (["finetune", "none.gguf", "x", "--out", "y"], ["chat", "none.gguf", "hi"], ["plan", "none.gguf"]):
        assert program.main(command) == 2
        assert "none.gguf" in capsys.readouterr().err


def test_a_folder_has_one_run(base, tmp_path, capsys):
    """With other data, or an option that results go by, the command is refused before it trains; a budget is none."""
    file, other, out = chats(tmp_path, 3), lines(tmp_path / "other.jsonl", ROWS["texts"]), str(tmp_path / "out")
    assert program.main(["finetune", base, file, "--out", out]) == 0
    adapter = weights(Path(out))
    for arguments, word in (([other], "data"), ([file, "--rank", "2"], "rank 8"), ([file, "--rate", "1"], "rate 0.0")):
        capsys.readouterr()
        assert program.main(["finetune", base, *arguments, "--out", out, "--epochs", "2"]) == 2
        told = capsys.readouterr()
        assert f"finetune.json: wanted {word}" in told.err and "planned" not in told.out
    assert weights(Path(out)) == adapter
    assert program.main(["finetune", base, file, "--out", out, "--epochs", "2", "--budget", "8 MiB"]) == 0
    assert "going on from" in capsys.readouterr().out and weights(Path(out)) != adapter
    for content, word in (("{", "as JSON"), ("[3]", "as JSON"), ("{}", "data None")):
        Path(out, "finetune.json").write_text(content)
        assert program.main(["finetune", base, file, "--out", out, "--epochs", "3"]) == 2
        assert word in capsys.readouterr().err


#: {what stands in the file: (its first line, the sample)}.
FIRST_LINES: dict[str, tuple[dict[str, Any], str]] = {
    "an answer without a question": ({"messages": [{"role": "assistant", "content": "a hat"}]}, "no sample"),
    "an empty prompt": ({"prompt": "", "completion": "a hat"}, "no sample"),
    "an empty answer": ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]}, "'a'"),
    "a system's message": (
        {"messages": [{"role": role, "content": "the fog"} for role in ("system", "user", "assistant")]},
        "'the fog'",
    ),
    "a role of its own": (
        {"messages": [{"role": "dog", "content": "a"}, {"role": "assistant", "content": "b"}]},
        "'a'",
    ),
}


@pytest.mark.parametrize("name", FIRST_LINES)
def test_finetune_takes_a_first_line_with(name, base, tmp_path, capsys):
    line, sample_text = FIRST_LINES[name]
    assert program.main(["finetune", base, lines(tmp_path / "one", [line]), "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert f"before     {sample_text}" in told and f"after      {sample_text}" in told


def test_rows_are_no_longer_than_the_context(base, tmp_path, capsys):
    file = lines(tmp_path / "long.jsonl", [{"text": "the tin " * 50}])
    with pytest.warns(UserWarning, match=r"long\.jsonl: 1 of 1 texts are longer than 64 positions and were cut there$"):
        assert program.main(["finetune", base, file, "--out", str(tmp_path / "out")]) == 0
    with pytest.raises(ValueError, match="load length: wanted at most the model's context, 64, received 65"):
        models.load(base, 65)


def test_a_question_without_space_for_an_answer_says_what_to_do(base, capsys):
    assert program.main(["chat", base, "the tin " * 40, "--length", "32"]) == 2
    assert "at most 32 ids, or a larger --length, received " in capsys.readouterr().err


def test_a_process_warns_on_one_line(base, tmp_path):
    file = lines(tmp_path / "two.jsonl", [{"text": ""}, {"text": "the"}])
    command = [sys.executable, "-m", "singa_lite", "finetune", base, file, "--out", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(Path(singa_lite.__file__).parents[1]), "PYTHONWARNINGS": "default"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    wanted = f"python -m singa_lite: {file}: 1 have nothing whose loss counts and were dropped"
    assert told.splitlines()[0] == wanted


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, int]:
    """What `plan` prints, and the bytes in all."""
    assert program.main(["plan", *arguments]) == 0
    told = capsys.readouterr().out
    found = re.search(r"in all +([\d,]+) bytes", told)
    assert found
    return told, int(found[1].replace(",", ""))


def test_plan_of_a_file_reads_no_weights(base, tmp_path, capsys):
    told, total = planned(capsys, base, "--batch", "3", "--length", "24", "--lora", "4")
    net = models.load(base, 24)
    net.add_lora(4, 8.0)
    net.compile(optimizer.AdamW())
    assert total == net.plan_batch(3).total_bytes
    trained = sum(each.size() for each in net.parameters().values() if each.stores_grad)
    assert f"adapters of rank 4 on 14 layers, {trained:,} parameters train" in told
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert trained == 2 * 4 * (128 + 96 + 96 + 128 + 3 * 160) and len(names) * 2 == 14  # rank * (inputs + outputs)
    whole = Path(base).read_bytes()
    Path(base).write_bytes(whole[: -len(whole) // 8] + bytes(len(whole) - len(whole[: -len(whole) // 8])))
    assert planned(capsys, base, "--batch", "3", "--length", "24", "--lora", "4")[1] == total
    assert planned(capsys, base, "--length", "24", "--lora", "4", "--weights", "float32")[1] > total


#: {model: (its config.json, parameters, adapters of rank 8 on all linear layers, by hand)}.
PUBLISHED: dict[str, tuple[dict[str, Any], int, int]] = {
    "Llama-3.2-1B": (
        {
            **{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16},
            **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256},
            **{"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True},
            **{"max_position_embeddings": 131072, "torch_dtype": "bfloat16", "hidden_act": "silu"},
            "rope_scaling": {
                **{"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3"},
                "original_max_position_embeddings": 8192,
            },
        },
        1_235_814_400,
        16 * 8 * (2 * (2048 + 2048) + 2 * (2048 + 512) + 3 * (2048 + 8192)),
    ),
    "Qwen2.5-7B": (
        {
            **{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28},
            **{"num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "rms_norm_eps": 1e-6},
            **{"rope_theta": 1000000.0, "tie_word_embeddings": False, "max_position_embeddings": 32768},
            **{"sliding_window": 131072, "use_sliding_window": False, "torch_dtype": "bfloat16"},
        },
        7_615_616_512,
        28 * 8 * (2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18944)),
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_plan_of_a_published_configuration(name, tmp_path, capsys):
    config, count, adapters = PUBLISHED[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    told, stored = planned(capsys, str(path), "--batch", "1", "--length", "64", "--lora", "8")
    assert f"adapters of rank 8 on {7 * config['num_hidden_layers']} layers, {adapters:,} parameters train" in told
    norms = count - sum(int(np.prod(shape)) for shape in matrices(config))
    assert f"{norms + adapters:,} parameters of float32" in told
    assert f"frozen weights beside them, {2 * (count - norms)} bytes" in told
    assert stored > 2 * count
    _, quarter = planned(capsys, str(tmp_path), "--batch", "1", "--length", "64", "--lora", "8", "--weights", "q4_0")
    assert stored - quarter == pytest.approx((2 - 18 / 32) * (count - norms), rel=0.02)


def matrices(config: dict[str, Any]) -> list[tuple[int, int]]:
    """Shapes of all matrices of a model."""
    width, hidden = config["hidden_size"], config["intermediate_size"]
    keys = width // config["num_attention_heads"] * config["num_key_value_heads"]
    block = [(width, width)] * 2 + [(keys, width)] * 2 + [(hidden, width)] * 3
    tables = 1 if config["tie_word_embeddings"] else 2
    return block * config["num_hidden_layers"] + [(config["vocab_size"], width)] * tables


#: (arguments, words of the error).
PLANS_REFUSED = [
    (["--input-shape", "3"], "--length"),
    (["--weights", "q9_0"], "'q9_0'"),
    (["--length", "-1"], "length"),
    (["--length", "10000000000"], "context, 64"),
    (["--batch", "0"], "batch of at least 1"),
    (["--lora", "-1"], "rank"),
    (["--lora", "2", "--prediction", "--optimizer", "sgd"], "--optimizer"),
]


def test_plans_of_language_models_that_are_refused(base, capsys):
    for arguments, word in PLANS_REFUSED:
        assert program.main(["plan", base, *arguments]) == 2
        told = capsys.readouterr().err
        assert word in told and told.count("\n") == 1, told
    assert program.main(["plan", "module:function", "--length", "3"]) == 2
    assert "--length: wanted it beside a language model" in capsys.readouterr().err
    assert program.main(["plan", base, "--prediction", "--device", "numpy"]) == 0
