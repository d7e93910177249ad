"""The look of paper figures that are drawn with matplotlib, which the package does without."""

# Okabe and Ito's colors without the yellow, which white paper swallows.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#56B4E9", "#E69F00")
MARKS = ("", "o", "s")
INK = "#333333"
FONT = 9
