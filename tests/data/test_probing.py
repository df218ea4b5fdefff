"""SentEval's files: every name, the format, and what is wrong with a file, by file and line."""

import pytest

from benchmarks.probing.data import TASKS, ProbingData, find_tasks, format_probing_data, read_probing_data

# Li et al. 2019, Table 1.
COLUMNS = ["SeLen", "WC", "TrDep", "ToCo", "BShif", "Tense", "SubNm", "ObjNm", "SOMO", "CoIn"]
FILES = [
    "sentence_length.txt",
    "word_content.txt",
    "tree_depth.txt",
    "top_constituents.txt",
    "bigram_shift.txt",
    "past_present.txt",
    "subj_number.txt",
    "obj_number.txt",
    "odd_man_out.txt",
    "coordination_inversion.txt",
]
LINES = ["tr\tNN\ta dog runs .", "tr\tNNS\tdogs run .", "va\tNN\tthe cat sleeps .", "te\tNNS\tcats sleep ."]


def write(folder, lines, name="subj_number.txt"):
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_the_tasks_are_those_of_the_paper_in_its_order(tmp_path):
    for name in reversed(FILES):
        write(tmp_path, LINES, name)
    write(tmp_path, LINES, "README.md")
    tasks = find_tasks(tmp_path)
    assert [task.file_name for task in tasks] == FILES
    assert [task.column for task in tasks] == COLUMNS
    assert [task.group for task in tasks] == ["Surface"] * 2 + ["Syntactic"] * 3 + ["Semantic"] * 5
    assert tasks == list(TASKS.values())


def test_some_of_the_tasks(tmp_path):
    for name in ("past_present.txt", "tree_depth.txt", "word_content.txt"):
        write(tmp_path, LINES, name)
    assert [task.name for task in find_tasks(tmp_path)] == ["word_content", "tree_depth", "past_present"]
    assert [task.name for task in find_tasks(tmp_path, ["past_present", "word_content"])] == [
        "word_content",
        "past_present",
    ]


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["sentlen"], ValueError, "unknown task 'sentlen'; there are sentence_length, word_content, "),
        (["obj_number", "odd_man_out"], FileNotFoundError, r"holds no obj_number\.txt or odd_man_out\.txt$"),
        (
            [],
            FileNotFoundError,
            r"holds no sentence_length\.txt, .* or coordination_inversion\.txt$",
        ),
    ],
)
def test_tasks_that_are_not_there(tmp_path, names, error, message):
    if names:
        write(tmp_path, LINES)
    with pytest.raises(error, match=message):
        find_tasks(tmp_path, names)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent is not a folder; name the one that holds sent"):
        find_tasks(tmp_path / "absent")


def test_read(tmp_path):
    data = read_probing_data(write(tmp_path, [*LINES, "tr\tNN\tgrün \u00a0 ist  es "]))
    assert data.train == [("NN", "a dog runs ."), ("NNS", "dogs run ."), ("NN", "grün ist es")]
    assert data.validation == [("NN", "the cat sleeps .")]
    assert data.test == [("NNS", "cats sleep .")]
    assert data.labels == ["NN", "NNS"]


def test_columns_before_the_sentence_are_not_read(tmp_path):
    assert read_probing_data(write(tmp_path, ["tr\tNN\tdog\t2\ta dog runs .", *LINES])).train[0] == (
        "NN",
        "a dog runs .",
    )


def test_what_is_written_is_read(tmp_path):
    data = ProbingData([("x", "a b"), ("y", "ü")], [("y", "c")], [("x", "d"), ("x", "e")])
    text = format_probing_data(data)
    assert text == "tr\tx\ta b\ntr\ty\tü\nva\ty\tc\nte\tx\td\nte\tx\te\n"
    assert read_probing_data(write(tmp_path, text.splitlines())) == data


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tr\tNN a dog", "2 column"),
        ("tr\tNN\t ", "2 column"),
        ("tr NN a dog", "1 column"),
        ("", "1 column"),
        ("dev\tNN\ta dog", "the split is 'dev'; it must be tr, va or te"),
        ("tr\t \ta dog", "the label is empty"),
        ("va\tPRES\ta dog", "the label 'PRES' of va comes nowhere in tr"),
        ("te\tPRES\ta dog", "the label 'PRES' of te comes nowhere in tr"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, message):
    path = write(tmp_path, [*LINES[:2], line, *LINES[2:]])
    with pytest.raises(ValueError, match=message) as error:
        read_probing_data(path)
    assert str(error.value).startswith(f"{path}:3: ")


def test_a_line_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "subj_number.txt"
    path.write_bytes("tr\tNN\ta\ntr\tNN\tü\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"subj_number\.txt:2: not UTF-8"):
        read_probing_data(path)


@pytest.mark.parametrize("split", ["tr", "va", "te"])
def test_an_empty_split(tmp_path, split):
    path = write(tmp_path, [line for line in LINES if not line.startswith(split)])
    with pytest.raises(ValueError, match=rf"subj_number\.txt has no sentence of {split};"):
        read_probing_data(path)


def test_a_single_label(tmp_path):
    path = write(tmp_path, ["tr\tNN\ta", "va\tNN\tb", "te\tNN\tc"])
    with pytest.raises(ValueError, match=r"subj_number\.txt: 'NN' is the only label"):
        read_probing_data(path)
