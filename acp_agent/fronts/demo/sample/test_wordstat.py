import unittest

from wordstat import count_words, most_common


class WordStat(unittest.TestCase):
    def test_counts_words(self):
        self.assertEqual(count_words("a b a"), {"a": 2, "b": 1})

    def test_case_does_not_matter(self):
        self.assertEqual(count_words("The cat and the hat"), {"the": 2, "cat": 1, "and": 1, "hat": 1})

    def test_most_common(self):
        self.assertEqual(most_common("To be or not to be", 2), ["be", "to"])


if __name__ == "__main__":
    unittest.main()
