from lpfloop.stores.installation import pip_install


def test_command_names_package():
    assert pip_install("duckdb", "lancedb").endswith("pip install 'duckdb>=2' 'lancedb>=0.40'")
    assert pip_install("wandb").endswith("pip install wandb")
