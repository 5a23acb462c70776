import tomllib
from importlib.metadata import PackageNotFoundError

from lpfloop.stores import installation
from lpfloop.stores.installation import canonical, core_names, pip_install


def test_command_names_package():
    assert pip_install("duckdb", "lancedb").endswith("pip install 'duckdb>=2' 'lancedb>=0.40'")
    assert pip_install("wandb").endswith("pip install wandb")


def test_core_is_what_the_project_declares(root, tmp_path, monkeypatch):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert len(core_names()) == len(project["dependencies"])
    assert {"aiohttp", "obstore", "duckdb", "numpy", "pyyaml"} <= {*core_names()}
    assert not {"torch", "lancedb", "jinja2"} & {*core_names()}
    assert [*core_names()] == [*map(canonical, core_names())]
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    metadata = ["NumPy>=2", 'torch>=2; extra == "train"']
    monkeypatch.setattr(installation, "requires", lambda _: metadata)
    assert core_names() == ["numpy"]


def test_core_of_a_checkout_without_metadata(tmp_path, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "ROOT", tmp_path)
    monkeypatch.setattr(installation, "requires", missing)
    assert core_names() == []
