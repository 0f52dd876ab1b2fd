"""generate_responses and encode_prompt, by real `generate` of a tiny Qwen3 with random weights, in milliseconds."""

import io
import sys
from string import ascii_letters
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers.processors import TemplateProcessing
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3ForCausalLM
from trl import GRPOTrainer

from gar.errors import DataError, ModelError
from gar.models import generate
from gar.models.generate import Sampling, generate_responses
from gar.reader import encode_prompt
from gar.response import Response, TokenSequence
from tests.support.errors import raises
from tests.support.tiny import tiny_qwen3, word_tokenizer

WORDS = ["<pad>", "<eos>", "<turn>", "<unk>", "<think>", "</think>", *"0123456789", *"+-*=.:", *ascii_letters]
PROMPTS = ["1 + 2 =", "a b c d e f g h i j =", "7 =", "1 2 3 4 5 6 7 8 9 ="]
NEARLY_GREEDY = 1e-5
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }} : {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}a : {% if thinking is not defined or thinking %}<think> {% endif %}{% endif %}"
)


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer(WORDS, padding_side="right")


@pytest.fixture
def model() -> Qwen3ForCausalLM:
    return tiny_qwen3(
        WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        initializer_range=0.4, pad_token_id=None,
    )  # fmt: skip


@pytest.fixture
def prompt_ids(tokenizer):
    return [encode_prompt(tokenizer, prompt) for prompt in PROMPTS]


def always_next(model, token):
    """Make the model put all its probability on one token."""
    with torch.no_grad():
        model.model.norm.weight.zero_()  # so that the head's bias decides
        model.lm_head = torch.nn.Linear(32, model.config.vocab_size)
        model.lm_head.bias.fill_(-30.0)
        model.lm_head.bias[token] = 30.0
    return model


def sample(model, tokenizer, prompt_ids, **changes):
    others = {name: changes.pop(name) for name in ("tags", "progress") if name in changes}
    sampling = Sampling(**{"num_samples": 3, "max_new_tokens": 12, "seed": 5} | changes)
    return generate_responses(model, tokenizer, prompt_ids, sampling, **others)


def test_generate_responses_gives_the_wanted_counts_within_the_budget(model, tokenizer, prompt_ids):
    responses = sample(model, tokenizer, prompt_ids)
    assert [len(group) for group in responses] == [3, 3, 3, 3]
    eos = tokenizer.eos_token_id
    everything = [response for group in responses for response in group]
    for response in everything:
        assert response.truncated == (eos not in response.ids)
        assert response.num_tokens == len(response.ids) == (12 if response.truncated else response.ids.index(eos) + 1)
    assert {response.truncated for response in everything} == {True, False}  # the model above does both
    assert len({response.ids for response in everything}) > 8
    torch.manual_seed(99)  # the seed alone decides
    assert sample(model, tokenizer, prompt_ids, seed=6) != responses
    model.generation_config = GenerationConfig(  # unset in training, so ignored here
        eos_token_id=eos, suppress_tokens=[4, 5, 6], forced_eos_token_id=1, no_repeat_ngram_size=1
    )
    tokenizer.pad_token = None  # the end token takes its place
    assert sample(model, tokenizer, prompt_ids) == responses
    assert tokenizer.pad_token is None


def test_generate_responses_keeps_the_order_of_the_prompts_whatever_the_padding(model, tokenizer, prompt_ids):
    alone = [sample(model, tokenizer, [ids], temperature=NEARLY_GREEDY)[0] for ids in prompt_ids]
    for batch_size in (1, 3, 256):
        assert sample(model, tokenizer, prompt_ids, temperature=NEARLY_GREEDY, batch_size=batch_size) == alone
    assert len({group[0].ids for group in alone}) == len(PROMPTS)  # so that a mix-up would show
    ids = list(prompt_ids[1])  # as the model itself would go on
    for _ in range(12):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == tokenizer.eos_token_id:
            break
    assert alone[1][0].ids == tuple(ids[len(prompt_ids[1]) :])


def test_generate_responses_samples_from_the_softmax_at_its_temperature_and_top_p(model, tokenizer, prompt_ids):
    # With the checkpoint's own settings only one token would be left. Training ignores them.
    model.generation_config.update(top_k=1, repetition_penalty=5.0, min_p=0.9, bad_words_ids=[[7]])
    with torch.no_grad():
        logits = model(torch.tensor(prompt_ids[:1])).logits[0, -1]
    num_samples = 6000
    many = {"num_samples": num_samples, "batch_size": num_samples, "max_new_tokens": 1}
    for temperature in (1.0, 2.0):
        [group] = sample(model, tokenizer, prompt_ids[:1], temperature=temperature, **many)
        counts = torch.bincount(torch.tensor([response.ids[0] for response in group]), minlength=len(logits))
        expected = torch.softmax(logits / temperature, dim=-1)
        # Total variation of 6,000 draws from 74 outcomes is about 0.04 by chance; temperature 1 and 2 are 0.2 apart.
        assert float((counts / num_samples - expected).abs().sum()) / 2 < 0.05
    [group] = sample(model, tokenizer, prompt_ids[:1], top_p=0.5, **many)
    order = torch.softmax(logits, dim=-1).sort(descending=True)
    nucleus = int((order.values.cumsum(0) < 0.5).sum()) + 1
    assert {response.ids[0] for response in group} == set(order.indices[:nucleus].tolist())


def test_generate_responses_leaves_model_tokenizer_and_random_state_as_they_were(model, tokenizer, prompt_ids):
    model.train()
    model.model.layers[0].eval()
    model.gradient_checkpointing_enable()
    own_config, settings = model.generation_config, model.generation_config.to_dict()
    modes = [module.training for module in model.modules()]
    random_state = torch.get_rng_state()
    widths, graphs = [], []
    # In train mode gradient checkpointing switches the key-value cache off, which makes generation quadratic.
    model.model.embed_tokens.register_forward_hook(lambda module, inputs, output: widths.append(inputs[0].shape[1]))
    model.lm_head.register_forward_hook(lambda module, inputs, output: graphs.append(output.requires_grad))
    responses = sample(model, tokenizer, prompt_ids)
    assert widths == [11] + [1] * 11
    assert not any(graphs)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert model.generation_config is own_config
    assert own_config.to_dict() == settings
    assert [module.training for module in model.modules()] == modes
    assert model.is_gradient_checkpointing
    assert tokenizer.padding_side == "right"
    assert responses == sample(model.eval(), tokenizer, prompt_ids)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    assert responses == sample(adapted, tokenizer, prompt_ids)  # a fresh adapter changes nothing
    assert adapted.get_base_model().generation_config is own_config
    model.train()
    random_state = torch.get_rng_state()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = torch.nan
    with raises(ModelError, "not-finite"):
        sample(model, tokenizer, prompt_ids)
    assert model.generation_config is own_config
    assert model.training
    assert torch.equal(torch.get_rng_state(), random_state)


def test_generate_responses_ends_at_every_end_token_the_model_declares(model, tokenizer, prompt_ids):
    turn = tokenizer.convert_tokens_to_ids("<turn>")
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, turn]
    for end in (turn, tokenizer.eos_token_id):
        [[response]] = sample(always_next(model, end), tokenizer, prompt_ids[:1], num_samples=1)
        assert response == Response(sequence=TokenSequence(context_ids=prompt_ids[0], ids=(end,)), text="", empty=True)
    seven = tokenizer.convert_tokens_to_ids("7")
    [[response]] = sample(always_next(model, seven), tokenizer, prompt_ids[:1], num_samples=1, max_new_tokens=3)
    assert response == Response(
        sequence=TokenSequence(context_ids=prompt_ids[0], ids=(seven,) * 3), text="7 7 7", truncated=True
    )


@pytest.mark.parametrize("kwargs", [{}, {"thinking": False}])
def test_encode_prompt_gives_the_ids_that_trl_trains_on(tokenizer, kwargs):
    def of_trl(prompts):
        """TRL's token ids of prompts, without a trainer."""
        unused = dict.fromkeys(["environment_factories", "tools", "chat_template", "_is_vlm"])
        trainer = SimpleNamespace(processing_class=tokenizer, chat_template_kwargs=kwargs, **unused)
        return GRPOTrainer._tokenize_prompts(trainer, prompts)[0]

    turn = tokenizer.convert_tokens_to_ids("<turn>")  # a leading token, as Llama's tokenizer adds to plain text
    leading = TemplateProcessing(single="<turn> $A", special_tokens=[("<turn>", turn)])
    tokenizer.backend_tokenizer.post_processor = leading
    ids = [encode_prompt(tokenizer, prompt) for prompt in PROMPTS]
    assert ids == of_trl(PROMPTS)
    assert tokenizer.convert_ids_to_tokens(ids[2]) == ["<turn>", "7", "="]
    tokenizer.chat_template = CHAT_TEMPLATE
    prompts = [[{"role": "user", "content": text}] for text in PROMPTS]
    prompts[1].insert(0, {"role": "system", "content": "b"})
    ids = [encode_prompt(tokenizer, prompt, chat_template_kwargs=kwargs) for prompt in prompts]
    assert ids == of_trl(prompts)
    assert tokenizer.convert_ids_to_tokens(ids[0])[-1] == (":" if kwargs else "<think>")


def test_generate_responses_shows_progress_where_asked_on_one_rank(model, tokenizer, prompt_ids, monkeypatch):
    monkeypatch.setattr(generate, "TERMINAL_SECONDS", 0.0)
    monkeypatch.setattr(generate, "LINE_SECONDS", 0.0)
    for label, rank, is_terminal in (
        ("look", "0", True),
        ("look", "0", False),
        ("look", "1", False),
        (None, "0", True),
    ):
        stream = io.StringIO()
        stream.isatty = lambda on=is_terminal: on
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("RANK", rank)
        sample(model, tokenizer, prompt_ids, progress=label)
        shows = label is not None and rank == "0"
        assert ("look: 100%" in stream.getvalue() and "12/12" in stream.getvalue()) == shows
        assert shows or stream.getvalue() == ""


def test_what_cannot_be_sampled_is_an_error(model, tokenizer, prompt_ids):
    fitting = encode_prompt(tokenizer, "a " * 52)
    assert len(sample(model, tokenizer, [fitting], num_samples=1)) == 1
    with raises(DataError, "long-prompt") as caught:
        sample(model, tokenizer, [prompt_ids[0], [*fitting, fitting[0]]])
    assert "prompt 1 (counted from 0, 'a a a" in str(caught.value)
    with raises(DataError, "empty-prompt"):
        sample(model, tokenizer, [prompt_ids[0], []])
    with raises(ModelError, "no-chat-template"):
        encode_prompt(tokenizer, [{"role": "user", "content": "7 ="}])
    bad = {"num_samples": 0, "max_new_tokens": 0, "batch_size": -1, "top_p": 1.5, "temperature": float("nan")}
    for name, value in bad.items():
        with pytest.raises(ValueError, match="must be at least 1"):
            sample(model, tokenizer, prompt_ids, **{name: value})
    model.generate = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    with raises(ModelError, "memory", "7 responses of up to 12 tokens"):
        sample(model, tokenizer, prompt_ids, batch_size=7)
    tokenizer.eos_token = None
    with raises(ModelError, "no-end-token"):
        sample(model, tokenizer, prompt_ids)
