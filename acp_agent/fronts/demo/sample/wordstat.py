"""Counts the words of a text."""


def count_words(text):
    """How often each word occurs, ignoring case."""
    counts = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return counts


def most_common(text, n=1):
    """The `n` most frequent words, ties in alphabetical order."""
    counts = count_words(text)
    return sorted(counts, key=lambda word: (-counts[word], word))[:n]
