"""What the vLLM engine relies on, read from the source of an installed vLLM without importing it: no GPU needed.

Read in vLLM 0.31.0, the newest that TRL 1.16 allows.
"""

import ast
import importlib.util
from pathlib import Path

import pytest


def class_in(path: str, name: str) -> ast.ClassDef:
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs the source of vLLM, which the extra vllm installs")
    tree = ast.parse((Path(spec.submodule_search_locations[0]) / path).read_text(encoding="utf-8"))
    return next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)


def fields(path: str, name: str) -> set[str]:
    return {ast.unparse(node.target) for node in class_in(path, name).body if isinstance(node, ast.AnnAssign)}


def method(path: str, class_name: str, name: str) -> ast.FunctionDef:
    found = [
        node for node in class_in(path, class_name).body if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return found[-1]  # after its overloads


def names(function: ast.FunctionDef) -> list[str]:
    return [each.arg for each in (*function.args.args, *function.args.kwonlyargs)]


def test_what_the_engine_calls_and_reads_is_there():
    start, generate = (method("entrypoints/llm.py", "LLM", name) for name in ("__init__", "generate"))
    assert {"model", "revision", "dtype", "seed"} <= set(names(start))
    assert "self.llm_engine = " in ast.unparse(start)
    assert names(generate)[:3] == ["self", "prompts", "sampling_params"]
    assert "use_tqdm" in names(generate)
    assert ast.unparse(generate.args).count("Sequence[SamplingParams]") == 1  # a set of its own for each prompt
    assert names(method("entrypoints/llm.py", "LLM", "get_tokenizer")) == ["self"]
    assert "self.model_config = " in ast.unparse(method("v1/engine/llm_engine.py", "LLMEngine", "__init__"))
    assert "outputs" in names(method("outputs.py", "RequestOutput", "__init__"))
    for path, kind, read in (
        ("config/model.py", "ModelConfig", {"max_model_len"}),
        ("sampling_params.py", "SamplingParams", {"n", "temperature", "top_p", "max_tokens", "seed"}),
        ("outputs.py", "CompletionOutput", {"token_ids", "finish_reason"}),
        ("inputs/llm.py", "TokensPrompt", {"prompt_token_ids"}),
    ):
        assert read <= fields(path, kind)
