"""What each check of a diagnosis asks, for readers who do not know the theorem."""

import dataclasses

# Behind it stands the name of the set that is compared.
SHIFT = "domain shift"


@dataclasses.dataclass(frozen=True)
class Words:
    """A check in plain words.

    Attributes:
      question: that it answers.
      why: what goes wrong if the answer is no.
      figure: how to read its figure; "" where it has none.
    """

    question: str
    why: str
    figure: str = ""


_WORDS = {
    "collapse": Words(
        "Is every output used?",
        "An output that is the same for all inputs carries nothing, and two that always move "
        "together carry one thing.",
        "How far each output spreads over the inputs. Good: all near the dashed line, where the "
        "outputs of a uniform sphere are. An output near zero is dead.",
    ),
    "independent": Words(
        "Is every pair a new one?",
        "The tests count pairs. If inputs are repeated there are fewer than it seems, and what is "
        "chance looks like evidence.",
    ),
    "support": Words(
        "Does the encoder reach the whole sphere?",
        "Factors that never take some of their values can't be told from others there, and "
        "embeddings of many lengths do not lie on a sphere at all.",
    ),
    "injective": Words(
        "Was a factor folded?",
        "On a sphere the size of one coordinate follows from the others, and only its sign is "
        "news. An encoder that gives up a sign maps two different inputs onto one point, and no "
        "readout brings the factor back.",
        "Left: for how many inputs each output is positive. Good: near one half. An output at 0 or "
        "1 has lost its sign. Right: how much of each output the others tell. Good: near zero.",
    ),
    "uniform": Words(
        "Are all directions equally common?",
        "The loss sets positives against random inputs. If some directions are crowded, it learns "
        "the crowd along with the factors, and Λ̂ is off.",
        "Left: the inputs along the direction that fits worst, and what a uniform sphere would "
        "have. Right: mean and mean square of each output, in units of a uniform sphere. Good: "
        "means on 0, squares on 1.",
    ),
    "pairing": Words(
        "Do the views of a pair belong together?",
        "The loss finds what two views of an input have in common. If they share nothing of an "
        "output, the pairs can't tell what it holds.",
        "How alike the two views are in each output: the correlation, 1 if they are the same. "
        "Below the dashed line next to nothing is shared.",
    ),
    "shape": Words(
        "Do views scatter as the loss assumes?",
        "The loss scores a pair by a quadratic form, which is right for scatter that falls off "
        "like a Gaussian on the sphere. Another shape biases what is learned.",
        "Left: how far a view lies from its anchor along each output, in units of Λ: median, half "
        "and nine tenths of all pairs; the dashed lines are those of a narrow Gaussian. Right: "
        "what Λ does not explain. Good: intervals that meet zero.",
    ),
    "one mode": Words(
        "Do views change gradually?",
        "A change that is on or off, such as a flip or a switch to grey, puts positives into two "
        "heaps, and no single Λ describes them.",
        "Where the views of an input lie along the output with the clearest gap. Good: one heap.",
    ),
    "centre": Words(
        "Do the views of an input centre on it?",
        "If the second view is always moved in one direction, the loss can only bend the encoder "
        "to undo it.",
        "How far positives lie on one side of their anchors, output by output, over all inputs. "
        "Good: intervals that meet zero; beyond the dashed lines it harms. A shift that depends "
        "on the input is in the table.",
    ),
    "axes": Words(
        "Does each output change by itself?",
        "Λ̂ has one number per output. If two outputs change together between views, the axes "
        "are not those of the factors: the space is right, but factors are mixed in it.",
        "The pairs of outputs that change together the most. Good: intervals that meet zero; "
        "beyond the dashed lines it harms.",
    ),
    "constant Λ": Words(
        "Do all inputs vary equally much between views?",
        "Λ is one vector for all inputs. If some inputs change more than others, none fits all.",
        "Λ of one output, fitted to groups of inputs along the coordinate with which it changes "
        "most clearly. Good: a level line, within the intervals.",
    ),
    "learned Λ": Words(
        "Is the learned Λ̂ that of the pairs?",
        "Λ̂ from training and Λ fitted to the pairs, which needs no negatives, should agree. If "
        "not, training has not ended or another assumption is broken.",
        "Each dot is an output. Good: on the dashed diagonal.",
    ),
    "negatives": Words(
        "Do the negatives teach anything?",
        "An encoder learns from negatives that could be mistaken for the positive. If none can, "
        "the loss is near zero for good and bad encoders alike.",
        "Left: how far positives and negatives lie from their anchor, as the loss measures it. "
        "Good: they overlap. Right: what the softmax leaves to learn, and the R² that a loss "
        "within 0.01 nats of its best still assures, by the number of negatives; the mark is where "
        "training is. The assured R² is a floor, not a forecast.",
    ),
    SHIFT: Words(
        "Does the encoder treat other inputs alike?",
        "Scores on inputs that the encoder tells from those of training say little about "
        "training, and the other way round.",
        "Scores of a classifier that tries to tell the two sets apart, on inputs it has not seen. "
        "Good: the two curves are one.",
    ),
}


def words_of(check: str) -> Words:
    """Returns what a check asks, in plain words; its own name if the check is not known."""
    name, _, compared = check.partition(": ")
    words = _WORDS.get(name, Words(check, ""))
    if not compared:
        return words
    return dataclasses.replace(words, question=f"Does the encoder treat {compared} alike?")
