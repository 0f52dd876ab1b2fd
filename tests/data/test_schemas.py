from gar.data.problems import problems_of
from gar.data.schemas import choose_schema, read_problem
from gar.errors import DataError
from gar.settings import SourceSettings
from gar.types import Anchor, Problem
from gar.verify import Verifier, last_boxed
from tests.support.errors import raises

NUMINA_COT = {
    "source": "synthetic_math",
    "problem": "What is $1+1$?",
    "solution": "We add.\nThe sum is $\\boxed{2}$.",
    "messages": [{"role": "user", "content": "What is $1+1$?"}, {"role": "assistant", "content": "..."}],
}
NUMINA_15 = {
    "problem": "What is $1+1$?",
    "solution": "We add one and one.",
    "answer": "2",
    "problem_type": "Algebra",
    "question_type": "math-word-problem",
    "problem_is_valid": "Yes",
    "solution_is_valid": "Yes",
    "source": "olympiads",
    "synthetic": False,
}
GSM8K = {
    "question": "Half of 48 and 48?",
    "answer": "Half is 48/2 = <<48/2=24>>24.\nTogether 48*100 = $<<48*100=4800>>4,800.\n#### 4,800",
}
OURS = {"id": "n-7", "prompt": "3+4=", "answer": "7", "expert_solution": "3 + 4 = 7", "source": "ours"}


def read(row, **overrides):
    schema = choose_schema(row, SourceSettings(**overrides), source="f.jsonl")
    return read_problem(row, schema, place="f.jsonl:3", default_id="f-3", default_source="f")


def test_choose_schema_detects_the_published_columns_and_names_what_is_missing():
    for row, name in ((NUMINA_COT, "numina-cot"), (NUMINA_15, "numina-1.5"), (GSM8K, "gsm8k"), (OURS, "gar")):
        assert choose_schema(row, source="f.jsonl").name == name
    for columns, words in (
        (["promt", "answer"], ("Did you mean 'promt'?", "--prompt-field")),
        (["question", "anwser"], ("Did you mean 'anwser'?", "--answer-field")),
        (["a", "b"], ("'a', 'b'", "gar (prompt, answer), numina-1.5 ")),
        ([], ()),
    ):
        with raises(DataError, None, *words):
            choose_schema(columns, source="f.jsonl")
    with raises(DataError):
        choose_schema(OURS, SourceSettings(column_schema="gsm8k"), source="f.jsonl")


def test_read_problem_reads_the_published_columns():
    assert read(NUMINA_COT) == Problem(
        id="f-3",
        prompt="What is $1+1$?",
        answer="2",
        anchors=(Anchor(text="We add.\nThe sum is $\\boxed{2}$."),),
        source="synthetic_math",
    )
    problem = read({name: value for name, value in NUMINA_15.items() if not name.endswith("is_valid")})
    assert read(NUMINA_15) == problem
    assert (problem.answer, problem.anchors[0].text, problem.source) == ("2", "We add one and one.", "olympiads")
    problem = read(GSM8K)
    assert problem.answer == "4800"
    assert problem.anchors == (Anchor(text="Half is 48/2 = 24.\nTogether 48*100 = $4,800."),)


def test_read_problem_drops_unusable_rows():
    for row, change, reason in (
        (NUMINA_15, {"problem_is_valid": "Incomplete"}, "problem_is_valid is not Yes"),
        (NUMINA_15, {"solution_is_valid": None}, "solution_is_valid is not Yes"),
        (NUMINA_15, {"question_type": "proof"}, "question_type is proof"),
        (NUMINA_15, {"answer": "notfound"}, "the answer is empty, 'proof' or 'notfound'"),
        (NUMINA_15, {"answer": None}, "the answer is empty, 'proof' or 'notfound'"),
        (NUMINA_15, {"problem": "  "}, "the prompt is empty"),
        (NUMINA_COT, {"solution": "It is \\boxed{2"}, "no \\boxed{} in the solution"),
        (GSM8K, {"answer": "no idea"}, "nothing after #### in the answer"),
    ):
        assert read(row | change) == reason


def test_read_problem_takes_the_first_expert_field_that_is_not_empty():
    assert [a.text for a in read(OURS | {"expert_solution": ["one", "", None, "two"]}).anchors] == ["one", "two"]
    row = OURS | {"expert_solution": "third", "human": " ", "teacher": "second", "other": "never"}
    fields = ("human", "teacher", "expert_solution", "other")
    assert read(row, expert_fields=fields).anchors == (Anchor(text="second"),)
    assert read(row, expert_fields=("nowhere", "other")).anchors == (Anchor(text="never"),)
    for value in (None, "", "  \n", [], ["", None]):
        assert read(OURS | {"expert_solution": value}).anchors == ()
    assert read({"prompt": "3+4=", "answer": "7"}).anchors == ()


def test_read_problem_reads_named_fields_as_plain_columns():
    row = {"task": "3+4=", "answer": "18 #### 7", "gold": 7}
    problem = read(row, prompt_field="task", answer_field="gold")
    assert (problem.prompt, problem.answer) == ("3+4=", "7")
    assert read(row, prompt_field="task", column_schema="gsm8k").answer == "7"
    assert read(row, prompt_field="task").answer == "18 #### 7"
    for value, text in ((18, "18"), (18.0, "18"), (0.5, "0.5"), (-3, "-3"), (" 18 ", "18")):
        assert read(OURS | {"answer": value}).answer == text


def test_read_problem_drops_what_its_data_set_marks_whichever_columns_are_named():
    for named in ({}, {"prompt_field": "problem"}, {"prompt_field": "problem", "answer_field": "answer"}):
        assert read(NUMINA_15 | {"problem_is_valid": "Incomplete"}, **named) == "problem_is_valid is not Yes"
        assert read(NUMINA_15 | {"question_type": "proof"}, **named) == "question_type is proof"
    assert read(OURS | {"problem_is_valid": "Yes"}).answer == "7"


def test_read_problem_reads_nested_columns_and_lists_of_values():
    """verl's layout, and OlympiadBench's."""
    row = {"prompt": "3+4=", "reward_model": {"ground_truth": "7"}, "extra": {"solution": "3 + 4 = 7"}}
    problem = read(row, answer_field="reward_model.ground_truth", expert_fields=("extra.solution",))
    assert (problem.answer, problem.anchors) == ("7", (Anchor(text="3 + 4 = 7"),))
    (problem,) = problems_of([row], SourceSettings(answer_field="reward_model.ground_truth"))
    assert problem.answer == "7"
    with raises(DataError, None, "f.jsonl:3: no column 'reward_model.truth'"):
        read(row, answer_field="reward_model.truth")
    with raises(DataError, None, "no column 'reward.truth'"):
        read(row, answer_field="reward.truth")
    for value, text in ((["$7$"], "$7$"), (["3", -5], "3, -5"), (["3", None, ""], "3")):
        assert (
            read({"question": "?", "final_answer": value}, prompt_field="question", answer_field="final_answer").answer
            == text
        )
    assert read(OURS | {"answer": [None]}) == "the answer is empty"


def test_a_column_of_expert_solutions_is_not_taken_for_gsm8k():
    row = {"question": "3+4=", "answer": "7", "expert_solution": "3 + 4 = 7"}
    problem = read(row)
    assert (problem.prompt, problem.answer, problem.anchors) == ("3+4=", "7", (Anchor(text="3 + 4 = 7"),))
    assert read(row | {"prompt": "Add."}).prompt == "Add."
    assert (
        read({name: value for name, value in row.items() if name != "expert_solution"})
        == "nothing after #### in the answer"
    )


def test_boxes_that_belong_together_are_one_answer_that_the_verifier_reads():
    cases = {
        r"So $x=\boxed{3}$ or $x=\boxed{-5}$.": "3, -5",
        r"\boxed{3}, \boxed{ -5 }": "3, -5",
        r"$\boxed{3}$\text{ or }$\boxed{-5}$": "3, -5",
        r"The pairs are $\boxed{(1,2)}$ and $\boxed{(3,4)}$.": "(1,2), (3,4)",
        r"\boxed{1} or \boxed{2}. For the rest $y=\boxed{3}$ or $y=\boxed{-5}$": "3, -5",
        r"Here \boxed{3}. Then \boxed{-5}.": "-5",
        r"The side is \boxed{3} and so the area is \boxed{9}.": "9",
        r"\boxed{3} and again \boxed{3}": "3",
        r"\boxed{\boxed{3}}": "3",
        r"\boxed{3} or \boxed{-5": "3",
    }
    for solution, answer in cases.items():
        assert last_boxed(solution) == answer, solution
        assert read(NUMINA_COT | {"solution": solution}).answer == answer
    with Verifier(num_workers=1) as verifier:
        given = ["-5, 3", r"\boxed{3} or \boxed{-5}", "3", "-5"]
        graded = verifier.grade_answers(given, ["3, -5"] * 4, [""] * 4)
    assert [outcome.status for outcome in graded] == ["ok", "ok", "wrong", "wrong"]


def test_read_problem_keeps_chat_messages_and_the_white_space_of_a_prompt():
    """The line break at the end keeps a byte-pair tokenizer from joining the prompt and the response's first tag."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3+4="}]
    assert read(OURS | {"prompt": messages}).prompt == messages
    assert read(OURS | {"prompt": [{"role": "user", "content": " "}]}) == "the prompt is empty"
    for row, column in ((OURS, "prompt"), (GSM8K, "question")):
        assert read(row | {column: " How many?\n"}).prompt == " How many?\n"


def test_read_problem_names_place_column_and_type_of_a_wrong_value():
    for change, column, got in (
        ({"answer": True}, "'answer'", "bool"),
        ({"answer": [["7"]]}, "'answer'", "list"),
        ({"answer": float("nan")}, "'answer'", "nan"),
        ({"answer": float(2**53 + 2)}, "'answer'", "lost digits"),  # as `datasets` reads integers beyond 64 bits
        ({"prompt": 17}, "'prompt'", "int"),
        ({"prompt": {"text": "3+4="}}, "'prompt'", "dict"),
        ({"prompt": ["3+4="]}, "'prompt'", "3+4="),
        ({"prompt": [{"role": "user", "content": None}]}, "'prompt'", "NoneType"),
        ({"expert_solution": [["a"]]}, "'expert_solution'", "list"),
        ({"id": {"a": 1}}, "'id'", "dict"),
        ({"prompt": "a\ud800b"}, "'prompt'", ""),
    ):
        with raises(DataError, None, "f.jsonl:3: column ", column, got):
            read(OURS | change)
    schema = choose_schema(OURS, source="f.jsonl")
    with raises(DataError, None, "f.jsonl:9: ", "'answer'"):
        read_problem({"prompt": "a", "solution": "b"}, schema, place="f.jsonl:9", default_id="", default_source="")
