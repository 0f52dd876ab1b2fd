"""The examples in the core's docstrings run as they stand."""

import doctest
import importlib
import inspect
import pkgutil

import gar.core


def test_docstring_examples_print_what_they_say():
    """By hand, since `doctest` alone takes a function behind the shape checker for one of another module."""
    report: list[str] = []
    num_examples = 0
    for info in pkgutil.iter_modules(gar.core.__path__, "gar.core."):
        module = importlib.import_module(info.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == info.name and "Example" in (function.__doc__ or ""):
                (example,) = doctest.DocTestFinder().find(function, name, globs=dict(vars(module)))
                num_examples += bool(example.examples)
                doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert num_examples > 5
    assert not report, "".join(report)
