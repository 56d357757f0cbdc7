"""Continue lines of terms of any width, in the order of digits that the model was trained on."""

from apformer.tasks.digits.generator import MOST
from apformer.tasks.progressions import text_file
from apformer.tasks.progressions.continuation import continue_terms


def predict(model, settings, lines, name, terms):
    """Of each line the next terms, and how many of those asked for there are: [(text, count)].

    name: what to call the lines in a message. Raises UserError that names the line, or the flag.
    """
    rows, digits = text_file.read_numbers(lines, name, MOST, settings.data.order)
    return continue_terms(model, settings, lines, rows, digits, terms)
