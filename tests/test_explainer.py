"""The book's explainer: its JavaScript against PyTorch, and the page, in a browser with the network cut."""

import base64
import json
import re
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
import torch
from playwright.sync_api import expect
from safetensors.torch import load_file
from typer.testing import CliRunner

from course import __main__ as commands
from course.explainer import film, laying, trained
from course.explainer.laying import explain, lay_explainer
from course.explainer.twins import packed, parts_of
from coursebook.browser import open_page
from vsecore import scenes
from vsecore.recipes import get
from vsecore.scoring import encode
from vsecore.training import fit
from watched import opened_without_complaint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The explainer's page alone, and what the book lays beside it."""
    folder = tmp_path_factory.mktemp("explainer")
    lay_explainer(folder / "explainer")
    return folder


@pytest.fixture(scope="module")
def page(folder):
    with opened_without_complaint(folder / "explainer" / "index.html", ".ex-results img") as page:
        yield page


def torchs(name):
    """PyTorch's side: a hundred captions, their scores (C, Ni), and the pictures' unit vectors (Ni, K, D)."""
    recipe, vocabulary = trained.recipe_of(name), trained.vocabulary(name)
    model, test = trained.load(name), scenes.load(train=1, dev=1, features=recipe.features).test
    if name == "marked":
        test = trained.marked(test)[0]
    captions = [test.captions[10 * row + row % 5] for row in range(100)]
    pictures = encode(model, test, vocabulary)[0]
    with torch.no_grad():
        scores = model.scores(pictures, model.encode_captions(*vocabulary.encode(captions)))
    return captions, scores.T, pictures.vectors if pictures.vectors is not None else pictures.elements


ASK = """async ([name, captions]) => {
  const system = await vseExplainer.system(name);
  return captions.map((caption) => [...system.scores(system.readText(caption))]);
}"""
LOOK = """async ([name, pictures]) => {
  const system = await vseExplainer.system(name);
  return Promise.all(pictures.map(async (picture) =>
    system.readPicture(await vseExplainer.features(system.features, picture)).units.map((one) => [...one])));
}"""
APART = """async ([name, text, picture]) => {
  const system = await vseExplainer.system(name), read = system.readText(text);
  const features = await vseExplainer.features(system.features, picture);
  const seen = system.readPicture(features);
  const compared = system.compare(seen.units, read, picture);
  const { words, cells } = system.contributions(seen, read, compared);
  const sum = (x) => x.reduce((a, b) => a + b, 0);
  return [compared.score, sum(words), sum(cells)];
}"""


SHOWN = [name for name, shown in trained.SYSTEMS.items() if shown.kind != "mark"]


@pytest.mark.parametrize("name", trained.SYSTEMS)
def test_a_hundred_sentences_find_what_they_find_in_pytorch(name, page):
    captions, wanted, vectors = torchs(name)
    got = torch.tensor(page.evaluate(ASK, [name, captions]))
    assert (got - wanted).abs().max() < 1e-2
    assert [set(row) for row in got.topk(10).indices.tolist()] == [
        set(row) for row in wanted.topk(10).indices.tolist()
    ]
    if name == "marked":
        return  # the page reads its tagged pictures from the index alone
    pictures = [0, 26, 999]
    for row, units in zip(pictures, page.evaluate(LOOK, [name, pictures]), strict=True):
        read = torch.nn.functional.normalize(vectors[row].reshape(-1, vectors.shape[-1])[: len(units)], dim=1)
        assert (torch.tensor(units) - read).abs().max() < 1e-2


@pytest.mark.parametrize("name", SHOWN)
def test_what_words_and_cells_add_is_the_score(name, page):
    score, words, cells = page.evaluate(APART, [name, "two boats on the lake", 443])
    if name in ("scan", "dive"):  # shares
        score = 1.0
    if name != "ltd":  # its last normalisation adds a constant
        assert words == pytest.approx(score, abs=1e-4)
        assert cells == pytest.approx(score, abs=1e-4)


def test_every_system_and_every_step_can_be_opened_by_keys(page):
    for name in SHOWN:
        page.evaluate(
            "(name) => vseExplainer.set({ system: name, text: 'two boats on the lake', word: 2 })", name
        )
        for summary in page.locator(".ex-steps summary").all():
            if not summary.evaluate("(node) => node.parentElement.open"):
                summary.press("Enter")
            expect(summary.locator("xpath=following-sibling::div")).to_have_text(re.compile(r"\S"))
    page.locator('.ex-opened .ex-part[tabindex="0"]').press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("row 1, column 2")


def test_a_word_is_exchanged_by_a_click_and_the_page_knows_what_is_true(page):
    page.get_by_role("button", name="a girl holding a balloon").click()
    page.locator(".ex-word", has_text="girl").click()
    page.get_by_role("group", name="Put another word").get_by_role("button", name="boy", exact=True).click()
    page.locator(".ex-word", has_text="boy").wait_for()
    truth = sum(
        scenes.holds(scenes.parse("a boy holding a balloon"), picture.scene)
        for picture in scenes.pictures("test")
    )
    assert f"is true of {truth} of 1000 pictures" in page.locator(".ex-said").inner_text()


def test_a_frame_measures_what_a_double_loop_finds_and_its_points_are_a_shadow():
    vectors = torch.nn.functional.normalize(
        torch.randn(3, 2, 5, 7, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    parts = film.developed(vectors)
    for frame, (pictures, captions) in enumerate(vectors):
        for at, caption in enumerate(captions):
            cosines = [float(caption @ picture) for picture in pictures]
            assert parts["own"][frame, at] == pytest.approx(cosines.pop(at), abs=1e-6)
            assert parts["wrong"][frame, at] == pytest.approx(max(cosines), abs=1e-6)
            assert caption @ pictures[int(parts["which"][frame, at])] == pytest.approx(max(cosines), abs=1e-6)
    points = parts["points"]
    assert (points.norm(dim=-1) <= 1 + 1e-6).all()
    shadow = (points[-1].flatten(0, 1) - points[-1].flatten(0, 1).mean(0)).square().sum(0)
    last = vectors[-1].flatten(0, 1)
    assert torch.allclose(shadow / (last - last.mean(0)).square().sum(), parts["share"], atol=1e-5)


def test_what_the_page_says_of_the_films_is_on_record():
    adopt, bounded = (load_file(trained.FOLDER / f"{name}.safetensors") for name in film.FILMS)
    steps = adopt["step"].tolist()
    at = {step: steps.index(step) for step in (30, 60, 312, 624)}
    kept, own, others = adopt["negatives"], adopt["own"].float().mean(1), adopt["others"]
    found = (adopt["own"] > adopt["wrong"]).float().mean(1)
    assert own[at[30]] - others[at[30]] < 0.03 and kept[at[30]] > 34 and 8 < kept[at[60]] < 8.5
    assert others.argmax() == at[60] and own[at[60]] > 0.65 and others[at[312]] < 0.11
    assert (own[at[60] :] > 0.6).all() and (kept[at[624] :] == 1).all()
    assert found[at[624]] < 0.81 and (found[-5:] > 0.9).all()
    weight, loss = bounded["multiplier"], bounded["reconstruction"]
    assert weight.argmax() == at[312] and 2.1 < weight.max() < 2.2
    assert (loss[: at[624]] > 0.2).all() and (loss[at[624] :] < 0.2).all()
    assert weight[steps.index(5 * 312)] > 0 and (weight[steps.index(6 * 312) :] == 0).all()
    assert loss[steps.index(6 * 312) :].argmin() == 0 and loss[-1] > 0.155
    assert sum((trained.FOLDER / f"{name}.safetensors").stat().st_size for name in film.FILMS) < 300_000


def test_a_matrix_is_packed_to_a_few_millionths():
    matrix = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    matrix[2] = 0
    parts = json.loads(json.dumps(packed(matrix)))
    coarse, fine = (
        np.frombuffer(base64.b64decode(parts[name]), np.int8).reshape(5, 7) for name in ("coarse", "fine")
    )
    back = torch.tensor((coarse + fine / 254) * np.array(parts["scale"])[:, None])
    assert (back - matrix).abs().max() < 1e-4 * matrix.abs().max()
    eight = trained.unpacked(trained.packed({"weight": matrix}))["weight"]
    assert "fine" not in packed(eight)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("2ad_grid_gru+lip", "pool 'lip'"),
        ("pcme_grid", "pool 'gaussian'"),
        ("scan_grid_gru+i2t", "direction='i2t'"),
        ("dive_grid_gru+gru_slots", "residual=False"),
        ("vsepp_grid_bert", "encoder 'bert'"),
        ("tern_grid_words", "both towers share"),
    ],
)
def test_a_system_without_a_twin_is_refused_by_name(name, part):
    with pytest.raises(ValueError, match=re.escape(part)):
        parts_of(get(name))


def test_a_run_of_ones_own_is_exported_and_opened(folder, page, tmp_path, monkeypatch):
    small = {"dim": 16, "text.encoder.word_dim": 8, "training.epochs": 1, "training.batch_size": 64}
    run = fit(
        get("scan_grid_gru").override(small),
        scenes.load(train=200, dev=20, test=20),
        folder=tmp_path / "my run",
    )
    arguments = ["explain", str(tmp_path / "my run"), "--to", str(folder / "explainer")]
    done = CliRunner().invoke(commands.app, arguments)
    assert done.exit_code == 0, done.output
    assert "?run=run-my-run" in done.output
    assert page.context.browser is not None
    opened = open_page(page.context.browser)
    opened.goto((folder / "explainer" / "index.html").as_uri() + "?run=run-my-run")
    opened.locator(".ex-results img").first.wait_for()
    assert opened.get_by_role("radio", name="my run").is_checked()
    opened.locator("summary", has_text="Picture and sentence meet").click()
    expect(opened.get_by_role("region", name="Where the chosen word looks")).to_contain_text("row ")
    caption = "two boats on the lake"
    (got,) = opened.evaluate(ASK, ["run-my-run", [caption]])
    with torch.no_grad():
        pictures = encode(run.model, scenes.load(train=1, dev=1).test, run.tokenizer)[0]
        wanted = run.model.scores(pictures, run.model.encode_captions(*run.tokenizer.encode([caption])))[:, 0]
    assert (torch.tensor(got) - wanted).abs().max() < 1e-2
    opened.context.close()
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "explainer").symlink_to(folder / "explainer")
    monkeypatch.setattr(laying.paths, "is_checkout", lambda: False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.nn.Module, "cpu", lambda model: None if model is run.model else model)
    with pytest.raises(ValueError, match="explainer shows scenes"):
        explain(replace(run, data=run.data | {"name": "flickr8k"}))
    frame = explain(run, "my own", height=500)
    assert frame.height == 500
    with urllib.request.urlopen(frame.src) as answer:
        assert b"film.js" in answer.read()
    address = frame.src.replace("index.html?run=run-my-own", "run-my-own.js")
    with urllib.request.urlopen(address) as answer:
        own = answer.read().decode()
    exported = (folder / "explainer" / "run-my-run.js").read_text()
    assert own == exported.replace("my run", "my own").replace("my-run", "my-own")
    monkeypatch.setattr(laying.paths, "PACKAGE", tmp_path)
    (tmp_path / "grammar.py").touch()
    assert laying._outdated(folder / "explainer")
