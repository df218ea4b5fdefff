"""Beam search with term banks, for one sentence, in plain Python.

What a hypothesis has is found by reading all of its tokens again, and every hypothesis is continued by every token that
may be chosen. Nothing is remembered between steps but the tokens and the score.
"""

CLOSED = 0.5
KEPT = 8


def one_word(boundaries, token, following):
    return boundaries is not None and boundaries.ends_inside[token] and boundaries.begins_inside[following]


def read(tokens, terms, boundaries, ended):
    """Return which terms stand in `tokens`, and the last tokens if they begin a form of another term.

    From left to right, the longest form at a place counts. Forms do not overlap, and stand between word boundaries.
    """
    placed = set()
    start = 0
    while start < len(tokens):
        missing = [term for term in range(len(terms)) if term not in placed]
        starts_word = start == 0 or not one_word(boundaries, tokens[start - 1], tokens[start])
        rest = tuple(tokens[start:])
        forms = [(tuple(form), term) for term in missing for form in terms[term] if starts_word]
        if rest and any(form[: len(rest)] == rest for form, _ in forms) and not ended:
            return placed, rest
        whole = []
        for form, term in forms:
            end = start + len(form)
            fits = rest[: len(form)] == form
            if fits and (end == len(tokens) or not one_word(boundaries, tokens[end - 1], tokens[end])):
                whole.append((-len(form), term, end))
        if whole:
            _, term, start = min(whole)
            placed.add(term)
        else:
            start += 1
    return placed, ()


def makes_longer_word(tokens, terms, boundaries):
    """Whether the last token is part of a word with a whole form of a missing term before it."""
    *before, last = tokens
    placed, walk = read(before, terms, boundaries, ended=False)
    missing = [term for term in range(len(terms)) if term not in placed]
    forms = [tuple(form) for term in missing for form in terms[term]]
    goes_on = any(form[: len(walk) + 1] == (*walk, last) for form in forms)
    return walk in forms and one_word(boundaries, walk[-1], last) and not goes_on


def search(
    log_probabilities, terms, boundaries, *, width, ends, limit, start, length_penalty=1.0, early=False, longest=None
):
    """Return the finished translations of a sentence as (missing terms, score, tokens), best first.

    `longest` is the length for which a score is expected, if the search stops "never" before.

    `log_probabilities(tokens)` is a list with the logarithm of the probability of every token after `tokens`.
    """
    rows = (len(terms) + 1) * width
    running = [((), 0.0)]
    finished = []
    for column in range(1, limit + 1):
        scores = [log_probabilities([start, *tokens]) for tokens, _ in running]
        counts = [len(read(tokens, terms, boundaries, ended=True)[0]) for tokens, _ in running]
        lacking = [count < len(terms) for count in counts]
        wants_to_end = [sum(2.718281828459045 ** of_row[end] for end in ends) > CLOSED for of_row in scores]
        closed = [lacks and wants for lacks, wants in zip(lacking, wants_to_end)]
        if all(closed):
            closed = [False] * len(closed)
        totals = {
            (row, token): running[row][1] + score
            for row, of_row in enumerate(scores)
            for token, score in enumerate(of_row)
        }
        ranked = sorted(totals, key=lambda place: -totals[place])
        proposed = ranked[: 2 * rows]
        for row, (tokens, _) in enumerate(running):
            proposed += [place for place in ranked if place[0] == row][:width]
            proposed += [(row, token) for token in continuations(tokens, terms, boundaries)]
        at_limit = column == limit
        candidates = []
        for row, token in sorted({*proposed}, key=lambda place: (-totals[place], place)):
            tokens = (*running[row][0], token)
            if totals[row, token] == float("-inf"):
                continue
            walk, longer = (read(part, terms, boundaries, ended=False)[1] for part in (tokens[:-1], tokens))
            goes_on = token not in ends and 0 < len(walk) < len(longer)
            if not at_limit and ((closed[row] and not goes_on) or (token in ends and lacking[row])):
                continue
            if token not in ends and makes_longer_word(tokens, terms, boundaries):
                continue
            without_end = tokens[:-1] if token in ends else tokens
            if at_limit or token in ends:
                missing = len(terms) - len(read(without_end, terms, boundaries, ended=True)[0])
                finished.append((missing, totals[row, token] / column**length_penalty, [start, *tokens]))
            else:
                candidates.append((tokens, totals[row, token]))
        finished = sorted(finished, key=lambda ended: (ended[0], -ended[1]))[: max(width, KEPT)]
        running = banks(candidates, terms, boundaries, width)
        complete = [score for missing, score, _ in finished if missing == 0][:width]
        if at_limit or not running:
            break
        if len(complete) == width:
            all_placed = [
                score for tokens, score in running if len(read(tokens, terms, boundaries, True)[0]) == len(terms)
            ]
            length = longest if early == "never" else column
            if early is True or not all_placed or max(all_placed) / length**length_penalty <= min(complete):
                break
    return finished


def continuations(tokens, terms, boundaries):
    placed, walk = read(tokens, terms, boundaries, ended=False)
    missing = [tuple(form) for term in range(len(terms)) if term not in placed for form in terms[term]]
    following = [form[len(walk)] for form in missing if form[: len(walk)] == walk and len(form) > len(walk)]
    if not walk or walk in missing:
        following += [form[0] for form in missing]
    return following


def begun_tokens(tokens, terms, boundaries):
    """Return how many of the last tokens begin a form of a missing term, and 0 if they are a whole form."""
    placed, walk = read(tokens, terms, boundaries, ended=False)
    missing = [tuple(form) for term in range(len(terms)) if term not in placed for form in terms[term]]
    return 0 if walk in missing else len(walk)


def banks(candidates, terms, boundaries, width):
    """Return the best hypotheses for every number of terms that they have.

    In a bank that lacks terms half of the places are for those within a term, the longest beginnings first.
    """
    chosen = []
    for count in range(len(terms) + 1):
        bank = [
            candidate for candidate in candidates if len(read(candidate[0], terms, boundaries, ended=True)[0]) == count
        ]
        if count < len(terms):
            lengths = {tokens: begun_tokens(tokens, terms, boundaries) for tokens, _ in bank}
            within = [candidate for candidate in bank if lengths[candidate[0]]]
            begun = sorted(within, key=lambda candidate: -lengths[candidate[0]])[: max(1, width // 2)]
            bank = begun + [candidate for candidate in bank if candidate not in begun]
        chosen += bank[:width]
    return chosen
