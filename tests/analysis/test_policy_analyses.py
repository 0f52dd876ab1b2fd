"""Analyses that need a model, on the embedded one."""

import copy
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from gar.analysis.gradient_space import anchored_plane, gradient_space, gradient_space_output
from gar.analysis.head_gradients import separating_threshold, token_gradients
from gar.analysis.policies import load_policy_of, read_sequences, recorded_groups, sampled_groups
from gar.analysis.propositions import ScoredGroups, reward_propositions
from gar.analysis.solutions import read_solutions
from gar.analysis.theory import check_theory, mirrored_pair, theory_output, two_word_counterexample
from gar.analysis.tokens import token_shares_of, tokens_output
from gar.analysis.tokens_page import TokenPage, render_tokens
from gar.data.arithmetic import load_arithmetic, write_solution
from gar.data.prompts import format_instruction
from gar.errors import ConfigError, DataError, RecordError
from gar.models.embedded import embedded_path
from gar.records.checkpoints import seal_checkpoint
from gar.rollouts.generate import Response
from gar.scoring import ResponseGroup, ResponseScore, SignalStatus
from gar.types import Problem
from tests.rows import rollout

PROBLEM = load_arithmetic("test")[0]


# ----------------------------------------------------------------------------------------------------- gradient space


def test_anchored_plane_keeps_distances_of_points_in_a_plane():
    generator = np.random.default_rng(0)
    flat = generator.normal(size=(6, 2)) @ generator.normal(size=(2, 10))
    anchor = flat[0]
    points, shown = anchored_plane(flat[1:], anchor)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), np.linalg.norm(flat[1:] - anchor, axis=1))
    assert shown == pytest.approx(1)


def test_anchored_plane_is_the_best_of_all_planes_through_the_anchor():
    generator = np.random.default_rng(1)
    vectors, anchor = generator.normal(size=(8, 4)), generator.normal(size=4)
    _, shown = anchored_plane(vectors, anchor)
    offsets = vectors - anchor
    for _ in range(50):
        plane, _ = np.linalg.qr(generator.normal(size=(4, 2)))
        assert np.square(offsets @ plane).sum() / np.square(offsets).sum() <= shown + 1e-12


def test_anchored_plane_of_one_point_lies_on_the_first_axis():
    points, shown = anchored_plane(np.array([[0.0, 3.0]]), np.array([0.0, 1.0]))
    np.testing.assert_allclose(points, [[2.0, 0.0]])
    assert shown == 1


def test_gradient_space_of_the_embedded_model(embedded):
    space = gradient_space(embedded, problem_id=PROBLEM.id, num_samples=8)
    distances = np.linalg.norm(space.points, axis=1)
    full = np.sqrt(2 - 2 * space.alignment)  # unit vectors
    assert (distances <= full + 1e-6).all()
    assert np.square(distances).sum() / np.square(full).sum() == pytest.approx(space.shown_fraction, rel=1e-5)
    output = gradient_space_output(space)
    assert sum(row[1] for row in output.rows) == 8


def test_analyses_without_expert_solutions_say_what_needs_none(embedded):
    bare = replace(embedded, problems=[replace(PROBLEM, anchors=())])
    for analyse in (gradient_space, token_shares_of, check_theory):
        with pytest.raises(DataError, match=r"none of its 1 problems has an expert solution.*need none"):
            analyse(bare)


@pytest.mark.parametrize("analyse", [gradient_space, token_shares_of])
def test_analyses_of_an_unknown_problem_name_some(embedded, analyse):
    with pytest.raises(DataError, match=r"no problem 'x-1'.*try test-0"):
        analyse(embedded, problem_id="x-1")


# ------------------------------------------------------------------------------------------------------------- tokens


def recorded(write_run):
    train = load_arithmetic("train")[0]
    texts = [write_solution(train, "stepwise", "words"), write_solution(train, "running", "symbols"), ""]
    records = [
        rollout(3, 0, i, problem_id=train.id, prompt=train.prompt, response=text, gold=train.answer, eligible=i < 2)
        for i, text in enumerate(texts)
    ]
    return write_run(records, config="model: {path: embedded}\n").path


def test_policy_of_a_run_without_a_final_model_is_its_newest_whole_checkpoint(write_run):
    run = write_run([rollout(1, 0, 0)], status="running")
    for step in (2, 10, 12):
        shutil.copytree(embedded_path(), run.checkpoints / f"checkpoint-{step}")
        if step < 12:
            seal_checkpoint(run, step)
    (run.checkpoints / "checkpoint-x").mkdir()
    (run.checkpoints / "checkpoint-x" / "config.json").write_text("{}")
    assert "There is no final model: checkpoint-10 is used instead." in load_policy_of(str(run.path)).notes


def test_tokens_of_a_run_add_up_to_the_alignment(write_run):
    policy = load_policy_of(str(recorded(write_run)))
    assert "The run has saved no model yet: embedded" in policy.notes[0]
    page = token_shares_of(policy)
    assert [response.response_index for response in page.responses] == sorted(
        (0, 1), key=lambda i: -{r.response_index: r.alignment for r in page.responses}[i]
    )
    for response in page.responses:
        known = [share for share in response.token_shares if share is not None]
        assert sum(known) == pytest.approx(response.alignment, abs=1e-5)
    assert any("1 of 3 responses are not scored: no tokens" in note for note in page.notes)
    output = tokens_output(page)
    assert output.data.num_rows == sum(len(response.tokens) for response in page.responses)


def test_a_model_is_analysed_with_the_template_and_the_format_asked_for():
    """Without them no response of a real model to a bare problem is in the think-answer format."""
    policy = load_policy_of(
        "embedded",
        settings={
            "data": {"template": "boxed"}, "verify": {"format": "boxed"}, "trl": {"max_completion_length": 7},
            "model": {"dtype": "bfloat16"},
        },
    )  # fmt: skip
    assert all(str(problem.prompt).endswith(f"{format_instruction('boxed')}\n\n") for problem in policy.problems)
    assert policy.signal.span == "response"  # what the format boxed implies
    assert policy.model.dtype == torch.bfloat16
    with pytest.raises(ConfigError, match=r"options: unknown key 'data\.temlpate'"):
        load_policy_of("embedded", settings={"data": {"temlpate": "boxed"}})


def test_sampled_groups_answer_what_the_runs_chat_template_gives(embedded):
    tokenizer = copy.deepcopy(embedded.tokenizer)
    tokenizer.chat_template = "{% if short %}3+4={% else %}3+4*7={% endif %}"
    config = embedded.config.model_copy(
        update={"trl": {"chat_template_kwargs": {"short": True}, "max_completion_length": 2}}
    )
    problem = Problem(id="one", prompt=[{"role": "user", "content": "?"}], answer="7")
    group = sampled_groups(replace(embedded, tokenizer=tokenizer, config=config), [problem], num_samples=1)[0]
    assert group.prompt == embedded.encode("3+4=")
    assert len(group.responses[0]) <= 2


def test_sampled_groups_are_graded_as_in_training(embedded, monkeypatch):
    """An expression copied from the prompt is no answer."""
    response = Response(ids=(1,), text="<think> easy </think> <answer> 6/4 </answer>", truncated=False)
    monkeypatch.setattr("gar.analysis.policies.generate_responses", lambda *args, **options: [[response]])
    problem = Problem(id="one", prompt="Reduce 6/4.", answer="3/2")
    assert sampled_groups(embedded, [problem], num_samples=1)[0].eligible == [False]


def test_recorded_groups_of_a_model_are_refused(embedded):
    with pytest.raises(RecordError, match="a model has no recorded rollouts"):
        recorded_groups(embedded)


def test_tokens_of_an_unknown_response_are_refused(write_run):
    policy = load_policy_of(str(recorded(write_run)))
    with pytest.raises(DataError, match="no alignment for response 9 of any of 1 problems"):
        token_shares_of(policy, response_index=9)


def hostile(tokens, shares) -> TokenPage:
    text = "<script>alert(1)</script> ‮ </textarea>"
    response = ResponseScore(
        id=text, group_index=0, response_index=0, status=None, answer=None, verified=True, well_formatted=True,
        eligible=True, signal=SignalStatus.SCORED, alignment=0.5, signal_norm=1.0, bonus=0.0, penalty=0.0, reward=1.0,
        advantage=0.0, num_tokens=len(tokens), num_scored_tokens=1, tokens=tokens, token_shares=shares,
    )  # fmt: skip
    return TokenPage(
        policy=text, origin=text, problem_id=text, prompt=text, expert=text, responses=[response], notes=[text]
    )


def test_render_tokens_shows_hostile_text_as_text():
    page = render_tokens(hostile(["<script>", "</div>", "'\"&"], [0.5, -0.25, None]))
    assert "<script" not in page.lower()
    assert "</textarea>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("</div>") == 5  # ours alone: of the pair, its two sides and two texts
    assert "default-src 'none'" in page
    ours = re.sub(r"<title>.*?</title>|<bdi>.*?</bdi>|<(div class=text|p class=(?:text|meta))[^>]*>[^<]*</", "", page)
    assert "\u202e" not in ours  # text that runs to the left turns none of the words around it


def test_render_tokens_shades_by_share_and_sign():
    page = render_tokens(hostile(["a", "b", "c"], [0.5, -0.25, None]))
    shaded = re.findall(r"<span class=(\w+)(?: style='--a:([\d.]+)')? title='([^']+)'>", page)
    named = "<span><bdi>&#x27;a&#x27;</bdi> +0.500</span>, <span><bdi>&#x27;b&#x27;</bdi> -0.250</span></p>"
    assert f"Largest shares: {named}" in page
    assert shaded == [("more", "0.75", "+0.5000"), ("less", "0.38", "-0.2500"), ("out", "", "outside the scored span")]


def test_render_tokens_shows_equal_responses_once():
    page = hostile(["a", "b"], [0.5, None])
    (one,) = page.responses
    responses = [one, replace(one, response_index=2, token_shares=[0.4, None]), replace(one, response_index=5)]
    page = render_tokens(replace(page, responses=responses))
    assert re.findall(r"<h2>(Responses? [^:]+):", page) == ["Responses 0, 5, all the same", "Response 2"]


def test_render_tokens_leaves_out_the_middle_of_a_huge_response_and_says_so():
    page = render_tokens(hostile(["x "] * 100_000, [1e-5] * 100_000))
    assert len(page) < 1_000_000
    assert "96,000 tokens are not shown; the data has them" in page


# -------------------------------------------------------------------------------------------------- labelled solutions


def test_read_solutions_names_the_line_that_lacks_a_column(tmp_path):
    path = tmp_path / "solutions.jsonl"
    path.write_text('{"prompt": "1+1=", "solution": "2", "method": "guess"}\n{"prompt": "1+1=", "solution": "2"}\n')
    with pytest.raises(DataError, match=r"solutions.jsonl:2: no 'method'\. Expected prompt, solution and method"):
        read_solutions(path)


# ------------------------------------------------------------------------------------------------------------- theory


def test_token_gradients_are_the_derivative_of_the_loss(embedded):
    group = ResponseGroup(id=PROBLEM.id, prompt=PROBLEM.prompt, responses=[PROBLEM.anchors[0].text],
                          anchors=[PROBLEM.anchors[0].text], eligible=[True])  # fmt: skip
    (read,) = read_sequences(embedded, [group])
    tokens = token_gradients(embedded.parts, read.sequences[0])
    raw = tokens.logits.clone().requires_grad_()
    torch.nn.functional.cross_entropy(raw, tokens.target_ids, reduction="sum").backward()
    torch.testing.assert_close(tokens.errors, raw.grad)


def test_check_theory_on_the_embedded_model(embedded):
    check = check_theory(embedded, num_problems=3, num_samples=4)
    statements = {p.name: p for p in check.propositions}
    for name in ("Proposition 1", "Corollary 1", "Theorem 3", "Proposition 2", "Proposition 3"):
        assert statements[name].in_general.startswith("true: "), name
        assert "holds for all" in statements[name].result, name
        assert "fails" not in statements[name].result, name
    data = {name: check.data[name].to_numpy() for name in check.data.column_names}
    for name in ("printed_bound", "printed_bound_of_largest", "proven_bound"):
        assert (np.abs(data["remainder"]) <= data[name] * (1 + 1e-9)).all()
    assert (np.abs(data["alignment"]) <= data["orthogonality_bound"]).all()
    assert (np.abs(data["normalised_kernel"]) <= 1 + 1e-9).all()
    assert (np.sign(data["anchor_loss_decrease"]) == np.sign(data["kernel"])).mean() > 0.9  # first order
    assert all(bool(p.counterexample) == p.in_general.startswith("false") for p in check.propositions)


def test_check_theory_counts_the_responses_that_it_leaves_out(embedded, monkeypatch):
    """An instruction-tuned model answers a bare problem with its end token."""
    group = sampled_groups(embedded, embedded.problems[:1], num_samples=1)[0]
    end = embedded.tokenizer.eos_token_id
    with_empty = replace(group, responses=[*group.responses, [end]], eligible=[False, False])
    monkeypatch.setattr("gar.analysis.theory.sampled_groups", lambda *args, **options: [with_empty])
    check = check_theory(embedded, num_problems=1, num_samples=2)
    assert check.num_responses == 1
    assert any("1 of 2 responses are left out: they are empty" in note for note in check.notes)


def test_theory_output_says_of_theorem_2_that_it_holds_here_and_is_false_in_general(embedded):
    check = check_theory(embedded, num_problems=3, num_samples=4)
    output = theory_output(check)
    (shown,) = [cells for cells in output.rows if str(cells[0]).startswith("Theorem 2:")]
    assert "constant 1: holds for all 12 pairs" in str(shown[1])
    assert "B_h^2 in both terms: holds for all 12 pairs" in str(shown[1])
    assert shown[2] == "false for every constant: counterexample. True with B_h^2 in both terms, B_h = max |h_t|"
    assert output.text is not None
    assert f"- on these rollouts: {shown[1]}\n- in general: {shown[2]}\n- counterexample: V = 2" in output.text


def test_theory_of_opposed_pairs_fails_whatever_the_constant(embedded):
    check = check_theory(embedded, num_problems=3, num_samples=4)
    (theorem,) = [p for p in check.propositions if p.name == "Theorem 1"]
    data = {name: check.data[name].to_numpy() for name in ("alignment", "normalised_kernel")}
    opposed = int(((data["alignment"] > 0) & (data["normalised_kernel"] < 0)).sum())
    assert opposed
    assert theorem.result.startswith(
        f"fails for {opposed} of 12 pairs, whatever c_1 > 0: cosine > 0 > kernel; rank correlation"
    )
    assert theorem.in_general == "false for every c_1 > 0: counterexample"


def test_counterexamples_are_those_of_the_documentation():
    parts = two_word_counterexample(4.0)
    assert (parts.remainder.item(), parts.printed_bound.item()) == pytest.approx((8.0, 2.0))
    assert mirrored_pair() == pytest.approx((1.0, -0.7996), abs=5e-5)


def test_separating_threshold_by_hand():
    # Relative sizes (1, 1/2, 0) and (1/4, 1, 1/5): the smaller of each dimension 1/4, 1/2, 0.
    assert separating_threshold(torch.tensor([[-2.0, 1.0, 0.0], [1.25, 5.0, 1.0]])) == 0.5
    assert separating_threshold(torch.tensor([[0.0, 0.0], [1.0, 1.0]])) == 0


def test_separating_threshold_is_the_smallest_at_which_supports_are_disjoint():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        vectors = torch.randn(2, 7, dtype=torch.float64, generator=generator)
        eps = separating_threshold(vectors)
        relative = vectors.abs() / vectors.abs().amax(1, keepdim=True)
        assert not (relative > eps).all(0).any()
        assert (relative > eps * (1 - 1e-9)).all(0).any()
        assert torch.nn.functional.cosine_similarity(*vectors, dim=0).abs() <= 2 * eps * 7


def test_reward_propositions_by_hand():
    scored = ScoredGroups(
        eligible=torch.tensor([True, True, False, True, True]),
        alignment=torch.tensor([0.6, 0.2, 0.9, 0.5, 0.1], dtype=torch.float64),
        group_index=torch.tensor([0, 0, 0, 1, 1]),
    )
    statements = {p.name: p for p in reward_propositions(scored)}
    assert {name: p.result for name, p in statements.items()} == {
        "Theorem 3": "(i) holds for all 4 responses inside; (ii) holds for all 1 mixed groups",
        "Theorem 3, for right answers": "a right answer in bad format gets -0.6, a wrong one in good format 0.0",
        "Theorem 3 (i), carried over to advantages": "fails for 2 of 4 correct responses, each group normalised alone",
        "Proposition 2": "holds for all 2 groups",
        "Proposition 2, its proof": "fails for 2 of 2 groups",
        "Proposition 3": "holds for all 2 groups, at most 0e+00",
        "Appendix G.4": "fails for 2 of 2 groups: mean reward 1.0500, 1 without the bonus",
        "Proposition 4, its reason": "fails for 1 of 1 responses below the mean",
    }
    assert "0.0025 against 0.0100" in statements["Proposition 2, its proof"].counterexample


def test_reward_propositions_without_cases_claim_nothing():
    """Proposition 2 speaks of groups whose bonuses differ: a copy is no evidence for or against it."""
    scored = ScoredGroups(
        eligible=torch.tensor([True, True, False]),
        alignment=torch.tensor([0.3, 0.3, 0.1], dtype=torch.float64),
        group_index=torch.tensor([0, 0, 0]),
    )
    assert {p.name: p.result for p in reward_propositions(scored)}["Proposition 2"] == "not tested: no groups"
    wrong = replace(scored, eligible=torch.tensor([False, False, False]))
    results = {p.name: p.result for p in reward_propositions(wrong)}
    assert "-0.6" in results.pop("Theorem 3, for right answers")  # it needs no rollouts
    assert all("not tested: no" in result and "holds" not in result for result in results.values()), results
