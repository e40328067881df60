"""How calls of mldesigner's functions give way under our pipelines; tests/integration has the packages' own."""

import sys
import types

from drumline.spec.foreign import nodes_are_ours


def test_a_call_that_was_on_its_way_when_another_thread_put_it_back(monkeypatch):
    class Executor:
        def __call__(self, x):
            return "theirs", x

    module = types.SimpleNamespace(ExecutorBase=Executor)
    monkeypatch.setitem(sys.modules, "mldesigner._component_executor", module)
    before = Executor.__call__
    with nodes_are_ours():
        assert Executor.__call__ is not before
        on_its_way = Executor().__call__
        assert on_its_way(1) == ("theirs", 1)
    assert Executor.__call__ is before
    assert on_its_way(2) == ("theirs", 2)
