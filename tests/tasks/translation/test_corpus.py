"""Pairs of sentences: number words, line-aligned files, and batches that hold as many tokens whatever their width."""

import itertools

import jax
import jax.numpy as jnp
import num2words
import numpy as np
import pytest

from apformer import seq2seq
from apformer.errors import DATA, USAGE
from apformer.tasks.translation import batches as padded
from apformer.tasks.translation import corpus, number_words, training
from apformer.tokenizers import text as text_tokenizer
from tests.helpers.refusals import refused


def test_no_number_is_in_two_splits_and_these_have_their_shares():
    drawn = {split: number_words.draw(0, 400, 9999, split) for split in number_words.SPLITS}
    assert [len(set(numbers)) for numbers in drawn.values()] == [400] * 3
    assert len({*itertools.chain(*drawn.values())}) == 1200
    assert all(0 <= number <= 9999 for numbers in drawn.values() for number in numbers)
    shares = np.bincount(number_words.split_of(np.arange(100_000))) / 100_000
    np.testing.assert_allclose(shares, list(number_words.SHARES.values()), atol=0.005)
    drawn = number_words.draw(0, 5000, 999_999, "train")
    assert sum(number < 1000 for number in drawn) > 400  # numbers of few digits, too
    assert drawn == number_words.draw(0, 5000, 999_999, "train")


def test_a_number_that_a_language_cannot_say_is_named(monkeypatch):
    def broken(number, lang):
        raise TypeError("cannot unpack non-iterable NoneType object")

    monkeypatch.setattr(num2words, "num2words", broken)
    with refused(USAGE, r"cannot say 705123 in 'am' \(TypeError\): give a smaller --largest"):
        number_words.speaker("am")(705123)


def test_number_words_are_pairs_of_one_number_as_many_as_are_asked_for():
    """Writing 5,000 of them out takes longer than a small run trains."""
    cfg = corpus.Config(from_language="figures", to_language="en", numbers=9, test_sentences=7)
    lines, say = corpus.read(cfg), number_words.speaker("en")
    for part in lines.values():
        assert [say(int(figures)) for figures in part.sources] == part.targets
    assert [len(lines[part].sources) for part in ("train", "validation", "test")] == [9, 1000, 7]


def test_words_of_two_numbers_are_in_one_part():
    lines = corpus.read(corpus.Config(from_language="figures", to_language="az", largest=12_000, numbers=900))
    train, validation, test = ({*part.targets} for part in lines.values())
    assert train.isdisjoint(validation | test)


@pytest.fixture
def files(tmp_path):
    """A function from two texts to two files of them."""

    def write(source, target, name="some"):
        paths = [tmp_path / f"{name}.{side}" for side in "ab"]
        for path, text in zip(paths, (source, target), strict=True):
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return tuple(map(str, paths))

    return write


def test_lines_belong_together_whatever_their_ends(files):
    found = corpus.read_files(files(b"\xef\xbb\xbfone\r\ntwo three\r\n", "eins\nzwei\u2028drei"))
    assert found.sources == ["one", "two three"] and found.targets == ["eins", "zwei\u2028drei"]


def test_pairs_without_a_source_are_left_out(files, capsys):
    names = files("one\n\n \nfour\n", "eins\n\nzwei\n\n")
    found = corpus.read_files(names)
    assert found.sources == ["one", "four"] and found.targets == ["eins", ""]
    reported = capsys.readouterr().err.splitlines()
    assert reported[0] == f"{names[0]}: 2 empty lines (2, 3) are left out, with their translations"
    assert reported[1] == f"{names[1]}: 1 empty lines (4) are kept"


@pytest.mark.parametrize(
    ("source", "target", "sentence"),
    [
        ("one\ntwo\n", "eins\n", "a has 2 lines and .*b has 1 lines"),
        ("", "eins\n", "a is empty: give a sentence a line"),
        (b"\xff", "eins\n", "not UTF-8 at byte offset 0"),
    ],
)
def test_files_that_do_not_fit(files, source, target, sentence):
    with refused(DATA, sentence):
        corpus.read_files(files(source, target))


def test_no_source_is_in_two_parts(files, capsys):
    """Each of 300 sentences stands twice, with two translations."""
    source = [f"sentence {n % 300}" for n in range(600)]
    target = [f"Satz {n}" for n in range(600)]
    names = files("\n".join(source), "\n".join(target))
    parts = corpus.read(corpus.Config(*names))
    kept = {name: {*part.sources} for name, part in parts.items()}
    assert sum(map(len, kept.values())) == 300 and len({*itertools.chain(*kept.values())}) == 300
    assert sum(len(part.sources) for part in parts.values()) == 600 and min(map(len, kept.values())) > 0
    sizes = ", ".join(f"{name} {len(part.sources)}" for name, part in parts.items())
    assert f"{sizes}; validation and test: about one line in fifty of {names[0]}" in capsys.readouterr().err
    given = corpus.read(corpus.Config(*names, test=files("ask", "frag", "test")))
    assert given["test"].sources == ["ask"] and len(given["train"].sources) > len(parts["train"].sources)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"source": "a"}, "--source and --target belong together"),
        ({"test": ("a", "b")}, "--validation and --test go with --source"),
        ({"largest": 98}, "--largest 98 is out of range"),
        ({"widths": (8, 200)}, "--widths 8 200 do not rise from 1 to --longest 128"),
    ],
)
def test_flags_that_nobody_can_follow(flags, sentence):
    with refused(USAGE, sentence):
        corpus.check(corpus.Config(**flags))


def test_a_language_that_nobody_speaks():
    with refused(USAGE, "unknown --from_language or --to_language 'fre': did you mean fr?"):
        corpus.read(corpus.Config(to_language="fre"))


SIDES = (
    [np.arange(10 * n, 10 * n + length) for n, length in enumerate((2, 5, 1, 3, 4, 2))],
    [np.arange(100 + 10 * n, 100 + 10 * n + length) for n, length in enumerate((3, 1, 1, 6, 2, 2))],
)


def rows_of(part):
    """{source: target} of a Padded, without what they are padded with."""
    leaves = zip(*map(np.asarray, part), strict=True)
    return {tuple(source[:length]): tuple(target[:other]) for source, length, target, other in leaves}


ALL = {tuple(source): tuple(target) for source, target in zip(*SIDES, strict=True)}


def test_every_pair_is_padded_to_the_first_width_that_holds_it():
    parts = padded.pad(SIDES, (2, 3, 6))
    assert [part.source_NS.shape for part in parts] == [(2, 2), (1, 3), (3, 6)]
    assert {**rows_of(parts[0]), **rows_of(parts[1]), **rows_of(parts[2])} == ALL
    assert sum(len(part.source_NS) for part in padded.pad(SIDES, (2, 3))) == 3  # the longer ones are nowhere


def test_batches_of_any_width_hold_as_many_tokens_and_draw_every_pair_as_often():
    parts, widths = jax.tree.map(jnp.asarray, padded.pad(SIDES, (2, 3, 6))), (2, 3, 6)
    rows = padded.rows_of(widths, 4)
    assert rows == (6, 4, 2)
    draw = jax.jit(lambda key: padded.draw(key, parts, rows))
    drawn = []
    counts = dict.fromkeys(ALL, 0)
    for n in range(400):
        which, flat = draw(jax.random.key(n))
        part = padded.unpack(flat, rows[which], widths[which])
        leaves = zip(*map(np.asarray, part), strict=True)
        for source, length, target, other in leaves:
            pair = tuple(source[:length])
            assert ALL[pair] == tuple(target[:other])
            counts[pair] += 1
        drawn.append(int(which))
    assert {*drawn} == {0, 1, 2}
    share = np.array(list(counts.values())) / sum(counts.values())
    np.testing.assert_allclose(share, 1 / 6, atol=0.04)  # 1,400 draws or so: four deviations


def test_all_pairs_are_in_consecutive_batches_once():
    (part,) = padded.pad(SIDES, (6,))
    batches = padded.consecutive(part, 24)
    assert batches.source_NS.shape == (2, 4, 6)
    found = {}
    for batch in range(2):
        found |= rows_of(padded.Padded(*(leaf[batch] for leaf in batches)))
    assert found == ALL | {(): ()}
    assert (batches.target_lengths_N > 0).sum() == 6


@pytest.fixture(scope="module")
def tokenizer():
    return text_tokenizer.train_byte_pairs("a dog runs\n" * 20, 270)


def test_sentences_end_and_long_ones_are_refused_or_cut(tokenizer, capsys):
    cfg = corpus.Config(longest=6)
    end = tokenizer.vocab_size
    some, none = training.encode_side(tokenizer, ["a dog", ""], "file", cfg)
    assert some[-1] == end and tokenizer.decode(some[:-1]) == "a dog" and none.tolist() == [end]
    unseen = training.encode_side(tokenizer, ["ж"], "file", cfg)[0]
    assert tokenizer.decode(unseen[:-1]) == "ж"  # two bytes that the training text never had
    with refused(DATA, "file: 'жжжжж' has 11 tokens with its end, more than 6: give a greater --longest"):
        training.encode_side(tokenizer, ["a", "жжжжж"], "file", cfg)
    cutting = corpus.Config(longest=6, too_long="cut")
    whole, cut = training.encode_side(tokenizer, ["жж", "жжжжж"], "file", cutting)
    assert len(cut) == 6 and cut[-1] == end and tokenizer.decode(whole[:-1]) == "жж"
    assert capsys.readouterr().err == "file: 1 of 2 sentences are cut to 6 tokens; the first is 'жжжжж'\n"


def test_the_decoder_reads_what_it_has_said():
    """Nothing of a target is seen before it is to be said: logits are the same as long as the targets before are."""
    cfg = seq2seq.Config(9, 9, d_model=8, n_heads=2, n_encoder_layers=1, n_decoder_layers=1, d_ff=8)
    params = jax.jit(seq2seq.init, static_argnums=1)(jax.random.key(0), cfg)
    target = jnp.array([[1, 2, 8], [1, 8, 0]])
    part = padded.Padded(jnp.array([[3, 4, 8]] * 2), jnp.array([3, 3]), target, jnp.array([3, 2]))
    logits_BTV, weights_BT = jax.jit(training.predict, static_argnums=2)(params, part, cfg)
    np.testing.assert_array_equal(weights_BT, [[1, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(logits_BTV[0, :2], logits_BTV[1, :2])
    assert (logits_BTV[0, 2] != logits_BTV[1, 2]).any() and (logits_BTV[0, 0] != logits_BTV[0, 1]).any()
