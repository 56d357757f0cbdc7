"""A run of hostile names and texts, opened in a browser, runs nothing, loads nothing, and shows them as they are.

Each page is opened as it is written, and once more without its content-security policy, which would hide a fault.
"""

import re
import shutil

import pytest

from apformer import files, model, word2vec
from apformer.commands import report
from apformer.runs import restore
from apformer.tasks import text, translation, words
from apformer.tokenizers import pretrained
from apformer.tokenizers import text as text_tokenizer
from tests.helpers import small_runs

pytestmark = pytest.mark.long

IMAGE = "<img src=x onerror=canary('image')>"  # without a slash, so that a file can have the name
HOSTILE = (
    "</script><script>canary('script')</script>",
    IMAGE,
    "<svg onload=canary('drawing')></svg>",
    "\"><iframe src='javascript:canary(7)'></iframe>",
    "javascript:canary('address')",
    "<!-- the weights --> <!-- the run --> <!--<script>",
    "${canary('template')} {{canary('braces')}} $& $1 \\u003cimg src=x onerror=canary(8)\\u003e",
    "\u2028canary('line')\u2029 \u202eright to left\u202c \0 ]]> &lt;b&gt; %3Cscript%3E",
    "__proto__ constructor hasOwnProperty toString",
    "half \ud800 of a character",
)
TEXT = "".join(f"{line}\n" for line in HOSTILE[:-1]) * 40
PAIRS = [f"{k} {line}".replace("\u2028", " ").replace("\u2029", " ") for k in range(12) for line in HOSTILE[:-1]]


def of_text(path):
    """A text, a tokenizer and a folder with hostile names; special tokens that are hostile too."""
    tokenizer = text_tokenizer.train_byte_pairs(TEXT, 400).tokenizer
    tokenizer.add_special_tokens([HOSTILE[0], "<b onclick=canary('token')>"])
    pretrained.save(text_tokenizer.BytePairs(tokenizer), path.parent / "tokenizer.json")
    file = path.parent / f"{IMAGE}.txt"
    file.write_text(TEXT, "utf-8")
    data = text.Config(text=str(file), context=24, tokenizer=str(path.parent / "tokenizer.json"), special_tokens=True)
    cfg = model.Config(d_model=8, position="learned", max_len=24)
    return small_runs.keep(path, "text", "model", cfg, data, text.Options(), other="nats")


def of_sentences(path):
    for name in ("source", "target"):
        (path.parent / name).write_text("\n".join(PAIRS) + "\n", "utf-8")
    data = translation.Config(
        source=str(path.parent / "source"), target=str(path.parent / "target"), byte_pairs=300, longest=128
    )
    options, cfg = translation.Options(beams=1), small_runs.TRANSLATOR
    return small_runs.keep(path, "translation", "seq2seq", cfg, data, options, other="nats")


def of_words(path):
    file = path.parent / f"{IMAGE}.txt"
    file.write_text(TEXT, "utf-8")
    data = words.Config(text=str(file), window=2, min_count=2)
    return small_runs.keep(path, "words", "word2vec", word2vec.Config(d_model=4), data, words.Options())


def of_files(path):
    """Files of a sound run that somebody has written anew."""
    small_runs.make("progressions", path)
    facts = {"step": 0, "member": 0, "certified": True, "contexts": 1, "errors": 0, "smallest_margin": 1.0}
    said = {f"hostile {k}": line for k, line in enumerate(HOSTILE)}
    files.write_json(path / "certificate.json", facts | {"claim": " ".join(HOSTILE)} | said)
    config = files.read_json(path / "config.json")
    config["flags"]["training"]["recipe"] = IMAGE
    config |= {"versions": said | {"__proto__": {"hostile": 1}}, "data": said | {"source": " ".join(HOSTILE)}}
    files.write_json(path / "config.json", config)
    evaluation = files.read_json(path / "evaluation.json")
    for error, line in zip(evaluation["errors"], HOSTILE * 9, strict=False):
        error["predicted"] = (line * 9)[: len(error["expected"])]
    files.write_json(path / "evaluation.json", evaluation)
    report.write(path, restore.load_settings(path), None)
    return path


RUNS = {  # how it is made, what its page shows letter by letter, and what is done with it besides
    "byte pairs": (of_text, HOSTILE[:1], ("write",)),
    "sentences": (of_sentences, (), ()),
    "words": (of_words, (), ()),
    "files": (of_files, HOSTILE, ()),
}


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("kind", RUNS)
def test_a_hostile_run_runs_nothing_in_the_browser(browse, kind, tmp_path):
    make, shown, steps = RUNS[kind]
    run = make(tmp_path / IMAGE)
    page = run / "report.html"
    guarded = page.read_text("utf-8")
    unguarded, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", guarded)
    assert count == 1 and guarded.count("<script") == 3
    for content, taken in ((guarded, ()), (unguarded, (*steps, "poke"))):
        page.write_text(content, "utf-8")
        seen = browse(run, *taken, "canaries")["canaries"]
        assert seen["ran"] == [] and seen["scripts"] == 3 and not seen["polluted"]
        assert seen["strange"] == seen["listeners"] == seen["addresses"] == []
        assert IMAGE in seen["title"] and IMAGE in seen["text"]
        assert all(line in seen["text"] for line in shown)


def test_a_canary_that_runs_is_seen(browse, made_run, tmp_path):
    run = shutil.copytree(made_run("progressions"), tmp_path / "run")
    page = (run / "report.html").read_text("utf-8")
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    (run / "report.html").write_text(page.replace("</body>", "<script>canary('planted')</script></body>"), "utf-8")
    seen = browse(run, "canaries")["canaries"]
    assert seen["ran"] == ["planted"] and seen["scripts"] == 4
