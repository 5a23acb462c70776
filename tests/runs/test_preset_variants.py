from lpfloop.configs.load import load_config, presets, variants


def test_presets_load_every_variant(subtests):
    for variant in variants():
        for world in presets():
            with subtests.test(case=variant):
                assert load_config(world, variant, (), {}).recipe.name == variant
