import pytest
from fake_slurm import FakeSlurm

from drumline.engines.slurm import engine


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> FakeSlurm:
    """The only programs on the PATH; nothing is known yet of their answers."""
    fake = FakeSlurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", str(fake.bin))
    engine.ENGINE._jobs.forget_queues()
    yield fake
    engine.ENGINE._jobs.forget_queues()
