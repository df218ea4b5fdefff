import pytest
from tiny_marian import marian_tokenizer


@pytest.fixture(scope="session", params=[False, True], ids=["one_vocabulary", "two_vocabularies"])
def marian(request, tmp_path_factory):
    return marian_tokenizer(tmp_path_factory.mktemp("marian"), request.param)


@pytest.fixture(scope="session")
def two_vocabularies(tmp_path_factory):
    return marian_tokenizer(tmp_path_factory.mktemp("marian_two"), separate_vocabs=True)
