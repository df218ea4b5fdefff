"""The marks of Transformers' own tests, which `--strict-markers` would refuse."""

MARKS = [
    "accelerate_tests",
    "flash_attn_test",
    "flash_attn_3_test",
    "flash_attn_4_test",
    "torch_compile_test",
]


def pytest_configure(config):
    for mark in MARKS:
        config.addinivalue_line("markers", f"{mark}: of Transformers' own tests")
