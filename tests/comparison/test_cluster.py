"""Runs as jobs of a cluster: submitit's own executors, and a cluster that loses jobs."""

import signal
import sys
from contextlib import contextmanager

import pytest

from gar.comparison import cluster, runner
from gar.comparison.cluster import Cluster, run_on_cluster
from gar.comparison.store import failures, finished_results, write_failure, write_result
from gar.errors import ConfigError, RecordError
from tests.comparison.finished import result
from tests.comparison.test_runner import PYTHONPATH, STAND_IN, Events


class Jobs(Events):
    def submitted(self, run, job):
        self.seen.append(f"job {job}: {run.title}")

    def left(self, jobs):
        self.seen.append(f"left {' '.join(jobs)}")


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # submitit's logs
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_job_of_the_debug_executor_tries_a_failed_run_once_more(plan, monkeypatch):
    monkeypatch.setattr(runner, "_CHILD", STAND_IN)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    _, planned = plan(seeds=[12], runs=["grpo"])  # fails the first time
    events = Jobs()
    run_on_cluster(planned, {}, cluster=Cluster(executor="debug"), progress=events)
    assert [line.partition(" ")[0] for line in events.seen] == ["job", "finished"]
    assert (list(finished_results(planned)), failures(planned)) == ([("grpo", 12)], {})


class Job:
    """What becomes of a run once somebody asks for the job the second time."""

    def __init__(self, name, cell, fate):
        self.job_id, self._cell, self._fate, self._asked = name, cell, fate, 0

    def done(self):
        self._asked += 1
        if self._asked == 2 and self._fate in ("ok", "other problems"):
            made = result(self._cell.run, {"test": [1, 2]}, problem_ids=("p1", self._fate))
            write_result(self._cell.run, made)
        if self._asked == 2 and self._fate == "failed":
            write_failure(self._cell.run, "exit status 1", ["its last line"])
        return self._asked >= 2

    def exception(self):
        return RuntimeError("lines of the job\nslurmstepd: node failure") if self._fate == "died" else None

    def stderr(self):
        return "no more than this"


@pytest.fixture
def fates(monkeypatch):
    """The cluster that gives each job in turn its fate."""
    left = []

    class Executor:
        submitted = 0

        @contextmanager
        def batch(self):
            yield

        def submit(self, cell):
            self.submitted += 1
            return Job(str(self.submitted), cell, left.pop(0))

    monkeypatch.setattr(cluster, "_executor", lambda *arguments: Executor())
    monkeypatch.setattr(cluster, "_POLL_SECONDS", 0)
    return left


def test_a_job_that_died_is_submitted_once_more_and_one_that_failed_is_not(plan, fates):
    _, planned = plan(seeds=[0, 1])
    fates[:] = ["died", "failed", "nothing", "ok", "died", "ok"]
    events = Jobs()
    run_on_cluster(planned, {}, cluster=Cluster(executor="slurm"), progress=events)
    assert events.seen == [
        "job 1: grpo, seed 0", "job 2: gar-grpo, seed 0", "job 3: grpo, seed 1", "job 4: gar-grpo, seed 1",
        "failed once grpo, seed 0: job 1 ended without a result", "job 5: grpo, seed 0",
        "failed gar-grpo, seed 0: exit status 1",
        "failed once grpo, seed 1: job 3 ended without a result", "job 6: grpo, seed 1",
        "finished gar-grpo, seed 1",
        "failed grpo, seed 0: job 5 ended without a result",
        "finished grpo, seed 1",
    ]  # fmt: skip
    written = failures(planned)
    assert set(written) == {("grpo", 0), ("gar-grpo", 0)}
    assert written["grpo", 0].last_lines == ["lines of the job", "slurmstepd: node failure"]


def test_ctrl_c_leaves_the_jobs_to_the_cluster_and_names_them(plan, fates, monkeypatch):
    _, planned = plan(seeds=[0])
    fates[:] = ["ok", "ok"]
    events = Jobs()
    monkeypatch.setattr(events, "finished", lambda *arguments: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_on_cluster(planned, {}, cluster=Cluster(executor="slurm"), progress=events)
    assert events.seen[-1] == "left 2"


def test_results_of_jobs_that_are_not_paired_stop_the_comparison(plan, fates):
    _, planned = plan(seeds=[0])
    fates[:] = ["ok", "other problems"]
    with pytest.raises(RecordError, match="of seed 0 were not trained on the same problems"):
        run_on_cluster(planned, {}, cluster=Cluster(executor="slurm"), progress=Jobs())


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        (Cluster(executor="slurm"), r"^--executor slurm: .*srun"),
        (
            Cluster(executor="local", parameters={"partion": "gpu"}),
            r"^--executor local: Unknown argument 'partion' for",
        ),
        (Cluster(executor="local", parameters={"timeout_min": "ten"}), r'Parameter "timeout_min" expected type'),
    ],
)
def test_a_cluster_that_is_not_there_or_asked_for_too_much_is_explained(plan, chosen, text):
    _, planned = plan()
    with pytest.raises(ConfigError, match=text):
        run_on_cluster(planned, {}, cluster=chosen, progress=Jobs())


def test_without_submitit_the_extra_is_named(plan, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    _, planned = plan()
    with pytest.raises(ConfigError, match=r"--executor needs submitit, which is not installed: .*extra 'cluster'"):
        run_on_cluster(planned, {}, cluster=Cluster(executor="debug"), progress=Jobs())


def test_parameters_of_slurm_need_no_prefix(plan):
    _, planned = plan()
    chosen = Cluster(executor="local", parameters={"partition": "gpu", "slurm_qos": "low", "gpus_per_node": 0})
    parameters = cluster._executor(chosen, planned[0].folder)._executor.parameters
    assert (parameters["timeout_min"], parameters["gpus_per_node"]) == (1440, 0)
