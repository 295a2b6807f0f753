"""`adats report`."""

import json

from adats.service.messages import DecisionRequest, RewardRequest
from command import call
from served import GAUSSIAN, Local


def test_a_report_is_printed_as_text_and_as_the_service_answers_it(tmp_path, monkeypatch, capsys):
    path = tmp_path / "x.db"
    local = Local(path)
    local.put("shop", GAUSSIAN | {"control": "a", "holdout": {"share": 0.5}})
    for i in range(12):
        local.decide("shop", DecisionRequest(f"t{i}", str(i)))
        local.reward("shop", RewardRequest(str(i), float(i % 3)))
    local.close()
    assert call(monkeypatch, "report", "shop", "--db", path) == 0
    text = capsys.readouterr().out
    assert text.startswith("Keep running")
    assert "12 decisions for 12 tasks, 12 rewards" in text
    assert "no interval yet at every look" in text
    assert "for who looks once" in text
    assert call(monkeypatch, "report", "shop", "--db", path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["decisions"], found["alarms"]) == (12, [])


def test_an_experiment_that_is_not_there_is_one_line(tmp_path, monkeypatch, capsys):
    Local(tmp_path / "x.db").close()
    assert call(monkeypatch, "report", "none", "--db", tmp_path / "x.db") == 2
    assert "there is no experiment 'none' of 'default'" in capsys.readouterr().err
