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


def test_llm_takes_model_revision_dtype_and_seed():
    assert {"model", "revision", "dtype", "seed"} <= set(names(method("entrypoints/llm.py", "LLM", "__init__")))
    assert "self.llm_engine = " in ast.unparse(method("entrypoints/llm.py", "LLM", "__init__"))


def test_generate_takes_prompts_then_sampling_params_and_use_tqdm():
    generate = method("entrypoints/llm.py", "LLM", "generate")
    assert names(generate)[:3] == ["self", "prompts", "sampling_params"]
    assert "use_tqdm" in names(generate)
    assert ast.unparse(generate.args).count("Sequence[SamplingParams]") == 1  # a set of its own for each prompt


def test_tokenizer_and_context_are_where_we_look():
    assert names(method("entrypoints/llm.py", "LLM", "get_tokenizer")) == ["self"]
    assert "self.model_config = " in ast.unparse(method("v1/engine/llm_engine.py", "LLMEngine", "__init__"))
    assert "max_model_len" in fields("config/model.py", "ModelConfig")


def test_sampling_params_have_the_fields_that_we_set():
    assert {"n", "temperature", "top_p", "max_tokens", "seed"} <= fields("sampling_params.py", "SamplingParams")


def test_outputs_have_the_fields_that_we_read():
    assert {"token_ids", "finish_reason"} <= fields("outputs.py", "CompletionOutput")
    assert "outputs" in names(method("outputs.py", "RequestOutput", "__init__"))
    assert "prompt_token_ids" in fields("inputs/llm.py", "TokensPrompt")
