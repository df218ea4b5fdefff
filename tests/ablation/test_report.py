"""The report shows what the records and the runs have, and nothing else."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from tiny_study import STORED, study_of_two, subprocess_here, write_record, write_study

from benchmarks.studies import figures, sections
from benchmarks.studies import report_command as ablation_report
from hf_capsule_mt import preset_config

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
GRID = {"name": "em-T{routing_iterations}", "method": "em-routing", "grid": {"routing_iterations": [1, 2, 3]}}


@pytest.fixture
def study(tmp_path):
    """A study of a plain row with a log and a grid of which two points of three are done."""
    found = study_of_two(tmp_path)
    found["title"] = "Two <rows> & more"
    found["page"] = str(tmp_path / "page.md.jinja")
    found["rows"] = [{"name": "plain", "method": "transformer"}, GRID]
    figure = {"rows": ["em-T*"], "x": "routing_iterations", "test": "test", "baseline": "plain"}
    found["figures"] = {"iterations": figure}
    folder = tmp_path / "records"
    folder.mkdir()
    log = [{"step": 2, "loss": 5.0}, {"step": 4, "loss": 4.0, "grad_norm": 1.0}, {"step": 4, "eval_bleu": 7.0}]
    write_record(folder, "two_plain", 20.0, method="transformer", log=log)
    for iterations, bleu in ((1, 21.0), (3, 22.0)):
        config = {"routing_iterations": iterations}
        write_record(folder, f"two_em-T{iterations}", bleu, method="em-routing", config=config)
    return write_study(tmp_path / "two.yaml", found)


def report(study, *options):
    ablation_report.main([str(study), "--runs_dir", str(study.parent / "runs")] + list(options))


def test_report(study, tmp_path, capsys):
    runs = tmp_path / "runs" / "plain" / "seed1"
    runs.mkdir(parents=True)
    for name, lines in (
        (tmp_path / "test.en", "a <b>\nc\n"),
        (tmp_path / "test.de", "A\nC\n"),
        (runs / "test.de", "X\nY\n"),
    ):
        name.write_text(lines)
    report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    assert capsys.readouterr().out.strip().endswith("report/index.html")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "<h1>Two &lt;rows&gt; &amp; more</h1>" in page
    titles = [
        "Scores",
        "Validation BLEU during training",
        "Significance",
        "Records alone",
        "Figures",
        "Length",
        "Examples",
    ]
    assert re.findall(r"<h2>(.*)</h2>", page) == titles
    assert "<td>em-T3</td>" in page
    assert "Without records so far: em-T2." in page
    assert "<tr><td>a &lt;b&gt;</td><td>A</td><td>X</td></tr>" in page
    drawn = sorted(file.name for file in (tmp_path / "report").iterdir())
    figures = ("iterations", "learning_curves", "lengths_test")
    assert drawn == ["index.html", *(f"{name}.{ending}" for name in figures for ending in ("png", "svg"))]
    assert all(f'"{name}"' in page for name in drawn[1:])


def test_time_by_length_is_drawn(study, tmp_path):
    write_study(study, {**yaml.safe_load(study.read_text()), "growth": str(STORED / "growth_tiny.json")})
    report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    assert "Time against the length of sentences." in (tmp_path / "report" / "index.html").read_text()
    assert (tmp_path / "report" / "growth.svg").is_file()


def test_an_evaluation_without_bleu(study, tmp_path, capsys):
    path = tmp_path / "records" / "two_plain_test.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "scores": {"chrf": {"score": 1.0, "signature": "x"}}}))
    with pytest.raises(SystemExit):
        report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    assert "two_plain_test.json has no BLEU; give what hf-capsule-mt evaluate" in capsys.readouterr().err


def test_of_a_loss_with_parts_the_translation_is_drawn(study, tmp_path, monkeypatch):
    log = [{"step": 2, "loss": 9.0, "lm_loss": 5.5, "bow_loss": 3.5}]
    write_record(
        tmp_path / "records", "two_em-T2", 22.0, method="em-routing", config={"routing_iterations": 2}, log=log
    )
    drawn = []
    draw = figures.draw_learning_curves
    monkeypatch.setattr(figures, "draw_learning_curves", lambda panels: drawn.append(panels) or draw(panels))
    report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    losses = {"plain": {2: [5.0], 4: [4.0]}, "em-T2": {2: [5.5]}}
    assert drawn == [{"training loss of the translation": losses, "validation BLEU": {"plain": {4: [7.0]}}}]
    assert {".png", ".svg"} <= {file.suffix for file in (tmp_path / "report").glob("learning_curves.*")}


RIGHT, WRONG = [8, 7, 6, 5, 8, 7, 6, 5, 8, 8], [7, 6, 5, 4, 8, 7, 6, 5, 8, 8]


def test_rows_are_tested_against_those_they_name(study, tmp_path):
    """By the seeds that both have, from records alone."""
    found = yaml.safe_load(study.read_text())
    found["rows"][0]["seeds"] = [1, 2]
    found["rows"][1] |= {"grid": {"routing_iterations": [1]}, "seeds": [1, 2, 3]}
    found["rows"].append({"name": "em", "method": "em-routing", "against": ["em-T1", "plain"], "seeds": [2, 1]})
    write_study(study, found)
    for name, config, seeds in (("em-T1", {"routing_iterations": 1}, (1, 2, 3)), ("em", {}, (1, 2))):
        for seed in seeds:
            record = f"two_{name}" if seed == 1 else f"two_{name}_seed{seed}"
            statistics = [RIGHT if (name, seed) == ("em", 2) else WRONG] * 16
            options = {"method": "em-routing", "config": config, "training": {"seed": seed}}
            write_record(tmp_path / "records", record, 20.0, statistics=statistics, **options)
    report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    page = (tmp_path / "report" / "index.html").read_text()
    table = page[page.index("<h2>Significance") : page.index("<h2>Records alone")]
    [cells] = [re.findall(r"<td>(.*?)</td>", line) for line in table.splitlines() if line.startswith("<tr><td>")]
    # The plain row has no statistics.
    assert cells[:3] == ["em", "em-T1", "2"]
    middle, (low, high) = float(cells[4]), map(float, cells[5].split(" to "))
    # One of two runs is better, so it may be that the same is drawn twice, which counts for more, there being but two.
    assert middle > 0
    assert (low, high) == pytest.approx((middle * (1 - 2**0.5), middle * (1 + 2**0.5)), abs=0.02)


def test_rows_are_tested_against_the_first(study, tmp_path):
    rows = ("plain", "transformer", {}, WRONG), ("em-T1", "em-routing", {"routing_iterations": 1}, RIGHT)
    for name, method, config, statistics in (*rows, ("em-T3", "em-routing", {"routing_iterations": 3}, WRONG)):
        options = {"method": method, "config": config, "statistics": [statistics] * 16}
        write_record(tmp_path / "records", f"two_{name}", 20.0, **options)
    report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    page = (tmp_path / "report" / "index.html").read_text()
    table = page[page.index("<h2>Significance") : page.index("<h2>Records alone")]
    cells = [re.findall(r"<td>(.*?)</td>", line) for line in table.splitlines() if line.startswith("<tr><td>")]
    assert [row[:3] for row in cells] == [["em-T1", "plain", "1"], ["em-T3", "plain", "1"]]
    assert cells[0][3] == "100.00‡"
    assert float(cells[0][4]) == pytest.approx(100 - float(cells[1][3]), abs=0.011)
    low, high = map(float, cells[0][5].split(" to "))
    assert 0 < low <= float(cells[0][4]) <= high
    assert cells[1][4:] == ["+0.00", "+0.00 to +0.00", "1.0000"]


def test_checkpoints_that_route_are_analyzed(study, tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "subprocess", subprocess_here())
    folders = {name: tmp_path / "runs" / name / "seed1" / "average" for name in ("em-T1", "plain")}
    # Of all that route, the one with the fewest pictures.
    shutil.copytree(CHECKPOINTS / "caps_nmt", folders["em-T1"])
    preset_config("transformer", "tiny").save_pretrained(folders["plain"])
    (tmp_path / "test.en").write_text("a b c\nd e\n")
    (tmp_path / "test.de").write_text("c b a\ne d\n")
    report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    page = (tmp_path / "report" / "index.html").read_text()
    assert re.findall(r'<li><a href="(.*)">(.*)</a></li>', page) == [("routing/em-T1/index.html", "em-T1")]
    assert "checkpoints and translations of plain, em-T1, em-T3 are not in" in page
    assert "2 sentences" in (tmp_path / "report" / "routing" / "em-T1" / "index.html").read_text()


def test_what_is_not_there_is_not_shown(study, tmp_path):
    for file in (tmp_path / "records").glob("two_em-T1*"):
        file.unlink()
    (tmp_path / "records" / "two_plain_trainer_state.json").unlink()
    report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    page = (tmp_path / "report" / "index.html").read_text()
    assert re.findall(r"<h2>(.*)</h2>", page) == ["Scores", "Significance", "Records alone"]
    assert "so not compared: plain, em-T3; score them again." in page
    assert "translations of plain, em-T3 are not in" in page
    assert [file.name for file in (tmp_path / "report").iterdir()] == ["index.html"]


def test_translations_that_nobody_scored(study, tmp_path, capsys):
    for folder in (tmp_path, tmp_path / "runs" / "plain" / "seed1"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "test.de").write_text("A\n")
    (tmp_path / "test.en").write_text("a\n")
    path = tmp_path / "records" / "two_plain_test.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hypotheses": {"file": "test.de", "sha256": "0" * 64}}))
    with pytest.raises(SystemExit):
        report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    assert "plain/seed1/test.de is not what its record scored; score it again, or remove it" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_a_report_that_is_there_is_left_alone(study, tmp_path, capsys):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "mine").touch()
    with pytest.raises(SystemExit):
        report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    assert "report is there and not empty; name another folder" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "report").iterdir()] == ["mine"]


def test_page(study, tmp_path):
    (tmp_path / "records" / "two_em-T3_routing.json").write_text('{"sentences": 3}')
    (tmp_path / "page.md.jinja").write_text(
        "# {{ study.title }}\n\n{{ scores }}\n\n{{ curves }}\n\n{{ '%.1f'|format(bleu('em-T3', 'test')) }} "
        "{{ routing('em-T3').sentences }} {{ routed | join(',') }}\n"
    )
    report(study, "--records_dir", str(tmp_path / "records"), "--page", str(tmp_path / "page.md"))
    lines = (tmp_path / "page.md").read_text().splitlines()
    assert lines[0] == "# Two <rows> & more"
    assert lines[3].startswith("| --- | ---: |")
    assert lines[4] == "| plain | 2.61M | 8 | 1 | 20.0 | 2.00 |"
    assert lines[-5:] == ["| updates | 4 |", "| --- | ---: |", "| plain | 7.0 |", "", "22.0 3 em-T3"]


def test_a_page_takes_the_place_of_no_other_file(study, tmp_path, capsys):
    """Nor of the page there was, where the report's folder is refused."""
    template, page, full = tmp_path / "page.md.jinja", tmp_path / "page.md", tmp_path / "full"
    template.write_text("{{ scores }}\n")
    page.write_text("before")
    full.mkdir()
    (full / "mine").touch()
    before = study.read_bytes()
    for options in (["--page", template], ["--page", study], ["--page", page, "--output_dir", full]):
        with pytest.raises(SystemExit) as exit_:
            report(study, "--records_dir", str(tmp_path / "records"), *map(str, options))
        assert exit_.value.code == 2
    assert "page.md.jinja, which is another file of this command, and would be lost" in capsys.readouterr().err
    assert (template.read_text(), page.read_text(), study.read_bytes()) == ("{{ scores }}\n", "before", before)


def test_adequacy_and_lengths_are_shown_where_they_were_measured(study, tmp_path):
    template = tmp_path / "page.md.jinja"
    template.write_text("{{ adequacy }}{{ lengths[0] }}|{{ adequacy_how }}\n")
    options = ("--records_dir", str(tmp_path / "records"), "--page", str(tmp_path / "page.md"))
    report(study, *options)
    assert (tmp_path / "page.md").read_text().startswith("|Adequacy, by word alignment: CDR is ")
    path = tmp_path / "records" / "two_em-T3_test.json"
    counts = {"source_words": 200, "cdr": 0.9, "under_translated": 10, "over_translated": 1}
    buckets = [{"name": "≤ 9", "systems": {"test.de": {"bleu": 30.0}}}]
    measured = {"adequacy": {"systems": {"test.de": counts}}, "by_length": {"buckets": buckets}}
    path.write_text(json.dumps(json.loads(path.read_text()) | measured))
    report(study, *options, "--output_dir", str(tmp_path / "report"))
    page = (tmp_path / "page.md").read_text()
    assert "| em-T3 | 0.900 | 5.00% | 0.50% |" in page
    assert "| test | ≤ 9 |\n| --- | ---: |\n| em-T3 | 30.0 |" in page
    assert "<td>0.900</td><td>5.00%</td>" in (tmp_path / "report" / "index.html").read_text()


def test_the_frontier_is_on_the_page(study, tmp_path):
    """A decoder is on it unless another has as much BLEU in as little time, and more of one."""
    record = json.loads((STORED / "decoding_trained.json").read_text())
    score = {"signature": "nrefs:1"}
    points = {"good": (40.0, [3.0, 5.0, 4.0]), "fast": (38.0, [1.0]), "slow": (39.0, [9.0]), "late": (40.0, [4.1])}
    each = {name: {"engine": {"seconds": s, "bleu": {"score": b, **score}}} for name, (b, s) in points.items()}
    (tmp_path / "decoding.json").write_text(json.dumps({**record, "models": each}))
    (tmp_path / "page.md.jinja").write_text("{{ decoding[0] }}\n")
    write_study(study, {**yaml.safe_load(study.read_text()), "decoding": [str(tmp_path / "decoding.json")]})
    report(study, "--records_dir", str(tmp_path / "records"), "--page", str(tmp_path / "page.md"))
    _, _, *rows = (tmp_path / "page.md").read_text().splitlines()
    assert rows[:4] == [
        *("| good | engine | 40.00 | 4.0 | yes |", "| fast | engine | 38.00 | 1.0 | yes |"),
        *("| slow | engine | 39.00 | 9.0 |  |", "| late | engine | 40.00 | 4.1 |  |"),
    ]


def test_questions_on_the_page(study, tmp_path):
    found = yaml.safe_load(study.read_text())
    found["questions"] = {"routing": {"asks": "Does routing help?", "effect": 0.5, "rows": ["em-T1", "em-T2"]}}
    write_study(study, found | {"seeds": [1, 2]})
    records = tmp_path / "records"
    for seed, marked in ((1, ""), (2, "_seed2")):
        options = {"training": {"seed": seed}, "tokenizer_hash": "the same"}
        write_record(records, f"two_plain{marked}", 90.0, method="transformer", statistics=[WRONG] * 16, **options)
        for iterations in (1, 2):
            options |= {"method": "em-routing", "config": {"routing_iterations": iterations}}
            write_record(records, f"two_em-T{iterations}{marked}", 100.0, statistics=[RIGHT] * 16, **options)
    (tmp_path / "page.md.jinja").write_text(
        "{{ criterion }}\n{% for each in questions %}{{ each.name }}|{{ each.asks }}|{{ each.effect }}|"
        "{{ each.answer }}|{{ each.why }}"
        "\n\n{{ each.table }}\n{% endfor %}{{ compared('em-T1', 'plain', 'test') }}"
    )
    path = records / "two_em-T2_run_record.json"
    record = json.loads(path.read_text())
    elsewhere = {"environment": {**record["environment"], "device": "another"}, "data_sha256": {"source": "other"}}
    elsewhere |= {"mixed_precision": "bf16", "tokenizer_hash": "other"}
    path.write_text(json.dumps(record | elsewhere))
    path = records / "two_em-T2_seed2_run_record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"environment": elsewhere["environment"]}))
    report(study, "--records_dir", str(records), "--page", str(tmp_path / "page.md"))
    report(study, "--records_dir", str(records), "--output_dir", str(tmp_path / "report"))
    criterion, first, *table = (tmp_path / "page.md").read_text().splitlines()
    assert criterion.startswith("Yes: with all seeds, 2 or more, a row has at least that much more BLEU")
    ahead = "+15.91 (+15.91 to +15.91) against `plain`"
    why = f"`em-T1`: {ahead}; `em-T2`: {ahead}"
    other = "other training text of seed 1, other tokenizer of seed 1, other machine, other precision of seed 1"
    why += f" ({other})"
    assert first == f"routing|Does routing help?|0.5|yes|{why}"
    assert table[1] == "| row | against | seeds | Δ test | answer |"
    assert table[3] == "| em-T1 | plain | 2 | +15.91 (+15.91 to +15.91), p < 0.001 | yes |"
    assert table[4].startswith(
        "| em-T2 | plain (other training text of seed 1, other tokenizer of seed 1, other machine, other precision of "
        "seed 1) | 2 | "
    )
    assert table[-1] == "+15.91 (+15.91 to +15.91), p < 0.001"
    section = (tmp_path / "report" / "index.html").read_text().partition("<h2>Questions")[2].partition("<h2>")[0]
    answer, first, second = (re.findall("<td>(.*?)</td>", line) for line in section.splitlines() if "<td>" in line)
    assert answer == ["routing", "Does routing help?", "0.5", "yes", why.replace("`", "")]
    assert first == ["em-T1", "plain", "2", "+15.91 (+15.91 to +15.91), p &lt; 0.001", "yes"]
    assert second[0] == "em-T2"


def test_scores_of_another_split(study, tmp_path, capsys):
    records, data = tmp_path / "of_the_hub", {"dataset_name": "corpus", "source_lang": "en", "target_lang": "de"}
    records.mkdir()
    found = {**yaml.safe_load(study.read_text()), "data": data, "tests": {"test": "test"}}
    run_on = {"train_file": [], "validation_file": [], **data}
    write_record(records, "two_plain", 90.0, method="transformer", data=run_on)
    words = ("--records_dir", str(records), "--output_dir")
    report(write_study(study, found), *words, str(tmp_path / "report"))
    found["tests"]["test"] = "validation"
    with pytest.raises(SystemExit):
        report(write_study(study, found), *words, str(tmp_path / "another"))
    message = "its references is ['test.de'], that of 'test' is ['validation.de']; rename the test set"
    assert message in capsys.readouterr().err


def damage(records, **changes):
    path = records / "two_em-T1_test.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bleu_statistics": {"words": "x"}}, "records of em-T1 on test: the statistics of BLEU are damaged"),
        (
            {"references": [{"file": "test.de", "sha256": "0"}]},
            "plain and em-T1 were scored on test with other references",
        ),
        ({"sources": {"file": "x.en"}}, r"its sources is \['x.en'\], that of 'test' is \['test.en'\]; rename"),
        ({"references": [{"file": "x.de"}]}, r"its references is \['x.de'\], that of 'test' is \['test.de'\]; rename"),
        (
            {"settings": {"tokenize": "intl", "lowercase": False, "metrics": ["bleu"]}},
            "its tokenize is 'intl', that of 'test' is '13a'",
        ),
        ({"scores": {"bleu": {"score": 1.0, "signature": "x"}}}, r"another BLEU \(nrefs:1; x\); score them alike"),
    ],
)
def test_scores_that_cannot_be_compared(study, tmp_path, capsys, changes, message):
    records = tmp_path / "records"
    write_record(records, "two_plain", 90.0, method="transformer", statistics=[WRONG] * 8)
    options = {"method": "em-routing", "config": {"routing_iterations": 1}}
    write_record(records, "two_em-T1", 100.0, statistics=[RIGHT] * 16, **options)
    damage(records, **changes)
    with pytest.raises(SystemExit):
        report(study, "--records_dir", str(records), "--output_dir", str(tmp_path / "report"))
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ bleu('em-T2', 'test') }}", "asks for 'test' of 'em-T2', but"),
        ("{{ routing('plain') }}", "asks for 'routing' of 'plain', but"),
        ("{{ compared('em-T1', 'em-T2', 'test') }}", "'em-T1' against 'em-T2' on 'test', which was not compared"),
        ("{{ bleu('plain') }}", "missing 1 required positional argument: 'test'; correct it"),
        ("{{ score }}", "page.md.jinja cannot be filled: 'score' is undefined; correct it"),
        ("\n{% if %}", "page.md.jinja, line 2, cannot be filled: Expected an expression, got 'end of statement block'"),
    ],
)
def test_templates_that_cannot_be_filled(study, tmp_path, capsys, template, message):
    (tmp_path / "page.md.jinja").write_text(template)
    with pytest.raises(SystemExit) as exit_:
        report(study, "--records_dir", str(tmp_path / "records"), "--page", str(tmp_path / "page.md"))
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


def test_mistakes(study, tmp_path, capsys):
    for options, message in (
        ([], "name a folder for the report as --output_dir"),
        (["--output_dir", str(tmp_path / "report")], "has no records of the study 'two'; train its rows first"),
    ):
        with pytest.raises(SystemExit) as exit_:
            report(study, *options)
        assert exit_.value.code == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_a_field_that_no_record_has(study, tmp_path, capsys):
    path = tmp_path / "records" / "two_em-T3_run_record.json"
    record = json.loads(path.read_text())
    del record["config"]["routing_iterations"]
    path.write_text(json.dumps(record))
    with pytest.raises(SystemExit):
        report(study, "--records_dir", str(tmp_path / "records"), "--output_dir", str(tmp_path / "report"))
    assert "the row 'em-T3' has no 'routing_iterations' in its config" in capsys.readouterr().err
