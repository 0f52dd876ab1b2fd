"""Makes the checkpoint of an embedded task: a tiny Qwen3, trained from scratch on one CPU thread.

    python -m paper.tasks.make_model --task arithmetic --out src/gar/assets/arithmetic-qwen3

The rows are drawn on the fly and never hold a problem of the test splits. Two runs on the same machine with the same
library versions write the same bytes. `paper/tasks/embedded.md` states the time and what the model can do.
"""

import argparse
import itertools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from gar import Anchor, Problem, Tags
from gar.data import arithmetic
from paper.tasks import chains, long_chains
from paper.tasks.chains import TASKS
from paper.tasks.guide import guided_copy

BATCH_ROWS, PEAK_LR, WARMUP_STEPS = 32, 2e-3, 100
BATCHES_PER_DRAW = 16  # rows are drawn so many batches at a time and sorted by length: less padding
TOKENS_PER_ROW = 16  # about the mean, and constant, so that written tokens have the same weight in every batch
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
JUDGED_FRACTION, PRIVILEGED_FRACTION = 0.1, 0.1
JUDGED_SLIP_FRACTION = 0.2
VERDICT_WEIGHT, CHECK_WEIGHT = 4.0, 3.0  # a judged row teaches a single token
GUIDED_SHARES = (0.25, 0.5, 0.75)  # of the solution, as in `paper.tasks.guide`
FOLLOW_FRACTION = 0.95  # how often a privileged row repeats the expert solution


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """What rows look like for some steps: shares of the methods, errors per step, wordings, broken formats.

    `habit_fraction` is how often the method of that role reverses a subtraction below zero. `guided_fraction` is the
    share of prompts that hold the beginning of a solution by the expert's method.
    """

    num_steps: int
    method_share: Mapping[chains.Role, float]
    slip_fraction: Mapping[chains.Role, float]
    habit_fraction: float = 0.97
    usual_wording: Mapping[chains.Role, arithmetic.Wording] = field(default_factory=dict)
    format_error_fraction: float
    imitate_slips: bool
    guided_fraction: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A task's phases, and the seed of its weights and rows."""

    task: chains.ChainTask
    phases: tuple[Phase, ...]
    seed: int
    num_operations: Sequence[int] = (2, 2, 3, 3, 4, 4, 5, 6)


USUAL_FRACTION = 0.97  # how often a method has its usual wording, where it has one
ARITHMETIC = Phase(  # first the arithmetic: the model reads and checks slips, but never learns them
    num_steps=3000,
    method_share={"expert": 0.5, "habit": 0.5, "guess": 0.0},
    slip_fraction={"expert": 0.2, "habit": 0.2, "guess": 0.0},
    format_error_fraction=0.0,
    imitate_slips=False,
)
MIXTURE = Phase(  # then the base model's habits
    num_steps=1200,
    method_share={"expert": 0.06, "habit": 0.70, "guess": 0.24},
    slip_fraction={"expert": 0.35, "habit": 0.05, "guess": 0.0},
    format_error_fraction=0.07,
    imitate_slips=True,
)
WAYS = replace(  # a habit with exceptions would be unlearned, and the method kept
    MIXTURE, slip_fraction={"expert": 0.35, "habit": 0.02, "guess": 0.0}, habit_fraction=1.0
)
VOICES = replace(WAYS, usual_wording={"expert": "symbols", "habit": "words"})
RECIPES = {
    "arithmetic": Recipe(task=TASKS["arithmetic"], phases=(ARITHMETIC, MIXTURE), seed=2),
    "which-way": Recipe(task=TASKS["which-way"], phases=(ARITHMETIC, WAYS), seed=3),
    "whose-voice": Recipe(task=TASKS["whose-voice"], phases=(ARITHMETIC, VOICES), seed=4),
    "long-chains": Recipe(
        task=TASKS["arithmetic"],
        phases=tuple(replace(phase, guided_fraction=0.25) for phase in (ARITHMETIC, MIXTURE)),
        seed=5,
        num_operations=(2, 3, 4, 5, 6, 7, 8, *long_chains.NUM_OPERATIONS, *long_chains.NUM_OPERATIONS),
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The text that the model reads, and the text that it learns to write after it.

    `checks` holds for each value in the row whether it is right, `unlearned` the values that are not to be learned.
    """

    read: str
    write: str
    checks: tuple[bool, ...] = ()
    unlearned: tuple[bool, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Tensors (rows, tokens). Checks hold 1 (right) or 0 (wrong) after a value or after a whole solution, else -1."""

    input_ids: torch.Tensor
    weights: torch.Tensor
    value_checks: torch.Tensor
    solution_checks: torch.Tensor


def make_tokenizer(task: chains.ChainTask) -> PreTrainedTokenizerFast:
    """One token per digit, symbol, word and tag. The tags are ordinary tokens, so that decoding keeps them."""
    symbols = [symbol for symbol in chains.WORD_OF if symbol != chains.PLACEHOLDER or "padded" in task.methods]
    words = [*"0123456789", *symbols, *(chains.WORD_OF[symbol] for symbol in symbols), *TAGS]
    words += [chains.SEPARATOR, chains.VERDICT_RIGHT, chains.VERDICT_WRONG]
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<eos>", "<unk>", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    pieces = pre_tokenizers.Split(Regex(r"</?[a-z]+>|[a-z]+|\S"), behavior="isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pieces])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Random weights. The head is not tied to the embeddings, as in Qwen3-8B."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        initializer_range=0.08,  # the default 0.02 learns several times slower at this width
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def draw_row(rng: random.Random, recipe: Recipe, phase: Phase, held_out: set[str]) -> Row:
    """A plain, guided, judged or privileged row about a problem outside the held-out ones."""
    task = recipe.task
    problem = task.draw(rng, rng.choice(recipe.num_operations))
    while problem.prompt in held_out:
        problem = task.draw(rng, rng.choice(recipe.num_operations))
    if phase.guided_fraction and rng.random() < phase.guided_fraction:
        return draw_guided_row(rng, task, phase, problem)
    kind = rng.random()
    if kind < JUDGED_FRACTION:
        return draw_judged_row(rng, task, phase, problem)
    if kind < JUDGED_FRACTION + PRIVILEGED_FRACTION and rng.random() < FOLLOW_FRACTION:
        return Row(read=chains.privileged_prompt(problem), write=problem.anchors[0].text)
    response = draw_response(rng, task, phase, problem)
    if kind < JUDGED_FRACTION + PRIVILEGED_FRACTION:
        return Row(read=chains.privileged_prompt(problem), write=response.write)
    return response


def draw_response(rng: random.Random, task: chains.ChainTask, phase: Phase, problem: Problem) -> Row:
    """One response of any method and wording, with errors and now and then a broken format."""
    (role,) = rng.choices(list(phase.method_share), list(phase.method_share.values()))
    values, slips = draw_values(rng, problem, role, phase.slip_fraction[role], phase.habit_fraction)
    wording = rng.choice(arithmetic.WORDINGS)
    if role in phase.usual_wording and rng.random() < USUAL_FRACTION:
        wording = phase.usual_wording[role]
    solution = chains.write_solution(problem, task.method_of(role, problem), wording, values=values)
    broken = rng.random() < phase.format_error_fraction
    return Row(
        read=str(problem.prompt),
        write=break_format(rng, solution) if broken else solution,
        checks=check(problem, role, values),
        unlearned=() if phase.imitate_slips else slips,
    )


def draw_guided_row(rng: random.Random, task: chains.ChainTask, phase: Phase, problem: Problem) -> Row:
    """A prompt that holds the beginning of a solution by the expert's method, and the rest of it."""
    values, slips = draw_values(rng, problem, "expert", phase.slip_fraction["expert"], 0.0)
    solution = chains.write_solution(
        problem, task.expert_method(problem), rng.choice(arithmetic.WORDINGS), values=values
    )
    shown = replace(problem, anchors=(Anchor(text=solution),))
    guided = guided_copy(shown, rng.choice(GUIDED_SHARES), long_chains.WORDING, Tags()) or shown
    return Row(
        read=str(guided.prompt),
        write=guided.anchors[0].text,
        checks=check(problem, "expert", values),
        unlearned=() if phase.imitate_slips else slips,
    )


def draw_values(
    rng: random.Random, problem: Problem, role: chains.Role, slip_fraction: float, habit_fraction: float
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """The values that a response of this method writes, and its slips. A guess is a uniform digit."""
    if role == "guess":
        return tuple(rng.randrange(10) for _ in arithmetic.running_values(problem)), ()
    return chains.draw_values(
        problem, rng, slip_fraction=slip_fraction, habit_fraction=habit_fraction if role == "habit" else 0.0
    )


def check(problem: Problem, role: chains.Role, values: tuple[int, ...]) -> tuple[bool, ...]:
    """Whether each value that a solution shows is right: it follows from the one before, or guesses the answer."""
    return (values[-1] == int(problem.answer),) if role == "guess" else chains.right_steps(problem, values)


def break_format(rng: random.Random, response: str) -> str:
    """Drops a tag, drops the answer, or writes the answer without tags."""
    working, _, answer = response.partition(" <answer>")
    tag = rng.choice(TAGS)
    return rng.choice([response.replace(f"{tag} ", "").replace(f" {tag}", ""), working, working + answer[:2]])


def draw_judged_row(rng: random.Random, task: chains.ChainTask, phase: Phase, problem: Problem) -> Row:
    """Problem, solution, separator, and the verdict to learn. Half of the solutions of each method are right."""
    role, wording = rng.choice(chains.ROLES), rng.choice(arithmetic.WORDINGS)
    right_values = values = arithmetic.running_values(problem)
    if rng.random() < 0.5:
        while values[-1] == right_values[-1]:
            values, _ = draw_values(rng, problem, role, JUDGED_SLIP_FRACTION, phase.habit_fraction)
    solution = chains.write_solution(problem, task.method_of(role, problem), wording, values=values)
    verdict = chains.VERDICT_RIGHT if values[-1] == right_values[-1] else chains.VERDICT_WRONG
    read = chains.judge_prompt(problem, solution)
    return Row(read=read, write=verdict, checks=check(problem, role, values))


def draw_batches(
    rng: random.Random,
    recipe: Recipe,
    phase: Phase,
    tokenizer: PreTrainedTokenizerFast,
    held_out: set[str],
) -> list[Batch]:
    """Some batches of rows of similar length, padded on the right. Only the written part and <eos> have weight."""
    rows = [draw_row(rng, recipe, phase, held_out) for _ in range(BATCH_ROWS * BATCHES_PER_DRAW)]
    reads = tokenizer([row.read for row in rows])["input_ids"]
    writes = tokenizer([row.write for row in rows])["input_ids"]
    encoded = sorted(zip(reads, writes, rows, strict=True), key=lambda row: len(row[0]) + len(row[1]))
    batches = [
        make_batch(encoded[start : start + BATCH_ROWS], tokenizer) for start in range(0, len(encoded), BATCH_ROWS)
    ]
    rng.shuffle(batches)
    return batches


def make_batch(encoded: list[tuple[list[int], list[int], Row]], tokenizer: PreTrainedTokenizerFast) -> Batch:
    """The tensors of some rows, each one given as its read ids, its written ids and itself."""
    equals = tokenizer.convert_tokens_to_ids(["=", "is"])
    digits = tokenizer.convert_tokens_to_ids([*"0123456789"])
    shape = (len(encoded), max(len(read) + len(write) for read, write, _ in encoded) + 1)
    input_ids, weights = torch.full(shape, tokenizer.pad_token_id), torch.zeros(shape)
    value_checks, solution_checks = torch.full(shape, -1), torch.full(shape, -1)
    for index, (read, write, row) in enumerate(encoded):
        ids = torch.tensor([*read, *write, tokenizer.eos_token_id])
        input_ids[index, : len(ids)] = ids
        weights[index, len(read) : len(ids)] = VERDICT_WEIGHT if len(write) == 1 else 1.0
        pairs = enumerate(itertools.pairwise(ids.tolist()), start=1)
        places = torch.tensor([place for place, (sign, value) in pairs if sign in equals and value in digits])
        if row.unlearned:
            weights[index, places[torch.tensor(row.unlearned)]] = 0.0
        if row.checks:
            value_checks[index, places] = torch.tensor(row.checks).long()
            ends = input_ids[index] == tokenizer.convert_tokens_to_ids("</answer>")
            solution_checks[index, ends] = int(all(row.checks))
    return Batch(input_ids=input_ids, weights=weights, value_checks=value_checks, solution_checks=solution_checks)


def loss_of(model: Qwen3ForCausalLM, batch: Batch, verdict_ids: list[int]) -> torch.Tensor:
    """Weighted cross-entropy of the written tokens, plus the checks that teach the model to judge.

    The verdicts of a tenth of the rows, one token each, teach nothing. So every row trains the logits of the two
    verdict tokens, against each other alone, which never makes a verdict likelier than the other tokens: after each
    value, one layer before the end, and after the solution, where the last layer can gather the values.
    """
    out = model(input_ids=batch.input_ids, use_cache=False, output_hidden_states=True)
    losses = F.cross_entropy(out.logits[:, :-1].transpose(1, 2), batch.input_ids[:, 1:], reduction="none")
    early_logits = model.lm_head(model.model.norm(out.hidden_states[-2]))
    checks = [(early_logits, batch.value_checks), (out.logits, batch.solution_checks)]
    check_loss = sum(
        F.cross_entropy(logits[target >= 0][:, verdict_ids], target[target >= 0], reduction="sum")
        for logits, target in checks
    )
    return ((losses * batch.weights[:, 1:]).sum() + CHECK_WEIGHT * check_loss) / (BATCH_ROWS * TOKENS_PER_ROW)


def learning_rate_at(step: int, num_steps: int) -> float:
    """Linear warm-up, then constant, then linear decay over the second half."""
    return PEAK_LR * min(1.0, (step + 1) / WARMUP_STEPS, 2 * (num_steps - step) / num_steps)


def train(recipe: Recipe) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Trains from random weights with AdamW, one phase after the other."""
    task, phases = recipe.task, recipe.phases
    torch.manual_seed(recipe.seed)
    rng = random.Random(recipe.seed)
    held_out = {str(p.prompt) for split in ("test", "harder") for p in chains.load_task(task.name, split)}
    held_out |= {str(problem.prompt) for problems in long_chains.long_chains().values() for problem in problems}
    tokenizer = make_tokenizer(task)
    verdict_ids = tokenizer.convert_tokens_to_ids([chains.VERDICT_WRONG, chains.VERDICT_RIGHT])
    model = make_model(tokenizer).train()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    num_steps, step, start = sum(phase.num_steps for phase in phases), 0, time.perf_counter()
    for phase in phases:
        batches: list[Batch] = []
        for _ in range(phase.num_steps):
            batches = batches or draw_batches(rng, recipe, phase, tokenizer, held_out)
            optimizer.param_groups[0]["lr"] = learning_rate_at(step, num_steps)
            loss_of(model, batches.pop(), verdict_ids).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 250 == 0:
                print(f"step {step}/{num_steps} {time.perf_counter() - start:.0f} s", flush=True)
    return model.eval(), tokenizer


def main() -> None:
    """Parses the command line, trains and writes the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=RECIPES, default="arithmetic", help="default: %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model, tokenizer = train(RECIPES[args.task])
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    weights = args.out / "model.safetensors"
    weights.chmod(0o644)
    print(f"{model.num_parameters():,} parameters, {weights.stat().st_size:,} bytes of weights in {args.out}")


if __name__ == "__main__":
    main()
