"""Colors of all figures and charts."""

# Okabe and Ito: told apart with any color vision. Neighbors differ in lightness: a figure survives a gray printer.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
INK = "#333333"
MUTED = "#6E6E6E"
